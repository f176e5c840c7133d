package fieldreports

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/deploy"
	"domicile/regions"
	"domicile/regions/link"
)

// B08: a copy is cut off for longer than its home keeps records. The home says in
// advance that records will be lost and when, then exactly which; another topic and the
// other copy flow; healed, the copy holds that range as a gap and goes on behind it.
func TestB08_RetentionOvertakesACutMirror(t *testing.T) {
	const log, kept = "catalog.updates@home", 25 * time.Second
	topic := []byte("  catalog.updates:\n")
	d := start(t, lab.Options{Manifest: bytes.Replace(deploy.FederationYAML, topic, fmt.Appendf(topic, "    retention: {max_age: %s}\n", kept), 1)})
	d.burst("eu-west", "copied", "catalog.updates", "global", 3)
	d.converge()
	heal := d.cut(ledger.Step{Kind: ledger.Cut, Region: "eu-west", Peer: "us-east"}, func() error { return d.lab.CutLink("us-east", "eu-west", link.BlackHole, time.Hour) })
	d.burst("eu-west", "missed", "catalog.updates", "global", 20)
	published := time.Now()
	d.poll("the home forecasts the loss", func() error {
		l, err := d.lag("eu-west", log, "us-east")
		switch {
		case err != nil:
			return err
		case l.GetLossState() == string(regions.LossNow):
			t.Fatalf("records were gone before anybody was told: %v", l.GetLost())
		case l.GetLossState() != string(regions.LossAhead):
			return fmt.Errorf("loss: %q", l.GetLossState())
		}
		left := kept.Seconds() - time.Since(published).Seconds()
		if l.GetLossSeconds() <= 0 || l.GetLossSeconds() > kept.Seconds() || l.GetLossSeconds() < left-10 {
			return fmt.Errorf("said to be %.1f s ahead, it is %.1f s", l.GetLossSeconds(), left)
		}
		return nil
	})
	const lost = "20 records %s before the copy had them: 4 to 23"
	now := fmt.Sprintf(lost, "gone") // which way, the copy is told when it comes to the gap
	d.poll("the home names what was lost", func() error {
		l, err := d.lag("eu-west", log, "us-east")
		if err == nil && (l.GetLossState() != string(regions.LossNow) || strings.Join(l.GetLost(), "; ") != now) {
			err = fmt.Errorf("loss: %q, %v", l.GetLossState(), l.GetLost())
		}
		return err
	})
	if there, err := d.lag("ap-south", log, "ap-south"); err != nil || there.GetLedger().GetMirrored() != 23 {
		t.Errorf("the copy that was not cut off: %v, %v", there.GetLedger(), err)
	}
	d.burst("us-east", "other", "orders", "global", 5)
	d.poll("another topic flows", func() error { return d.reached("orders@us-east", "us-east", "ap-south") })
	heal()
	d.must(d.lab.Linked(t.Context()))
	d.burst("eu-west", "after", "catalog.updates", "global", 5)
	d.poll("the copy goes on", func() error { return d.reached(log, "eu-west", "us-east") })
	here, err := d.lag("us-east", log, "us-east")
	d.must(err)
	if l := here.GetLedger(); l.GetExpired() != 20 || l.GetMirrored() != 8 || l.GetDamaged()+l.GetVoid()+l.GetWithheld() != 0 {
		t.Errorf("the copy's ledger: %v", l)
	}
	d.poll("the home still says what was lost, and how", func() error {
		l, err := d.lag("eu-west", log, "us-east")
		if err == nil && strings.Join(l.GetLost(), "; ") != fmt.Sprintf(lost, "expired") {
			err = errors.New(strings.Join(l.GetLost(), "; "))
		}
		return err
	})
	d.settle()
}
