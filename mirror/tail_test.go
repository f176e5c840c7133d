package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"domicile/regions"
)

// tell passes on what the source tells of the log's tail, one look after another, until
// it tells nothing more. The first look only notes what there is.
func (r *rig) tell(budget int) (lists []regions.TailList) {
	r.t.Helper()
	for looks := 0; looks < 2; {
		before := len(lists)
		r.source.TellTail(r.t.Context(), "us-east", budget, func(_ context.Context, l regions.TailList) error {
			lists = append(lists, l)
			r.target.HearTail("eu-west", l)
			return nil
		})
		if len(lists) == before {
			looks++
		}
	}
	return lists
}

func ids(entries []regions.TailEntry) (out []regions.TailHash) {
	for _, e := range entries {
		if e.Kind == "" {
			out = append(out, e.ID)
		}
	}
	return out
}

// Issue 4, build 5: a target is told what it does not have yet, by the hash of its id and
// only if it may rest there, and knows it still after a restart.
func TestR14f_TailIsToldAheadOfTheRecords(t *testing.T) {
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	if lists := r.tell(1 << 20); len(lists) != 0 {
		t.Fatalf("a copy that has everything was told %v", lists)
	}
	r.wire.hold.Store(true)
	r.publish(3, "global") // 6-8
	r.publish(4, "eu")     // 9-12, which may not rest in us-east
	r.publish(2, "global") // 13, 14
	if lists := r.tell(1 << 20); len(lists) == 0 {
		t.Fatal("nothing was told")
	}
	check := func() {
		t.Helper()
		known := r.tails.Beyond(orders, 5)
		if known.Head != 14 || len(known.Entries) != 6 {
			t.Fatalf("%+v", known)
		}
		withheld := known.Entries[3]
		if withheld.Kind != regions.Withheld || withheld.From != 9 || withheld.Sequence != 12 || withheld.ID != (regions.TailHash{}) {
			t.Fatalf("%+v", withheld)
		}
		var want []regions.TailHash
		for _, sequence := range []uint64{6, 7, 8, 13, 14} {
			want = append(want, tailKey("inc-1").Hash(fmt.Sprintf("id-%06d", sequence)))
		}
		if !slices.Equal(ids(known.Entries), want) {
			t.Fatalf("%x instead of %x", ids(known.Entries), want)
		}
		if beyond := r.tails.Beyond(orders, 7); len(beyond.Entries) != 4 || beyond.Entries[0].Sequence != 8 {
			t.Fatalf("%+v", beyond)
		}
	}
	check()
	if err := r.tails.Close(); err != nil {
		t.Fatal(err)
	}
	r.cut()
	r.startTarget() // over what the last run has kept
	check()
}

// What is not told is unknown, never nothing: the head is known from the marks.
func TestR14f_UntoldIsUnknown(t *testing.T) {
	r := newRig(t)
	r.publish(1, "global")
	r.mirrored()
	r.wire.hold.Store(true)
	r.publish(40, "global")
	r.round()
	few := 0
	r.source.TellTail(t.Context(), "us-east", 4096, func(context.Context, regions.TailList) error { few++; return nil })
	r.source.TellTail(t.Context(), "us-east", 512, func(_ context.Context, l regions.TailList) error {
		few++
		r.target.HearTail("eu-west", l)
		return nil
	})
	known := r.tails.Beyond(orders, 1)
	if few != 1 || known.Head != 41 || len(known.Entries) == 0 || len(known.Entries) > 12 {
		t.Fatalf("%d lists, head %d, %d entries for 512 bytes", few, known.Head, len(known.Entries))
	}
	r.wire.hold.Store(false)
	r.cut()
	r.heal()
	r.mirrored()
	r.round()
	if known := r.tails.Beyond(orders, 41); len(known.Entries) != 0 || known.Head != 41 {
		t.Fatalf("%+v", known)
	}
}

// What was judged by a policy that is not in force any more is not told, and a link that
// went down makes all be told again.
func TestR14b_TailIsToldUnderTheActivePolicy(t *testing.T) {
	r := newRig(t)
	r.publish(1, "global")
	r.mirrored()
	r.wire.hold.Store(true)
	r.publish(3, "global")
	sent := 0
	flip := func(ctx context.Context, l regions.TailList) error {
		if sent++; r.euPolicy.out(r.euPolicy.now.Load()) == 0 {
			t.Error("the list goes out under no pass")
		}
		return context.DeadlineExceeded // it did not get on its way
	}
	for range 2 { // the first look only notes what there is
		r.source.TellTail(t.Context(), "us-east", 4096, flip)
	}
	r.euPolicy.now.Store(&edition{serial: 2, revision: "2-b", forbidden: "global"})
	lists := r.tell(4096)
	if sent != 1 || len(lists) != 1 || len(ids(lists[0].Entries)) != 0 {
		t.Fatalf("%d sent, then %+v", sent, lists)
	}
	if lists := r.tell(4096); len(lists) != 0 {
		t.Fatalf("told twice: %+v", lists)
	}
	r.wire.mu.Lock()
	r.wire.since = r.clock.Now().Add(time.Second)
	r.wire.mu.Unlock()
	if lists := r.tell(4096); len(lists) != 1 {
		t.Fatalf("after the link was down: %+v", lists)
	}
}

// Only the copy's home is believed, in the copy's epoch.
func TestR14f_TailIsTakenFromTheHomeOnly(t *testing.T) {
	r := newRig(t)
	r.publish(1, "global")
	r.mirrored()
	list := regions.TailList{Log: orders, Incarnation: "inc-1", Head: 9, Entries: []regions.TailEntry{{From: 2, Sequence: 2}}}
	_, list.Epoch, _ = r.fed.Home(orders)
	r.target.HearTail("ap-south", list)
	other := list
	other.Epoch.Counter++
	r.target.HearTail("eu-west", other)
	other = list
	other.Incarnation = "inc-2"
	r.target.HearTail("eu-west", other)
	if known := r.tails.Beyond(orders, 0); len(known.Entries) != 0 {
		t.Fatalf("%+v", known)
	}
	r.target.HearTail("eu-west", list)
	if known := r.tails.Beyond(orders, 0); len(known.Entries) != 1 {
		t.Fatalf("%+v", known)
	}
}
