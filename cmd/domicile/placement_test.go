package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"domicile/chaos/lab"
	"domicile/gateway/node"
)

const movableManifest = `version: 1
federation: example
regions: {eu-west: {link: "127.0.0.1:7401"}, us-east: {link: "127.0.0.1:7402"}, ap-south: {link: "127.0.0.1:7403"}}
boundaries: {eu: [eu-west], us: [us-east]}
authority: {voters: [eu-west, us-east], witness: {arbiter: {link: "127.0.0.1:7409"}}}
topics:
  health: {writes: local, regions: [eu-west, us-east], on_home_loss: {producers: refuse, consumers: {mode: stop}, owner: o, text: t}}
  orders: {writes: home, home: eu-west, mirror: [us-east], failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m, fence_after: 20s},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// TestR14h_PlacementSaysWhereALogIsAndWhereItMayGo asks real nodes, one of them in a region
// that has no copy and no vote: it knows the log by what its home says of itself.
func TestR14h_PlacementSaysWhereALogIsAndWhereItMayGo(t *testing.T) {
	policies := func(dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "rules"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(`serial: 1
dimensions: {residency: [global, eu, us]}
principal_classes: [app]
topics: {orders: {allow: [{residency: [global]}], packages: [orders]}, health: {allow: [{residency: [eu, us]}], packages: [health]}}
`), 0o600); err != nil {
			return err
		}
		health := `package residency.rules.health

