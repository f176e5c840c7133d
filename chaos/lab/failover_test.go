package lab_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// beyond lists the orders that were acknowledged in an epoch behind its end.
func (m *moved) beyond(e placement.Ended) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	void := map[string]bool{}
	for id, ack := range m.acks {
		if ack.Epoch == e.Epoch && ack.Sequence > e.End {
			void[id] = true
		}
	}
	return void
}

// tailOf waits until a region has told what is void there.
func (m *moved) tailOf(region string) (tail placement.Divergence) {
	m.Helper()
	m.until(region+" has told what is void there", func() error {
		l := m.at("us-east")
		for _, d := range l.Divergences {
			if d.Region == region && d.Fate == placement.Kept {
				tail = d
				return nil
			}
		}
		return fmt.Errorf("%+v", l.Divergences)
	})
	return tail
}

// TestS03_BothWriteAndTheTailIsFound cuts the home of a log off that goes on writing while
// cut off, and forces the log away from it. Both acknowledge, each in its own epoch. When
// the old home is back it forwards, and what it wrote beyond the cut is void there: counted,
// reported, in nobody's view; nothing else is missing anywhere.
func TestS03_BothWriteAndTheTailIsFound(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var west, east sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer west.Wait()
	defer east.Wait()
	defer stop()
	view := seen(t, ctx, &west, m.Lab, "eu-west")
	m.publish(ctx, &west, "eu-west", "w")
	m.more(20)
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	m.more(20)
	m.until("the cut is seen", func() error { return down(t.Context(), m.Lab, "us-east", "eu-west") })
	m.more(20)
	m.move("us-east", "away", "us-east", forced)
	first := m.settled("us-east", "us-east", "eu-central").History[0]
	m.publish(ctx, &east, "us-east", "e")
	m.more(40)
	if l := m.at("eu-west"); l.Home != "eu-west" || l.Status != placement.Active {
		t.Fatalf("the cut off home has heard of the move: %+v", l)
	}
	m.Heal()
	m.settled("us-east", "eu-west")
	d := m.tailOf("eu-west")
	m.more(40)
	void := m.beyond(first)
	m.read("the reader at the old home goes on where the epoch ended", view, void, max(d.Count, uint64(len(void)))-uint64(len(void)))
	stop()
	west.Wait()
	east.Wait()
	if len(void) < 20 || first.Lost == nil || first.Proof != placement.Diverges {
		t.Errorf("%d acknowledged orders are void, the epoch ended as %+v", len(void), first)
	}
	if d.Region != "eu-west" || d.Epoch != first.Epoch || d.From != first.End+1 || d.Count < uint64(len(void)) || d.Count > uint64(len(void))+2 {
		t.Errorf("%d orders acknowledged behind %d are void, and it is reported %+v", len(void), first.End, d)
	}
	t.Logf("void %d, bound %v; refused on the way: %v", len(void), first.Lost.Span, m.refused())
	m.whole("us-east", void)
}

// TestS02_AFencedHomeStopsBeforeAnotherOpens cuts the home of a log off that fences itself.
// It stops in time, the log is forced away once its lease has lapsed, and there is no
// instant at which two regions acknowledge.
func TestS02_AFencedHomeStopsBeforeAnotherOpens(t *testing.T) {
	t.Parallel()
	m := moving(t, ", fence_after: 20s", lab.Options{})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	m.publish(ctx, &producers, "us-east", "e")
	m.move("us-east", "away", "us-east", leased)
	l := m.settled("us-east", "us-east", "eu-central")
	ended := l.History[0]
	if ended.Proof != placement.Lapsed {
		t.Errorf("the epoch ended as %+v", ended)
	}
	m.until("the new home takes orders", func() error {
		if last, _ := m.acksOf("us-east"); last.IsZero() {
			return fmt.Errorf("refused: %v", m.refused())
		}
		return nil
	})
	m.Heal()
	m.settled("us-east", "eu-west")
	m.more(20)
	stop()
	producers.Wait()
	lastWest, _ := m.acksOf("eu-west")
	_, firstEast := m.acksOf("us-east")
	if !lastWest.Before(firstEast) {
		t.Errorf("eu-west acknowledged until %s, us-east from %s on", lastWest, firstEast)
	}
	if held := lastWest.Sub(cut); held > quick.Of(20*time.Second)+500*time.Millisecond {
		t.Errorf("the home that was cut off acknowledged for %s", held)
	}
	t.Logf("acknowledged for %s after the cut, opened elsewhere after %s; refused on the way: %v", lastWest.Sub(cut), firstEast.Sub(cut), m.refused())
	m.whole("us-east", m.beyond(ended))
}

