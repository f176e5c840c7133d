package syncset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/syncset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a home log whose appends are durable at once.
type disk struct {
	items []regions.Item
	byID  map[string]uint64
	clock *regions.ManualClock
}

func (d *disk) ID() api.LogID {
	return api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "home"}
}

func (d *disk) Head() regions.Head {
	h := regions.Head{Incarnation: "i", Sequence: uint64(len(d.items)), First: 1}
	if n := len(d.items); n > 0 {
		h.Time = d.items[n-1].Time
	}
	return h
}

func (d *disk) Changed(after uint64) <-chan struct{} {
	c := make(chan struct{})
	if uint64(len(d.items)) > after {
		close(c)
	}
	return c
}

func (d *disk) After(_ context.Context, t time.Time) (uint64, error) {
	n := uint64(0)
	for _, i := range d.items {
		if i.Time.Before(t) {
			n = i.Sequence
		}
	}
	return n, nil
}

func (d *disk) Reader(_ context.Context, after uint64) (regions.Reader, error) {
	return &at{d, after}, nil
}

func (d *disk) ClosedInstant() time.Time { return d.clock.Now() }

func (d *disk) Append(draft regions.Draft, done func(regions.Stored)) {
	seq, again := d.byID[draft.Record.ID], true
	if seq == 0 {
		seq, again = uint64(len(d.items))+1, false
		d.byID[draft.Record.ID] = seq
		d.items = append(d.items, regions.Item{Sequence: seq, Time: d.clock.Now(), Record: draft.Record})
	}
	done(regions.Stored{Position: api.Cursor{Incarnation: "i", Sequence: seq}, Duplicate: again, Done: api.Disk1, Time: d.items[seq-1].Time})
}

type at struct {
	disk *disk
	pos  uint64
}

func (r *at) Next(_ context.Context, limit regions.ReadLimit) ([]regions.Item, error) {
	rest := r.disk.items[r.pos:]
	rest = rest[:min(len(rest), limit.Records)]
	r.pos += uint64(len(rest))
	return rest, nil
}

func (*at) Close() {}

// set is a home with two members.
type set struct {
	*syncset.Home
	disk    *disk
	clock   *regions.ManualClock
	missing map[string]string
}

func newSet(t interface{ Cleanup(func()) }, pace regions.Pace) *set {
	clock := regions.NewManualClock(time.Unix(1000, 0))
	s := &set{disk: &disk{byID: map[string]uint64{}, clock: clock}, clock: clock, missing: map[string]string{}}
	s.Home = syncset.NewHome(syncset.Config{Log: s.disk, Members: []string{"b", "c"}, Clock: clock, Pace: pace,
		Missing: func(m string) string { return s.missing[m] }})
	t.Cleanup(s.Home.Close)
	return s
}

func (s *set) publish(id string) <-chan regions.Stored {
	out := make(chan regions.Stored, 2)
	s.Append(regions.Draft{Record: api.Record{ID: id}}, func(x regions.Stored) { out <- x })
	return out
}

// cursor is where a copy ends that has a gap for so many sequences.
func (s *set) cursor(seq, gaps uint64) regions.Cursor {
	c := regions.Cursor{Incarnation: "i", Sequence: seq, Ledger: regions.Ledger{Mirrored: seq - gaps, Withheld: gaps}}
	if seq > 0 {
		c.Time = s.disk.items[seq-1].Time
	}
	return c
}

func outcome(t *testing.T, out <-chan regions.Stored) regions.Stored {
	t.Helper()
	select {
	case s := <-out:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("no outcome")
		return regions.Stored{}
	}
}

// TestR14j_TheRulesOfASet: whatever members confirm, in any order, an append is
// acknowledged only when all of them have it, and nothing beyond is shown.
func TestR14j_TheRulesOfASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSet(t, 100)
		has := map[string]uint64{}
		heard := map[string]bool{}
		open := map[string]<-chan regions.Stored{}
		reader, _ := s.Reader(context.Background(), 0)
		var read uint64
		var instant time.Time
		common := func() uint64 {
			if !heard["b"] || !heard["c"] {
				return 0
			}
			return min(has["b"], has["c"])
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				s.clock.Set(s.clock.Now().Add(time.Millisecond))
				id := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "id"))
				if open[id] == nil {
					open[id] = s.publish(id)
				}
			},
			"confirm": func(t *rapid.T) {
				m := rapid.SampledFrom([]string{"b", "c"}).Draw(t, "member")
				has[m] = rapid.Uint64Range(has[m], uint64(len(s.disk.items))).Draw(t, "cursor")
				heard[m] = true
				s.Confirmed(m, s.cursor(has[m], 0))
			},
			"read": func(t *rapid.T) {
				items, err := reader.Next(context.Background(), regions.ReadLimit{Records: rapid.IntRange(1, 5).Draw(t, "records"), Bytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range items {
					if read++; i.Sequence != read || read > common() {
						t.Fatalf("read %d after %d, common is %d", i.Sequence, read-1, common())
					}
				}
			},
			"": func(t *rapid.T) {
				head := s.Head()
				if head.Unsure != (!heard["b"] || !heard["c"]) || head.Sequence != common() {
					t.Fatalf("shown %+v, common is %d", head, common())
				}
				for id, out := range open {
					select {
					case x := <-out:
						if x.Err != nil || x.Position.Sequence > common() || len(x.Copies) != 2 {
							t.Fatalf("%s: told %+v, common is %d", id, x, common())
						}
						delete(open, id)
					default:
						if seq := s.disk.byID[id]; common() >= seq {
							t.Fatalf("%s at %d is common up to %d and nobody was told", id, seq, common())
						}
					}
				}
				closed := s.ClosedInstant()
				if closed.Before(instant) {
					t.Fatalf("the closed instant went back from %s to %s", instant, closed)
				}
				instant = closed
				for _, i := range s.disk.items[common():] {
					if i.Time.Before(closed) {
						t.Fatalf("closed at %s, and %d, stamped %s, is not shown", closed, i.Sequence, i.Time)
					}
				}
			},
		})
	})
}

