package fieldreports

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/deploy"
	"domicile/regions/link"
)

// gauge is a sample of a metric, and between which instants it was taken.
type gauge struct {
	before, after time.Time
	seconds       float64
}

// scrape reads how old a region says that its copy of a log is, from its metrics page.
func (d *drill) scrape(region, log string) (g gauge, err error) {
	g.before = time.Now()
	page, err := d.lab.Region(region).Metrics(d.Context())
	g.after = time.Now()
	if err != nil {
		return g, err
	}
	for _, m := range page {
		if m.Name == "domicile_mirror_lag_seconds" && m.Labels["log"] == log && m.Labels["target"] == region {
			g.seconds = m.Value
			return g, nil
		}
	}
	return g, fmt.Errorf("%s tells no age of %s", region, log)
}

// cutAt is when copying was stopped: between two instants.
type cutAt struct{ before, after time.Time }

// late is what a machine that others use may add to a figure; nothing may take away from it.
const late = 3.0

// truly holds a sample against the time for which copying has stood still.
func (c cutAt) truly(g gauge) error {
	if least, most := g.before.Sub(c.after).Seconds(), g.after.Sub(c.before).Seconds()+late; g.seconds < least-0.05 || g.seconds > most {
		return fmt.Errorf("the copy is said to be %.3f s old; copying has stood still for %.3f to %.3f s", g.seconds, least, most-late)
	}
	return nil
}

// TestR14d_Decision17_TheMetricSaysHowLongCopyingStoodStill: copying is stopped for a known
// time, with traffic and without. The metric says that time and grows one second per second; a
// count of records says nothing of the kind.
func TestR14d_Decision17_TheMetricSaysHowLongCopyingStoodStill(t *testing.T) {
	d := start(t, lab.Options{})
	const log = "orders@us-east"
	for _, traffic := range []string{"idle", "busy"} {
		_, err := d.insist("us-east", record(traffic, "orders", "global", []byte("x")))
		d.must(err)
		d.converge()
		c := cutAt{before: time.Now()}
		heal := d.cut(ledger.Step{Kind: ledger.Cut, Region: "us-east", Peer: "eu-west"}, func() error { return d.lab.CutLink("us-east", "eu-west", link.BlackHole, time.Hour) })
		c.after = time.Now()
		var first, last gauge
		for round := 0; first.seconds == 0 || last.before.Sub(first.after) < 4*time.Second; round++ {
			if traffic == "busy" {
				for n := range 5 { // whether it is acknowledged is not the question here
					_, _ = d.publish("us-east", record(fmt.Sprintf("busy-%d-%d", round, n), "orders", "global", []byte("x")))
				}
			}
			d.poll("half a second", passed(time.Now(), 500*time.Millisecond))
			g, err := d.scrape("eu-west", log)
			d.must(err)
			if err := c.truly(g); err != nil {
				t.Errorf("%s: %v", traffic, err)
			}
			if last = g; first.seconds == 0 {
				first = g
			}
		}
		grew := last.seconds - first.seconds
		if least, most := last.before.Sub(first.after).Seconds(), last.after.Sub(first.before).Seconds(); grew < least-0.05 || grew > most+0.05 {
			t.Errorf("%s: it grew by %.3f s in %.3f to %.3f s", traffic, grew, least, most)
		}
		t.Logf("%s: %.3f s, grown by %.3f", traffic, last.seconds, grew)
		heal()
		d.converge()
		d.poll("a young copy", func() error {
			g, err := d.scrape("eu-west", log)
			if err == nil && g.seconds > late {
				err = fmt.Errorf("%.3f s", g.seconds)
			}
			return err
		})
	}
}

// verdicts asks a region which logs may fail over to it now.
func (d *drill) verdicts(region string) (map[string]string, error) {
	desk, err := d.lab.Region(region).Desk()
	if err != nil {
		return nil, err
	}
	defer desk.Close()
	ctx, cancel := context.WithTimeout(d.Context(), 20*time.Second)
	defer cancel()
	m, err := desk.Permissions(ctx, "")
	said := map[string]string{}
	for _, p := range m.GetLogs() {
		said[p.GetLog().GetTopic()+"@"+p.GetLog().GetSlot()] = p.GetVerdict()
		if p.GetAllowed() != (p.GetVerdict() == "allowed") {
			return nil, fmt.Errorf("%v", p)
		}
	}
	return said, err
}

// may waits until a region says so of the catalogue, and holds what it says of eu-west's resident
// logs meanwhile: those never may.
func (d *drill) may(region, want string) {
	d.Helper()
	d.poll("the catalogue: "+want, func() error {
		said, err := d.verdicts(region)
		for _, log := range []string{"orders@eu-west", "health.records@eu-west"} {
			if err == nil && (said[log] == "" || said[log] == "allowed") {
				d.Fatalf("%s may fail over to %s: %v", log, region, said)
			}
		}
		if err == nil && said["catalog.updates@home"] != want {
			err = fmt.Errorf("%v", said)
		}
		return err
	})
}

// TestR14i_Decision14_ARegionCutOff: eu-west is cut off. The others say in seconds how far behind
// it they are; its catalogue may fail over until more than its RPO would be lost, and its
// resident logs may at no time. With producers, evidence and a command: chaos/drill.
func TestR14i_Decision14_ARegionCutOff(t *testing.T) {
	manifest := bytes.Replace(deploy.FederationYAML, []byte("    home: eu-west "), []byte("    failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m}\n    home: eu-west "), 1)
	d := start(t, lab.Options{Manifest: append(manifest, "\nauthority: {voters: [eu-west, us-east, ap-south]}\n"...)})
	_, err := d.insist("eu-west", record("first", "catalog.updates", "global", []byte("x")))
	d.must(err)
	d.may("us-east", "allowed")
	c := cutAt{before: time.Now()}
	d.must(d.lab.Cut("eu-west", link.BlackHole, time.Hour))
	c.after = time.Now()
	d.may("us-east", "lag")
	for _, region := range []string{"us-east", "ap-south"} {
		g, err := d.scrape(region, "catalog.updates@home")
		d.must(err)
		if err := c.truly(g); err != nil {
			t.Errorf("%s: %v", region, err)
		}
		t.Logf("%s is %.3f s behind", region, g.seconds)
	}
	d.lab.Heal()
	d.must(d.lab.Linked(t.Context()))
	d.may("us-east", "allowed")
}
