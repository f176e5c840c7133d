package mirror

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

// headLog is a log of which only the head is looked at.
type headLog struct {
	regions.HomeLog
	head uint64
	next chan struct{}
}

func (l *headLog) Head() regions.Head { return regions.Head{Sequence: l.head} }

func (l *headLog) Changed(after uint64) <-chan struct{} {
	if l.head > after {
		c := make(chan struct{})
		close(c)
		return c
	}
	return l.next
}

// One flow of a log sleeps at a later head than another one is about to: the watch
// that is there would not fire for what the second has yet to send.
func TestParkGoesOnWhenTheHeadHasMovedMeanwhile(t *testing.T) {
	s := &Source{watch: newWatcher()}
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "t", Slot: api.HomeSlot}
	log := &headLog{head: 20, next: make(chan struct{})}
	ahead := &flow{source: s, log: log, id: id, running: true}
	behind := &flow{source: s, log: log, id: id, running: true}
	if !s.park(ahead, pause{watch: true, seen: 20}) {
		t.Fatal("a flow with nothing to do goes on")
	}
	if s.park(behind, pause{watch: true, seen: 15}) {
		t.Error("a flow sleeps though five records wait")
	}
	if !behind.running {
		t.Error("a flow that goes on does not count as running")
	}
}

// A reply confirms at most what was sent: retention believes it.
func TestAReplyBeyondWhatWasSentEndsTheSession(t *testing.T) {
	refused := regions.NewPeerRefusals(regions.NewManualClock(time.Unix(0, 0)), slog.New(slog.DiscardHandler))
	s := &Source{cfg: SourceConfig{Refused: refused, Logger: slog.New(slog.DiscardHandler), Clock: regions.NewManualClock(time.Unix(0, 0)), Metrics: NoMetrics{}, Confirmed: func(api.LogID, string, regions.Cursor) {}}}
	at := func(n uint64) regions.Cursor { return regions.Cursor{Sequence: n, Ledger: regions.Ledger{Mirrored: n}} }
	for _, c := range []struct {
		inflight []sent
		confirms uint64
		odd      bool
	}{
		{nil, 10, false},
		{nil, 11, true},
		{nil, 9, true},
		{[]sent{{last: 12}}, 12, false},
		{[]sent{{last: 12}}, 13, true},
	} {
		f := &flow{source: s, log: &headLog{head: 20}, cursor: at(10), inflight: c.inflight}
		p := &pump{flow: f, dog: newWatchdog(time.Hour, func(error) {})}
		if err := p.confirm(at(c.confirms)); errors.Is(err, errOddReply) != c.odd {
			t.Errorf("%d in flight, %d confirmed: %v", len(c.inflight), c.confirms, err)
		}
		p.dog.stop()
	}
	f := &flow{source: s, log: &headLog{head: 20}, cursor: at(10), target: "us-east"}
	p := &pump{flow: f, dog: newWatchdog(time.Hour, func(error) {})}
	defer p.dog.stop()
	before := len(refused.Totals())
	for i, l := range []regions.Ledger{{Mirrored: 9}, {Mirrored: math.MaxUint64, Withheld: 11}} { // the second overflows to 10
		if err := p.confirm(regions.Cursor{Sequence: 10, Ledger: l}); err == nil {
			t.Errorf("a ledger of %+v is believed", l)
		}
		if got := refused.Totals(); len(got) != before+1 || got[len(got)-1].Count != uint64(i+1) {
			t.Errorf("counted %+v", got)
		}
	}
}

// Only a verdict leaves a gap: whoever could not judge has not said no.
func TestR14b_OnlyAVerdictLeavesAGap(t *testing.T) {
	for _, c := range []struct {
		err  error
		wait bool
	}{
		{&api.Error{Code: api.ResidencyDenied}, false},
		{&api.Error{Code: api.UnknownTag}, false},
		{&api.Error{Code: api.PolicyUnavailable}, true},
		{errors.New("no verdict"), true},
	} {
		code, wait := denial(c.err)
		if wait != c.wait || !wait && code != api.CodeOf(c.err) {
			t.Errorf("%v: code %q, wait %t", c.err, code, wait)
		}
	}
}