func TestRA4_AMissingMemberRefuses(t *testing.T) {
	s := newSet(t, 0.01)
	s.missing["c"] = "LINK_DOWN, cut"
	e, ok := outcome(t, s.publish("a")).Err.(*api.Error)
	if !ok || e.Code != api.SyncShort || e.Region != "c" || !e.Code.Retryable() || e.Code.Stored() != api.StoredNo || len(s.disk.items) != 0 {
		t.Errorf("told %v, %d records stored", e, len(s.disk.items))
	}
}

func TestRA5_NotInTimeIsUnknown(t *testing.T) {
	s := newSet(t, 0.01)
	s.Confirmed("b", s.cursor(0, 0))
	s.Confirmed("c", s.cursor(0, 0))
	out := s.publish("a")
	s.Confirmed("b", s.cursor(1, 0))
	s.clock.Set(s.clock.Now().Add(time.Hour))
	if x := outcome(t, out); api.CodeOf(x.Err) != api.OutcomeUnknown {
		t.Errorf("told %+v", x)
	}
	again := s.publish("a")
	s.Confirmed("c", s.cursor(1, 0))
	if x := outcome(t, again); x.Err != nil || !x.Duplicate || len(x.Copies) != 2 || len(s.disk.items) != 1 {
		t.Errorf("its retry: %+v", x)
	}
	last := s.publish("b")
	s.Close()
	if x := outcome(t, last); api.CodeOf(x.Err) != api.OutcomeUnknown {
		t.Errorf("open when it closed: %+v", x)
	}
	if x := outcome(t, s.publish("c")); api.CodeOf(x.Err) != api.NotReady {
		t.Errorf("after it closed: %+v", x)
	}
}

// A copy that has a gap in place of a record does not have it.
func TestRA1_AGapIsNoCopy(t *testing.T) {
	s := newSet(t, 100)
	s.Confirmed("b", s.cursor(0, 0))
	s.Confirmed("c", s.cursor(0, 0))
	whole, gap := s.publish("whole"), s.publish("gap")
	s.Confirmed("b", s.cursor(2, 0))
	s.Confirmed("c", s.cursor(1, 0))
	s.Confirmed("c", s.cursor(2, 1))
	if x := outcome(t, whole); x.Err != nil || len(x.Copies) != 2 {
		t.Errorf("a record that all have: %+v", x)
	}
	if x := outcome(t, gap); api.CodeOf(x.Err) != api.OutcomeUnknown {
		t.Errorf("a record that c has a gap for: %+v", x)
	}
	if x := outcome(t, s.publish("gap")); x.Err != nil || len(x.Copies) != 0 {
		t.Errorf("sent again its ack claims %v, %v", x.Copies, x.Err)
	}
	if x := outcome(t, s.publish("whole")); len(x.Copies) != 2 {
		t.Errorf("the other one sent again: %+v", x)
	}
}

func TestRT3_WhatWaitsIsBounded(t *testing.T) {
	s := newSet(t, 100)
	for range syncset.MaxOpen {
		s.publish(fmt.Sprint(rand.Uint64()))
	}
	if x := outcome(t, s.publish("more")); api.CodeOf(x.Err) != api.Overloaded {
		t.Errorf("told %+v", x)
	}
}

// A view of a copy shows what both the copy and the mark have.
func TestR14j_AViewWakesItsReaders(t *testing.T) {
	clock := regions.NewManualClock(time.Unix(1000, 0))
	d := &disk{byID: map[string]uint64{}, clock: clock}
	m := &syncset.Mark{}
	v := syncset.NewView(d, m)
	d.Append(regions.Draft{Record: api.Record{ID: "a"}}, func(regions.Stored) {})
	changed := v.Changed(0)
	select {
	case <-changed:
		t.Fatal("woken though nothing is known to be common")
	default:
	}
	m.Raise(5, clock.Now())
	<-changed
	if h := v.Head(); h.Unsure || h.Sequence != 1 {
		t.Errorf("shown %+v", h)
	}
	<-v.Changed(0)
	if m.Raise(3, clock.Now()); v.Head().Sequence != 1 {
		t.Error("it went back")
	}
}