// leased waits for the lease of the home to lapse, and accepts what is lost by it.
func leased(c *placement.Command) {
	forced(c)
	c.Move.Divergent = false
}

// acksOf is when a region's last and first acks came.
func (m *moved) acksOf(region string) (last, first time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, ack := range m.acks {
		at := m.when[id]
		if ack.Region != region {
			continue
		}
		if last.Before(at) {
			last = at
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return last, first
}

// TestS16_WhatTheMirrorBringsLateIsRefused cuts the home off from the authority alone: it
// goes on writing, and its mirror goes on bringing. The cut does not move, and when the
// home hears of the move its tail is all that is void.
func TestS16_WhatTheMirrorBringsLateIsRefused(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	for _, peer := range []string{"eu-central", "us-east"} {
		if _, err := m.node("eu-west").Gates().Cut(peer, []link.Plane{link.Council}, []regions.Direction{regions.In, regions.Out}, link.BlackHole, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	m.move("us-east", "away", "us-east", forced)
	first := m.settled("us-east", "us-east", "eu-central").History[0]
	m.more(20) // by the old home, which does not know
	m.settled("us-east", "eu-west")
	if d := m.tailOf("eu-west"); d.From != first.End+1 { // eu-central may have a piece of it as well
		t.Errorf("the epoch ended as %+v, void is %+v", first, d)
	}
	m.more(20)
	stop()
	producers.Wait()
	void := m.beyond(first)
	if len(void) < 20 {
		t.Errorf("%d acknowledged orders are void", len(void))
	}
	m.whole("us-east", void)
}

// TestS10_TargetDiesBeforeItOpens keeps the target of a decided move from opening the log,
// and forces the log from there to a third region: the first home never writes its old
// epoch again, and no region ever writes the one that was not opened.
func TestS10_TargetDiesBeforeItOpens(t *testing.T) {
	t.Parallel()
	var h holds
	m := moving(t, "", lab.Options{Seams: h.seams("us-east", "become")})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	h.hold(true)
	m.move("eu-west", "there", "us-east")
	m.until("the move is decided", func() error {
		if l := m.at("eu-central"); l.Home != "us-east" || l.Status != placement.Opening {
			return fmt.Errorf("%s %s", l.Home, l.Status)
		}
		return nil
	})
	if err := m.Region("us-east").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.move("eu-central", "further", "eu-central", forced)
	l := m.settled("eu-central", "eu-west", "eu-central")
	if len(l.History) != 2 || l.History[1].End != l.History[0].End {
		t.Errorf("the epochs ended as %+v", l.History)
	}
	m.more(20)
	h.hold(false)
	if err := m.Region("us-east").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.settled("eu-central", "us-east")
	m.more(20)
	stop()
	producers.Wait()
	m.whole("eu-central", nil)
}

// holds keeps one act at one region from being done while it is asked to.
type holds struct{ on atomic.Bool }

func (h *holds) hold(on bool) { h.on.Store(on) }

func (h *holds) seams(region, act string) func(string, *node.Seams) {
	return func(name string, s *node.Seams) {
		if name != region {
			return
		}
		s.Hooks.Move = func(_ api.LogID, what string) error {
			if what == act && h.on.Load() {
				return &api.Error{Code: api.NotReady, Op: "hold", Hint: "by the test"}
			}
			return nil
		}
	}
}

// TestS12_AMoveThatIsGivenUpEndsTheEpoch keeps the target from catching up. The move is
// taken back by people; the home goes on in the next epoch, producers with it, and a
// further move finds the copy that was frozen by the first. TestS13: who moves a log that
// moves, or that has moved meanwhile, is refused.
func TestS12_AMoveThatIsGivenUpEndsTheEpoch(t *testing.T) {
	t.Parallel()
	var h holds
	m := moving(t, "", lab.Options{Seams: h.seams("us-east", "caughtup")})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.publish(ctx, &producers, "us-east", "e")
	m.more(20)
	h.hold(true)
	m.move("eu-west", "first", "us-east")
	stuck := func() error {
		if l := m.at("us-east"); l.Op == nil || l.Op.Step != placement.Cut {
			return fmt.Errorf("%+v", l.Op)
		}
		return nil
	}
	m.until("the move stands still", stuck)
	l := m.at("us-east")
	second := placement.Command{Verb: placement.Begin, ID: "other", Log: l.Incarnation, Expect: l.Epoch, Region: "us-east", Actor: "bob", Reason: "a test", Plan: "p",
		Move: &placement.Move{Kind: placement.Planned, Target: "eu-central", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}}
	if _, err := m.submit("us-east", second); api.CodeOf(err) != api.PlacementRefused {
		t.Errorf("a second move of the log: %v", err)
	}
	if _, err := m.submit("us-east", placement.Command{Verb: placement.Abort, ID: "stop", Log: l.Incarnation, Expect: l.Epoch, Op: "first", Region: "us-east", Actor: "anna", Reason: "it stands still"}); err != nil {
		t.Fatal(err)
	}
	l = m.settled("eu-west", "eu-west", "us-east", "eu-central")
	if len(l.History) != 1 || !l.History[0].EndKnown || l.History[0].How != placement.ByAbort {
		t.Errorf("the epoch ended as %+v", l.History)
	}
	second.ID = "another"
	if _, err := m.submit("us-east", second); api.CodeOf(err) != api.Conflict {
		t.Errorf("a move of an epoch that has ended: %v", err)
	}
	m.more(30)
	h.hold(false)
	m.move("eu-west", "second", "us-east")
	m.settled("us-east", "eu-west", "us-east", "eu-central")
	m.more(30)
	stop()
	producers.Wait()
	m.whole("us-east", nil)
}

// TestS15_NobodyKnowsWhatWouldBeLost: the target has heard nothing of the home since it
// started, so a forced move is given up before the flip, unless somebody says that even so.
func TestS15_NobodyKnowsWhatWouldBeLost(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	stop()
	producers.Wait()
	if err := m.Region("eu-west").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Region("us-east").Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.until("the authority is there", func() error {
		if l := m.at("us-east"); l.Status != placement.Active {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	known := func(c *placement.Command) {
		forced(c)
		c.Move.Overrides = []string{placement.RuleCutFirst}
	}
	m.move("us-east", "away", "us-east", known)
	m.until("the copy was frozen, and the move given up, as nobody knows what would be lost", func() error {
		l := m.at("us-east")
		if n := len(l.History); l.Op != nil || l.Status != placement.Opening || n == 0 || l.History[n-1].How != placement.ByAbort || l.Home != "eu-west" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	m.move("us-east", "again", "us-east", forced)
	l := m.settled("us-east", "us-east", "eu-central")
	if lost := l.History[len(l.History)-1].Lost; lost == nil || lost.Span != nil {
		t.Errorf("what is lost is said to be %+v", lost)
	}
}

// TestS27_AThirdCopyIsAheadOfTheTarget: the target's copy is behind a third region's when
// the log is forced away. It has the difference brought from there before the cut is fixed.
func TestS27_AThirdCopyIsAheadOfTheTarget(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	if err := m.CutLink("eu-west", "us-east", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	m.until("the cut is seen", func() error { return down(t.Context(), m.Lab, "us-east", "eu-west") })
	m.more(40)
	stop()
	producers.Wait()
	m.until("eu-central has all of it", func() error {
		if have := len(m.holds("eu-central")); have < m.acked() {
			return fmt.Errorf("%d of %d", have, m.acked())
		}
		return nil
	})
	if behind := m.acked() - len(m.holds("us-east")); behind < 40 {
		t.Fatalf("us-east is only %d behind", behind)
	}
	if err := m.Region("eu-west").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.move("us-east", "away", "us-east", forced)
	l := m.settled("us-east", "us-east", "eu-central")
	if end := l.History[0].End; end < uint64(m.acked()) {
		t.Errorf("the epoch ended at %d, eu-central had %d", end, m.acked())
	}
	m.Heal()
	if err := m.Region("eu-west").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.settled("us-east", "eu-west")
	if l := m.at("us-east"); len(l.Divergences) != 0 {
		t.Errorf("void is %+v", l.Divergences)
	}
	m.whole("us-east", nil)
}
