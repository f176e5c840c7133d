package alerts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions/link"
)

// drilled are the alerts that fire when the federation is broken here. The others take
// days, a region of three or a broken disk: samples.yaml has them all.
var drilled = []string{
	"DomicileDown", "DomicileLinkDown", "DomicileCopyStale", "DomicileCopyUnknown", "DomicileExposure", "DomicileFlowStopped",
	"DomicileRetentionAhead", "DomicileRetentionLoses", "DomicileRefusalAhead", "DomicileNoPolicy", "DomicilePolicyRefused", "DomicilePolicyWaits",
	"DomicilePolicySkew", "DomicileStoreRefuses", "DomicileUnknownOutcomes", "DomicileCertificateEnds", "DomicileCertificateEndsNow",
	"DomicileEvidenceMissing", "DomicileRTOMissing", "DomicileDrill", "DomicileAuthorityOut", "DomicileLeaseOut", "DomicileVoterAlone", "DomicileVoterMissing",
	"DomicileCanaryOutside", "DomicileCanaryOld",
}

// usual are those that fire in a lab in which all is well: its certificates live for a day, and
// nobody has drilled in it.
var usual = []string{"DomicileCertificateEnds", "DomicileCertificateEndsNow", "DomicileEvidenceMissing", "DomicileRTOMissing"}

// tight is the example federation with little room: orders lose what no mirror fetched in
// time, the catalogue refuses instead. Prices may move, and people may drill.
func tight() []byte {
	m := bytes.Replace(deploy.FederationYAML, []byte("max_bytes: 1GiB"), []byte("max_bytes: 8MiB"), 1)
	m = bytes.Replace(m, []byte("    home: eu-west "), []byte("    hold: true\n    retention: {max_bytes: 8MiB}\n    home: eu-west "), 1)
	return bytes.Replace(m, []byte("topics:\n"), []byte(`authority: {voters: [eu-west, us-east, ap-south]}
drills: {max_for: 5m}
topics:
  prices: {writes: home, home: eu-west, mirror: [us-east], failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m, fence_after: 20s},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`), 1)
}

// priced are the example policies, which take prices as they take the catalogue.
func priced(dir string) error {
	if err := deploy.WritePolicies(dir); err != nil {
		return err
	}
	for name, change := range map[string][2]string{
		"catalog.yaml": {"  health.records:\n", "  prices: {allow: [{residency: [global], class: [catalog]}], packages: [global]}\n  health.records:\n"},
		"matrix.csv":   {"# The catalogue is for everybody.\n", "*,prices,*,*,*,*,*,allow,D101,,\n"},
	} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func TestR14d_AlertsFireInADrill(t *testing.T) {
	tool(t, "prometheus")
	var full atomic.Bool
	l, err := lab.Open(t.Context(), lab.Options{Parent: t.TempDir(), Manifest: tight(), Policies: priced, Pace: 0.25, Seams: func(region string, s *node.Seams) {
		s.Hooks.Fabric.Free = func(string) (free, total int64, err error) {
			if region == "us-east" && full.Load() {
				return 0, 100 << 30, nil
			}
			return 50 << 30, 100 << 30, nil
		}
	}})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close(context.Background())) })
	must(t, l.Linked(t.Context()))
	looks := lookForLeaks(t)
	s := watch(t, l, looks.address, "seconds > 60", "seconds > 3", "5m", "20s")
	d := &drill{server: s, lab: l}
	d.trade(20)
	must(t, l.CaughtUp(t.Context(), time.Now(), time.Minute))
	s.fires(usual...)
	s.until("nothing but the usual fires", func() error {
		odd := s.firing()
		for _, name := range usual {
			delete(odd, name)
		}
		if len(odd) > 0 {
			return fmt.Errorf("all is well and %v fire", odd)
		}
		return nil
	})
	looks.leaked(t)
	d.isolated()
	full.Store(true)
	d.tradeUntil(1, "DomicileStoreRefuses", "DomicileFlowStopped")
	full.Store(false)
	d.cutOff()
	d.breakPolicies()
	s.fires(drilled...)
	d.dashboardAnswers()
}

type drill struct {
	*server
	lab *lab.Lab
}

// trade publishes orders and updates of the catalogue in eu-west, 8 KiB each, and lets
// what is refused be.
func (d *drill) trade(count int) {
	d.Helper()
	door, err := d.lab.Region("eu-west").Door(1)
	must(d.T, err)
	defer door.Close()
	p := door.NewPublisher(client.Window{})
	defer p.Close(d.Context())
	body := bytes.Repeat([]byte("."), 8<<10)
	for range count {
		p.Publish(d.Context(), api.Record{Topic: "orders", Body: body, Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "global"}}}, func(api.Ack, error) {})
		p.Publish(d.Context(), api.Record{Topic: "catalog.updates", Body: body, Tags: []api.Tag{{Name: "class", Value: "catalog"}, {Name: "residency", Value: "global"}}}, func(api.Ack, error) {})
	}
	must(d.T, p.Flush(d.Context()))
}

