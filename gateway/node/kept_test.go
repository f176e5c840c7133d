package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/testenv"
)

const keptManifest = `
version: 1
federation: example
regions: {eu-west: {link: "127.0.0.1:1"}, us-east: {link: "127.0.0.1:2"}}
boundaries: {eu: [eu-west], us: [us-east]}
topics:
  news: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// keptRules are those of a serial: they differ in their text.
func keptRules(serial int64) map[string][]byte {
	return map[string][]byte{"catalog.yaml": []byte(`serial: 1
dimensions: {residency: [global]}
principal_classes: [app]
topics: {news: {allow: [{residency: [global]}], packages: [news]}}
`), "rules/news.rego": fmt.Appendf(nil, `package residency.rules.news

permit contains {"rule": "all", "text": "rules of %d", "regions": data.federation.regions}
`, serial)}
}

// keeper makes policies that one person signs, for a region that trusts that person.
type keeper struct {
	*testing.T
	data  string
	trust bundle.Trust
	anna  *bundle.Signer
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	anna, err := bundle.NewSigner("anna")
	if err != nil {
		t.Fatal(err)
	}
	public, err := anna.Public()
	if err != nil {
		t.Fatal(err)
	}
	return &keeper{T: t, data: t.TempDir(), anna: anna, trust: trustAlone(public)}
}

func trustAlone(public string) bundle.Trust {
	return bundle.Trust{Keys: []bundle.Key{{ID: "anna", Role: "legal", Public: public}}, Need: []bundle.Need{{Role: "legal", Count: 1}}}
}

func (k *keeper) bundle(serial int64) []byte {
	k.Helper()
	return k.bundleFrom(serial, time.Now().Add(-time.Hour))
}

func (k *keeper) bundleFrom(serial int64, from time.Time) []byte {
	k.Helper()
	b, err := bundle.Build(bundle.Manifest{Federation: "example", Serial: serial, ValidFrom: from, ValidUntil: from.Add(bundle.MaxValidity), MinEngine: opa.Engine()}, keptRules(serial))
	if err == nil {
		err = b.Sign(k.anna)
	}
	if err != nil {
		k.Fatal(err)
	}
	return b.Bytes()
}

// openKept is the policy of a region as it starts.
func openKept(ctx context.Context, data string, trust bundle.Trust) (*policies, error) {
	f, err := regions.ParseManifest("federation.yaml", []byte(keptManifest))
	if err != nil {
		return nil, err
	}
	p := newPolicies(&Config{Data: data, Policy: trust}, f, policy.NewGate(f, "eu-west", policy.Hooks{}), regions.NewSteadyClock(), slog.New(slog.DiscardHandler))
	return p, p.open(ctx)
}

func unaudited(*signed) (func(error), error) { return func(error) {}, nil }

// inForce opens the region again and says which serial is in force: the one that is marked,
// byte by byte, or none.
func (k *keeper) inForce() (*policies, int64) {
	k.Helper()
	p, err := openKept(k.Context(), k.data, k.trust)
	if err != nil {
		k.Fatalf("after a restart: %v", err)
	}
	g, live := p.gate.Current(), p.signedNow()
	m, err := p.shelf.mark()
	if err != nil || g == nil || live == nil || m == nil || m.Serial != g.Serial || live.digest != m.Digest || live.serial() != g.Serial {
		k.Fatalf("in force %v, marked %+v, %v", g, m, err)
	}
	if text := string(live.bundle.Files["rules/news.rego"]); !strings.Contains(text, fmt.Sprintf("rules of %d", g.Serial)) {
		k.Fatalf("serial %d decides by %s", g.Serial, text)
	}
	return p, g.Serial
}

// TestR14b_AMissedPolicyWhoseTimeIsOverStandsOverTheOlderOne: a region that was cut off while
// a newer policy was active gets it from a peer after its end. It takes it, lapsed, instead of
// going on with what that policy may have taken away; an operator can't bring it.
func TestR14b_AMissedPolicyWhoseTimeIsOverStandsOverTheOlderOne(t *testing.T) {
	k := newKeeper(t)
	p, _ := openKept(t.Context(), k.data, k.trust)
	if _, err := p.activate(t.Context(), k.bundle(1), false, unaudited); err != nil {
		t.Fatal(err)
	}
	two := k.bundleFrom(2, time.Now().Add(-bundle.MaxValidity-time.Hour))
	if _, err := p.activate(t.Context(), two, false, unaudited); !errors.Is(err, bundle.ErrExpired) || p.gate.Current().Serial != 1 {
		t.Errorf("brought by an operator: %v", err)
	}
	n := &Node{cfg: Config{Region: "eu-west", Data: k.data}, seams: Seams{Clock: p.clock}, policies: p, gate: p.gate, federation: p.federation, logger: p.logger}
	n.take(t.Context(), "us-east", word{serial: 2}, func(context.Context, int64) ([]byte, error) { return two, nil })
	if g := p.gate.Current(); g.Serial != 2 || !g.HasLapsed() {
		t.Fatalf("%s is in force, lapsed %v; spurned %v", g.Revision, g.HasLapsed(), p.spurned)
	}
	if p, now := k.inForce(); now != 2 || !p.gate.Current().HasLapsed() {
		t.Errorf("after a restart %d is in force", now)
	}
}

// TestR14b_AMissedPolicyIsTakenLaterIfThereWasNoTime: a peer's policy that could not be judged
// before the time for it was over, on a busy machine, is not one that is refused.
func TestR14b_AMissedPolicyIsTakenLaterIfThereWasNoTime(t *testing.T) {
	k := newKeeper(t)
	p, _ := openKept(t.Context(), k.data, k.trust)
	n := &Node{cfg: Config{Region: "eu-west", Data: k.data}, seams: Seams{Clock: p.clock}, policies: p, gate: p.gate, federation: p.federation, logger: p.logger}
	for range 8 { // it ends sooner or later in the judging
		ctx, cancel := context.WithCancel(t.Context())
		n.take(ctx, "us-east", word{serial: 1}, func(context.Context, int64) ([]byte, error) { cancel(); return k.bundle(1), nil })
	}
	if p.signedNow() != nil || len(p.spurned) > 0 {
		t.Fatalf("spurned: %v", p.spurned)
	}
	n.take(t.Context(), "us-east", word{serial: 1}, func(context.Context, int64) ([]byte, error) { return k.bundle(1), nil })
	if live := p.signedNow(); live == nil || live.serial() != 1 {
		t.Error("it was not taken later")
	}
}

// TestR14b_ARegionThatTrustsNobodyAnyMoreHasNoPolicy: keys that were taken out of node.yaml
// do not leave the kept policy in force without a signature that counts.
func TestR14b_ARegionThatTrustsNobodyAnyMoreHasNoPolicy(t *testing.T) {
	k := newKeeper(t)
	p, _ := openKept(t.Context(), k.data, k.trust)
	if _, err := p.activate(t.Context(), k.bundle(1), false, unaudited); err != nil {
		t.Fatal(err)
	}
	p, err := openKept(t.Context(), k.data, bundle.Trust{})
	if !errors.Is(err, bundle.ErrWrongKey) || p.gate.Current() != nil || !p.signedOnly.Load() {
		t.Errorf("%v, in force: %v", err, p.gate.Current())
	}
	k.inForce()
}

// clockAt is a clock that stands.
type clockAt struct{ at time.Time }

func (c *clockAt) Now() time.Time { return c.at }

// TestR14b_TheEndOfAPolicyIsToldThirtySevenAndOneDaysBefore: status warns from thirty days
// on, and the log says each of the three once.
func TestR14b_TheEndOfAPolicyIsToldThirtySevenAndOneDaysBefore(t *testing.T) {
	k := newKeeper(t)
	p, _ := openKept(t.Context(), k.data, k.trust)
	from := time.Now().Add(-time.Hour)
	if _, err := p.activate(t.Context(), k.bundleFrom(1, from), false, unaudited); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	clock := &clockAt{}
	p.clock, p.logger = clock, slog.New(slog.NewTextHandler(&log, nil))
	end := from.Add(bundle.MaxValidity).UTC().Truncate(time.Second)
	day := 24 * time.Hour
	for _, at := range []struct {
		left   time.Duration
		status bool
		logged string
	}{
		{31 * day, false, ""}, {30*day + time.Minute, false, ""}, {30 * day, true, "within_days=30"}, {8 * day, true, ""},
		{7 * day, true, "within_days=7"}, {25 * time.Hour, true, ""}, {day, true, "within_days=1 "}, {time.Minute, true, ""},
	} {
		clock.at = end.Add(-at.left)
		p.warnEnd()
		p.warnEnd()
		if got := log.String(); strings.Count(got, "\n") != min(1, len(at.logged)) || !strings.Contains(got, at.logged) {
			t.Errorf("%s before the end the log says %q", at.left, got)
		}
		if got := p.warnings(); (len(got) == 1) != at.status {
			t.Errorf("%s before the end status warns %q", at.left, got)
		}
		log.Reset()
	}
}

const (
	keptChild = "DOMICILE_TEST_KEPT"    // the data directory of a process that activates and dies
	keptNext  = "DOMICILE_TEST_KEPT_BY" // the bundle it activates
	keptStep  = "DOMICILE_TEST_KEPT_AT" // the step at which it dies
	keptTrust = "DOMICILE_TEST_KEPT_KEY"
)

// activateAndDie is the life of that process.
func activateAndDie() error {
	die := func(step string) {
		if step == os.Getenv(keptStep) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	data, err := os.ReadFile(os.Getenv(keptNext))
	if err != nil {
		return err
	}
	p, err := openKept(context.Background(), os.Getenv(keptChild), trustAlone(os.Getenv(keptTrust)))
	if err != nil {
		return err
	}
	p.shelf.step = die
	p.changed = func() { die("flipped") }
	if os.Getenv(keptStep) == "any" {
		go func() {
			<-time.After(rand.N(30 * time.Millisecond))
			die("any")
		}()
	}
	_, err = p.activate(context.Background(), data, false, func(*signed) (func(error), error) {
		die("audited")
		return func(error) { die("ended") }, nil
	})
	return errors.Join(errors.New("it lived"), err)
}

// TestR14b_KilledWhileActivatingOneWholePolicyIsInForce kills the process at each step of an
// activation, and anywhere. After a restart the older policy is in force or the newer one,
// whole; files that were begun and not finished count for nothing; and the newer one can be
// activated again.
func TestR14b_KilledWhileActivatingOneWholePolicyIsInForce(t *testing.T) {
	if os.Getenv(keptChild) != "" {
		t.Fatal(activateAndDie())
	}
	k := newKeeper(t)
	serial := int64(1)
	p, err := openKept(t.Context(), k.data, k.trust)
	if api.CodeOf(err) != api.PolicyError || p.gate.Current() != nil {
		t.Fatalf("before any policy: %v", err)
	}
	if _, err := p.activate(t.Context(), k.bundle(serial), false, unaudited); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		step  string
		newer bool
	}{{"audited", false}, {"kept", false}, {"marked", true}, {"flipped", true}, {"ended", true}, {"any", false}, {"any", false}} {
		next := k.bundle(serial + 1)
		path := filepath.Join(t.TempDir(), "next.bundle")
		if err := os.WriteFile(path, next, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), keptChild+"="+k.data, keptNext+"="+path, keptStep+"="+at.step, keptTrust+"="+k.trust.Keys[0].Public)
		if out, err := cmd.CombinedOutput(); at.step != "any" && (err == nil || !strings.Contains(err.Error(), "killed")) {
			t.Fatalf("%s: %v %s", at.step, err, out)
		}
		k.leave(fmt.Sprint(serial+1, ".bundle.new"), next[:len(next)/2])
		k.leave("signed.json.new", []byte(`{"serial":`))
		p, now := k.inForce()
		if at.step != "any" && (now == serial+1) != at.newer || now != serial && now != serial+1 {
			t.Fatalf("killed at %s of %d: %d is in force", at.step, serial+1, now)
		}
		if _, err := p.activate(t.Context(), next, false, unaudited); err != nil {
			t.Fatalf("killed at %s, and once more: %v", at.step, err)
		}
		if _, now := k.inForce(); now != serial+1 {
			t.Fatalf("killed at %s, activated again, and %d is in force", at.step, now)
		}
		serial++
	}
}

// leave leaves a file that a crash did not let be finished.
func (k *keeper) leave(name string, data []byte) {
	k.Helper()
	if err := os.WriteFile(filepath.Join(k.data, "policy", name), data, 0o600); err != nil {
		k.Fatal(err)
	}
}

// TestR14b_FullDiskKeepsTheLastGoodPolicy fills the disk before a policy is kept, and
// between that and its mark: it is refused, the one before goes on, also over a restart, and
// once there is room it can be activated.
func TestR14b_FullDiskKeepsTheLastGoodPolicy(t *testing.T) {
	k := newKeeper(t)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", k.data).CombinedOutput(); err != nil {
		testenv.Missing(t, "needs to mount a small disk: ", err, string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", k.data).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	p, _ := openKept(t.Context(), k.data, k.trust)
	if _, err := p.activate(t.Context(), k.bundle(1), false, unaudited); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(k.data, "ballast")
	fill := func() {
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	two := k.bundle(2)
	for _, when := range []string{"", "kept"} {
		p.shelf.step = func(step string) {
			if step == when {
				fill()
			}
		}
		if when == "" {
			fill()
		}
		_, err := p.activate(t.Context(), two, false, unaudited)
		if api.CodeOf(err) != api.StorageFailed || p.gate.Current().Serial != 1 {
			t.Errorf("full %q: %v, and %d is in force", when, err, p.gate.Current().Serial)
		}
		if _, err := os.Stat(p.shelf.path(2)); (err == nil) != (when == "kept") {
			t.Errorf("full %q: %v", when, err)
		}
		var now int64
		if p, now = k.inForce(); now != 1 {
			t.Fatalf("full %q, restarted, and %d is in force", when, now)
		}
		if err := os.Remove(ballast); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if _, err := p.activate(t.Context(), two, false, unaudited); err != nil {
		t.Fatal(err)
	}
	if _, now := k.inForce(); now != 2 {
		t.Errorf("%d is in force", now)
	}
}