permit contains {"rule": "in_boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point in {"admit", "consume"}

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`
		return errors.Join(os.WriteFile(filepath.Join(dir, "rules", "health.rego"), []byte(health), 0o600),
			os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte("package residency.rules.orders\n\npermit contains {\"rule\": \"all\", \"regions\": data.federation.regions}\n"), 0o600))
	}
	l, err := lab.Open(t.Context(), lab.Options{Parent: t.TempDir(), Pace: 0.25, Policies: policies, Manifest: []byte(movableManifest)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())
	ask := func(region string, args ...string) string {
		var out, failed strings.Builder
		if node := []string{"--server", l.Region(region).Node().Admin()}; args[0] == "__complete" { // the last word is completed
			args = slices.Insert(slices.Clone(args), 1, node...)
		} else {
			args = append(args, node...)
		}
		if code := run(t.Context(), args, strings.NewReader(""), &out, &failed); code != 0 {
			return failed.String()
		}
		return out.String()
	}
	for region, wanted := range map[string][]string{
		"eu-west":  {"as the authority has it", "eu-west", "1.1.eu-west", "ACTIVE", "stops after 20s", " left"},
		"ap-south": {"as the authority has it", "eu-west", "1.1.eu-west", "ACTIVE"},
	} {
		if err := lab.Poll(t.Context(), 30e9, func() error { return lacking(ask(region, "placement", "ls"), wanted) }); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		args   []string
		wanted []string
	}{
		{[]string{"placement", "show", "orders"}, []string{"may move to", "us-east", "gives up publishing"}},
		{[]string{"placement", "history", "orders"}, []string{"1.1.eu-west", "goes on"}},
		{[]string{"placement", "explain", "orders"}, []string{"it is in eu-west, where the manifest puts it", "by its terms it may move to us-east"}},
		{[]string{"control", "voters"}, []string{"eu-west, us-east", "voter"}},
		{[]string{"control", "snapshot", "--dry-run"}, []string{"shortens its log", "plan snapshot/", "Nothing was changed"}},
	} {
		out := ask("eu-west", c.args...)
		if err := lacking(out, c.wanted); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(out) { // where it may rest is another matter
			if strings.Contains(line, "ap-south") && !strings.Contains(line, "may rest in") {
				t.Errorf("%v offers a region that the log may not move to:\n%s", c.args, out)
			}
		}
	}
	snapshotIsLookedAtFirst(t, filepath.Join(l.Region("eu-west").Data(), "acts.jsonl"), func(args ...string) string {
		return ask("eu-west", append([]string{"control", "snapshot"}, args...)...)
	})
	if out := ask("ap-south", "control", "snapshot", "--dry-run"); !strings.Contains(out, "no voter runs on this node") {
		t.Error(out)
	}
	t.Run("a witness says how it votes, and no more", func(t *testing.T) { witnessSays(t, l.Witness().Node()) })
	t.Run("completion offers a legal target or none", func(t *testing.T) { completesLegalTargets(t, l.Federation, ask) })
}

// snapshotIsLookedAtFirst: it takes the plan of a dry run and a reason, which the audit keeps.
func snapshotIsLookedAtFirst(t *testing.T, audit string, snapshot func(...string) string) {
	looked := snapshot("--dry-run")
	plan := looked[strings.Index(looked, "snapshot/"):]
	plan = plan[:strings.IndexByte(plan, '\n')]
	if out := snapshot("--plan", plan); !strings.Contains(out, "--reason") {
		t.Errorf("it is done without a reason: %s", out)
	}
	if out := snapshot("--plan", plan, "--reason", "a test"); !strings.HasSuffix(out, "\ndone\n") {
		t.Error(out)
	}
	acts, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(acts), `"act":"snapshot"`) || !strings.Contains(string(acts), `"reason":"a test"`) {
		t.Errorf("the audit: %v\n%s", err, acts)
	}
}

// witnessSays asks a witness for its status, its metrics and whether it is ready.
func witnessSays(t *testing.T, w *node.Witness) {
	wanted := map[string][]string{
		"status":  {"arbiter votes, and hears a leader", "a witness in no region", "arbiter, eu-west, us-east", "taken in up to", "free on its disk"},
		"metrics": {"domicile_voter_led 1", "domicile_voter_count 3", "domicile_voter_free_bytes ", "domicile_authority_trouble 0", `domicile_certificate_days_left{kind="region",name="arbiter"}`},
		"readyz":  {"ok"},
	}
	say := func(what string) string {
		if what == "status" {
			var out, failed strings.Builder
			run(t.Context(), []string{"status", "--server", w.Admin()}, strings.NewReader(""), &out, &failed)
			return out.String() + failed.String()
		}
		r, err := http.Get("http://" + w.Metrics() + "/" + what)
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	for what, wanted := range wanted {
		if err := lab.Poll(t.Context(), 30e9, func() error { return lacking(say(what), wanted) }); err != nil {
			t.Error(what, err)
		}
	}
}

type lacks struct{ text, wanted string }

func (l lacks) Error() string { return "no " + l.wanted + " in:\n" + l.text }

func lacking(text string, wanted []string) error {
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			return lacks{text, w}
		}
	}
	return nil
}

// A voter is made once, by the region that the manifest names, and the founding's name goes
// on to the others.
func TestControlFoundMakesAVoterOnce(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "node.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("federation.yaml", strings.Replace(movableManifest, `, witness: {arbiter: {link: "127.0.0.1:7409"}}`, "", 1))
	write("node.yaml", "region: us-east\n")
	found := func(args ...string) (int, string) {
		var out, failed strings.Builder
		code := run(t.Context(), append([]string{"control", "found", "-c", config, "--reason", "first start"}, args...), strings.NewReader(""), &out, &failed)
		return int(code), out.String() + failed.String()
	}
	code, out := found()
	if code != 0 || !strings.Contains(out, "at one node each of eu-west:") || !strings.Contains(out, "--authority ") {
		t.Fatalf("%d %s", code, out)
	}
	if _, err := os.Stat(node.CouncilDir(filepath.Join(dir, "data"))); err != nil {
		t.Error(err)
	}
	if code, out := found(); code == 0 || !strings.Contains(out, "it holds a voter") {
		t.Errorf("a second time: %d %s", code, out)
	}
	write("node.yaml", "region: ap-south\ndata: other\n")
	if code, out := found(); code == 0 || !strings.Contains(out, "does not have this region vote") {
		t.Errorf("a region without a vote: %d %s", code, out)
	}
}