// cutOff isolates eu-west until its logs are full, and then starts ap-south again while
// nobody is there to meet it.
func (d *drill) cutOff() {
	d.Helper()
	d.forwardInto()
	ctx := d.Context()
	must(d.T, d.lab.Cut("eu-west", link.BlackHole, 10*time.Minute))
	d.fires("DomicileLinkDown", "DomicileCopyStale", "DomicileUnknownOutcomes", "DomicileAuthorityOut", "DomicileLeaseOut", "DomicileVoterAlone", "DomicileVoterMissing")
	d.tradeUntil(1, "DomicileExposure", "DomicileRetentionAhead", "DomicileRefusalAhead")
	d.tradeUntil(100, "DomicileRetentionLoses")
	must(d.T, d.lab.Region("us-east").Stop(ctx))
	must(d.T, d.lab.Region("ap-south").Restart(ctx))
	d.fires("DomicileDown", "DomicileCopyUnknown")
	d.lab.Heal()
	must(d.T, d.lab.Start(ctx))
	must(d.T, d.lab.Linked(ctx))
}

// tradeUntil publishes so many at a time until the alerts have fired.
func (d *drill) tradeUntil(count int, names ...string) {
	d.Helper()
	d.until("alerts while eu-west trades", func() error {
		d.trade(count)
		for _, name := range names {
			if n, err := d.over(`ALERTS{alertstate="firing", alertname="` + name + `"}`); err != nil || n == 0 {
				return errNotYet(name)
			}
		}
		return nil
	})
}

type errNotYet string

func (e errNotYet) Error() string { return string(e) + " does not fire" }

// forwardInto leaves a record on its way to eu-west when the cut comes.
func (d *drill) forwardInto() {
	d.Helper()
	door, err := d.lab.Region("us-east").Door(1)
	must(d.T, err)
	ctx, cancel := context.WithCancel(d.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = door.Publish(ctx, &api.Record{Topic: "orders", Body: []byte("order"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "eu"}}})
		}
	}()
	d.Cleanup(func() { cancel(); <-done; door.Close() })
}

// breakPolicies gives us-east a newer policy than the others, then spoils the directory.
func (d *drill) breakPolicies() {
	d.Helper()
	ctx := d.Context()
	catalog := filepath.Join(d.lab.Policies(), "catalog.yaml")
	text, err := os.ReadFile(catalog)
	must(d.T, err)
	must(d.T, os.WriteFile(catalog, bytes.Replace(text, []byte("serial: 1"), []byte("serial: 2"), 1), 0o600))
	d.fires("DomicilePolicyWaits")
	d.reload("us-east", true)
	d.fires("DomicilePolicySkew")
	must(d.T, os.WriteFile(catalog, []byte("serial: none\n"), 0o600))
	d.reload("eu-west", false)
	d.fires("DomicilePolicyRefused")
	must(d.T, d.lab.Region("ap-south").Restart(ctx))
	d.fires("DomicileNoPolicy")
}

func (d *drill) reload(region string, good bool) {
	d.Helper()
	desk, err := d.lab.Region(region).Desk()
	must(d.T, err)
	defer desk.Close()
	if _, err := desk.Reload(d.Context()); (err == nil) != good {
		d.Fatalf("reload in %s: %v", region, err)
	}
}

// Each alert is quiet on good samples, fires on bad ones and has a runbook.
func TestR14d_AlertsOnSamples(t *testing.T) {
	names := alerts(t)
	samples, err := os.ReadFile(filepath.Join(rules, "samples.yaml"))
	must(t, err)
	for _, name := range names {
		if !strings.Contains(string(samples), "- name: "+name+"\n") {
			t.Errorf("samples.yaml has nothing for %s", name)
		}
		if _, err := os.Stat(filepath.Join("../../deploy/runbooks", name+".md")); err != nil {
			t.Error(err)
		}
	}
	for _, name := range drilled {
		if !slices.Contains(names, name) {
			t.Errorf("there is no alert %s", name)
		}
	}
	promtool := tool(t, "promtool")
	for _, args := range [][]string{{"check", "config", "prometheus.yaml"}, {"test", "rules", "samples.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = rules
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

var alert = regexp.MustCompile(`(?m)^\s+- alert: (\w+)$`)

func alerts(t *testing.T) (names []string) {
	text, err := os.ReadFile(filepath.Join(rules, "alerts.yaml"))
	must(t, err)
	for _, m := range alert.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 20 {
		t.Fatalf("only %d alerts were found", len(names))
	}
	return names
}
