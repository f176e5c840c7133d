package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions"
)

// agedSolo keeps what it takes for 100 hours.
const agedSolo = `
version: 1
federation: solo
regions: {eu-west: {link: "127.0.0.1:1"}}
boundaries: {eu: [eu-west]}
topics:
  orders: {writes: local, retention: {max_age: 100h, max_bytes: 8MiB},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

func clockOff(off time.Duration) func(*node.Seams) {
	return func(s *node.Seams) {
		s.Clock = regions.NewSteadyClockOn(func() time.Time { return time.Now().Add(off) })
	}
}

// A region of its own that nobody can tell the time: a node that is started eight days ahead
// takes records and deletes none, says so everywhere, and believes its clock once a person gave
// their word for it, which is in the audit and counts for no later start.
func TestFG1_APersonsWordForTheClock(t *testing.T) {
	t.Parallel()
	const stop = 192 * time.Hour
	w := newWorld(t)
	w.policy(1, soloRules)
	f, err := regions.ParseManifest("federation.yaml", []byte(agedSolo))
	if err != nil {
		t.Fatal(err)
	}
	w.f = f
	publish := func(n *node.Node, id string) {
		t.Helper()
		if _, err := w.publish(n, id); err != nil {
			t.Fatal(err)
		}
	}
	soon := func(ask func() error) {
		t.Helper()
		if err := lab.Poll(t.Context(), time.Minute, ask); err != nil {
			t.Fatal(err)
		}
	}
	n := w.start(clockOff(0))
	for i := range 5 {
		publish(n, fmt.Sprint("id-", i))
	}
	if m := w.status(n); m.GetLevel() != "ok" {
		t.Fatalf("%s: %s", m.GetLevel(), m.GetVerdict())
	}
	w.stop(n)

	n = w.start(clockOff(stop))
	publish(n, "in doubt")
	soon(func() error { // retention has looked, and kept them
		m := w.status(n)
		said := strings.Join(m.GetWarnings(), "\n")
		if m.GetLevel() != "degraded" || !strings.Contains(m.GetVerdict(), "the clock is in doubt") || !strings.Contains(said, "past its max_age") {
			return fmt.Errorf("%s, %s", m.GetVerdict(), said)
		}
		if advice := strings.Join(m.GetAdvice(), "\n"); !strings.Contains(advice, "clock: {at: THE TIME, reason: TEXT} into node.yaml") {
			t.Fatal(advice)
		}
		return nil
	})
	if err := onPage(n, "domicile_clock_in_doubt 1"); err != nil {
		t.Error(err)
	}
	if first := firstAt(t, dial(t, n.Admin())); first != 1 {
		t.Fatalf("the first is %d", first)
	}
	w.stop(n)

	w.config.Clock = node.Checked{At: time.Now().Add(stop - time.Minute), Reason: "ben, against the radio clock"}
	n = w.start(clockOff(stop))
	soon(func() error {
		if first := firstAt(t, dial(t, n.Admin())); first != 6 {
			return fmt.Errorf("the first is %d", first)
		}
		return nil
	})
	if m := w.status(n); strings.Contains(m.GetVerdict(), "the clock is in doubt") {
		t.Fatalf("%s", m.GetVerdict())
	}
	audit, err := os.ReadFile(filepath.Join(w.config.Data, "acts.jsonl"))
	if err != nil || strings.Count(string(audit), `"act":"clock"`) != 2 || !strings.Contains(string(audit), "ben, against the radio clock") {
		t.Fatalf("%v %s", err, audit)
	}
	w.stop(n)

	n = w.start(clockOff(2 * stop)) // the word stands in the file, and is for another time
	if m := w.status(n); !strings.Contains(m.GetVerdict(), "the clock is in doubt") {
		t.Fatalf("%s", m.GetVerdict())
	}
}

// In a federation of two and of three a region is started with its clock eight days ahead. It
// says so and keeps what it has; started with the right clock it needs nobody. In three the
// others are not misled by it; when all three were stopped for eight days, they agree, and
// nobody is needed either.
func TestFG1_AWrongClockInAFederation(t *testing.T) {
	const off = 192 * time.Hour
	three := strings.Replace(mirroredTwo, "us-east: {", `ap-south: {link: "127.0.0.1:3"}, us-east: {`, 1)
	for name, manifest := range map[string]string{"two": mirroredTwo, "three": three} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			skew := map[string]time.Duration{}
			l, err := lab.Open(t.Context(), lab.Options{Parent: t.TempDir(), Pace: 0.25, Manifest: []byte(manifest), Policies: soloPolicies,
				Seams: func(region string, s *node.Seams) { clockOff(skew[region])(s) }})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			verdict := func(region string, doubt bool) {
				t.Helper()
				if err := lab.Poll(t.Context(), time.Minute, func() error { return inDoubt(t, l.Region(region), doubt) }); err != nil {
					t.Fatal(name, " ", region, ": ", err)
				}
			}
			restart := func(names ...string) {
				t.Helper()
				var all []error
				for _, name := range names {
					all = append(all, l.Region(name).Stop(t.Context()))
				}
				for _, name := range names {
					all = append(all, l.Region(name).Start(t.Context()))
				}
				if err := errors.Join(append(all, l.Linked(t.Context()))...); err != nil {
					t.Fatal(err)
				}
			}
			verdict("eu-west", false)
			skew["us-east"] = off
			restart("us-east")
			verdict("us-east", true)
			verdict("eu-west", name == "two") // nobody can tell which of the two is right
			skew["us-east"] = 0
			restart("us-east")
			for _, r := range l.Regions() {
				verdict(r.Name, false)
			}
			if name != "three" {
				return
			}
			for _, r := range l.Regions() {
				skew[r.Name] = off
			}
			restart("eu-west", "us-east", "ap-south")
			for _, r := range l.Regions() {
				verdict(r.Name, false)
			}
		})
	}
}

const mirroredTwo = `
version: 1
federation: solo
regions: {eu-west: {link: "127.0.0.1:1"}, us-east: {link: "127.0.0.1:2"}}
boundaries: {eu: [eu-west]}
topics:
  orders: {writes: local, mirror: [all], retention: {max_age: 100h, max_bytes: 8MiB},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

func soloPolicies(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "rules"), 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "catalog.yaml"), fmt.Appendf(nil, soloCatalog, 1), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(soloRules+
			"\ndestination contains \"eu-west\" if input.tags.residency == \"eu\"\n"), 0o600))
}

func inDoubt(t *testing.T, r *lab.Region, want bool) error {
	desk, err := r.Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	m, err := desk.Status(t.Context())
	if err != nil {
		return err
	}
	if strings.Contains(m.GetVerdict(), "the clock is in doubt") != want {
		return errors.New(m.GetVerdict())
	}
	return nil
}
