package fieldreports

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/link"
)

// B01: cut off, nothing says zero: the target grows older by the second, the home
// counts exactly what waits; and a home that restarts meanwhile says that it does not
// know, not that there is nothing.
func TestB01_LagWhileDisconnectedAndAfterARestart(t *testing.T) {
	d := start(t, lab.Options{})
	const log = "catalog.updates@home"
	d.burst("eu-west", "before", "catalog.updates", "global", 50)
	d.converge()
	// At the others' gates: one at eu-west's would be forgotten by its restart.
	for _, other := range []string{"us-east", "ap-south"} {
		d.cut(ledger.Step{Kind: ledger.Cut, Region: "eu-west", Peer: other}, func() error { return d.lab.CutLink(other, "eu-west", link.BlackHole, time.Hour) })
	}
	began := time.Now()
	d.burst("eu-west", "during", "catalog.updates", "global", 200)
	published := time.Now()
	d.poll("the home counts what waits", func() error {
		l, err := d.lag("eu-west", log, "us-east")
		if err == nil && (l.GetState() != string(regions.LagLinkDown) || !l.GetRecordsKnown() || l.GetRecords() != 200 || !l.GetBytesKnown()) {
			err = fmt.Errorf("%s, %d records (known: %v)", l.GetState(), l.GetRecords(), l.GetRecordsKnown())
		}
		return err
	})
	d.poll("some seconds of it", passed(published, 6*time.Second))
	l, err := d.lag("eu-west", log, "us-east")
	d.must(err)
	if oldest := l.GetExposureSeconds(); !l.GetExposureKnown() || oldest < time.Since(published).Seconds()-1 || oldest > time.Since(began).Seconds()+1 {
		t.Errorf("the oldest waiting record is said to be %.3f s old (known: %v)", oldest, l.GetExposureKnown())
	}
	end := d.book.During(ledger.Step{Kind: ledger.Stop, Region: "eu-west"})
	d.must(d.lab.Region("eu-west").Restart(t.Context()))
	end()
	d.poll("the home has a word on it again", func() error { _, err := d.lag("eu-west", log, "us-east"); return err })
	if l, err = d.lag("eu-west", log, "us-east"); err != nil || l.GetState() == string(regions.LagCaughtUp) ||
		l.GetRecordsKnown() && l.GetRecords() != 200 || l.GetExposureKnown() && l.GetExposureSeconds() < time.Since(published).Seconds()-1 {
		t.Errorf("after the restart: %v, %v", l, err)
	}
	if l, err = d.lag("us-east", log, "us-east"); err != nil || l.GetState() == string(regions.LagCaughtUp) || !l.GetStalenessKnown() || l.GetStalenessSeconds() < time.Since(published).Seconds()-1 {
		t.Errorf("at the target: %v, %v", l, err)
	}
	v := d.heal()
	if v.Judged[invariant.Idle] == 0 || v.Judged[invariant.Slope] == 0 {
		t.Errorf("the lag was not judged: %v", v.Judged)
	}
}

// passed is nil once the time since begin is over.
func passed(begin time.Time, d time.Duration) func() error {
	return func() error {
		if time.Since(begin) < d {
			return errors.New("not yet")
		}
		return nil
	}
}

// skewed is a clock that is wrong by a fixed time.
type skewed struct {
	regions.Clock
	by time.Duration
}

func (s skewed) Now() time.Time { return s.Clock.Now().Add(s.by) }

// B03: two regions whose clocks are wrong by 744 s, one each way. No lag is negative or
// takes the skew for age, the skew has a line of its own, and records flow.
func TestB03_ClockSkewIsNoLag(t *testing.T) {
	skews := map[string]time.Duration{"us-east": 744 * time.Second, "ap-south": -744 * time.Second}
	d := start(t, lab.Options{Seams: func(region string, s *node.Seams) { s.Clock = skewed{regions.NewSteadyClock(), skews[region]} }})
	for round := range 3 {
		for _, region := range d.lab.Federation.Regions() {
			d.burst(region, fmt.Sprintf("%s-%d", region, round), "orders", "global", 20)
		}
	}
	d.converge()
	for _, home := range d.lab.Federation.Regions() {
		for _, target := range d.lab.Federation.Peers(home) {
			d.poll("a young copy", func() error {
				l, err := d.lag(target, "orders@"+home, target)
				if err == nil && (!l.GetStalenessKnown() || l.GetStalenessSeconds() < 0 || l.GetStalenessSeconds() > 5) {
					err = fmt.Errorf("%s in %s: %v", home, target, l)
				}
				return err
			})
		}
	}
	d.poll("the skew is told", func() error { return d.skewTold("eu-west", "us-east", 744) })
	d.poll("the skew is told", func() error { return d.skewTold("eu-west", "ap-south", -744) })
	for _, e := range d.book.History().Events {
		if e.Lag != nil && e.Lag.StalenessKnown && (e.Lag.Staleness < 0 || e.Lag.Staleness > 300*time.Second) {
			t.Fatalf("%s said of %s in %s: %s", e.Lag.Region, e.Lag.Log, e.Lag.Target, e.Lag.Staleness)
		}
	}
	d.settle()
}

func (d *drill) skewTold(region, peer string, want float64) error {
	desk, err := d.lab.Region(region).Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	m, err := desk.Status(d.Context())
	if err != nil {
		return err
	}
	for _, l := range m.GetLinks() {
		if l.GetPeer() == peer && l.GetOffsetKnown() && l.GetOffsetSeconds() > want-2 && l.GetOffsetSeconds() < want+2 && !l.GetSecondsTrusted() {
			return nil
		}
	}
	return fmt.Errorf("%s does not tell that %s is off by %.0f s: %v", region, peer, want, m.GetLinks())
}

// B02: records expire in every region, and a log is never written. Neither has a lag,
// before, while or after retention takes what was there.
func TestB02_ExpiredAndEmptyLogsHaveNoLag(t *testing.T) {
	topic := []byte("  catalog.updates:\n")
	short := bytes.Replace(deploy.FederationYAML, topic, append(topic, "    retention: {max_age: 1s}\n"...), 1)
	d := start(t, lab.Options{Manifest: short})
	d.burst("eu-west", "short", "catalog.updates", "global", 10)
	d.converge()
	for _, region := range d.lab.Federation.Regions() {
		d.poll("nothing is left", func() error { return d.empty(region, "catalog.updates") })
	}
	d.poll("some seconds of it", passed(time.Now(), 3*time.Second))
	v := d.judge()
	if v.Judged[invariant.Idle] == 0 || v.Judged[invariant.LagTruth] == 0 {
		t.Errorf("nobody has looked at the lag: %v", v.Judged)
	}
}

// empty is nil once no log of a topic holds records in a region.
func (d *drill) empty(region, topic string) error {
	desk, err := d.lab.Region(region).Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	m, err := desk.Topics(d.Context(), topic)
	if err != nil {
		return err
	}
	for _, s := range m.GetTopics() {
		for _, l := range s.GetLogs() {
			if l.GetKnown() && (l.GetRecords() > 0 || l.GetHead() == 0) {
				return fmt.Errorf("%s holds %d records up to %d", region, l.GetRecords(), l.GetHead())
			}
		}
	}
	return nil
}
