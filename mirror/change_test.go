package mirror_test

import (
	"strings"
	"testing"

	"domicile/mirror"
	"domicile/regions"
	"domicile/regions/syncset"
)

// without is the rig's manifest with something else in the place of old.
func (r *rig) without(old, next string) *regions.Federation {
	r.t.Helper()
	if !strings.Contains(manifest, old) {
		r.t.Fatalf("the manifest has no %q", old)
	}
	f, err := regions.ParseManifest("test", []byte(strings.Replace(manifest, old, next, 1)))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// A target that leaves the manifest is sent nothing more and has no figures; one that
// comes back goes on where its copy ends.
func TestB12_TargetsFollowTheManifest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.fed.Snapshot()
	r.publish(5, "global")
	r.mirrored()
	r.fed.Replace(r.without("mirror: [all]", "mirror: []"))
	r.source.LogsChanged()
	r.target.ManifestChanged(t.Context())
	if _, ok := r.source.Lag(orders, "us-east"); ok || len(r.source.Lags()) != 0 || len(r.target.Lags()) != 0 {
		t.Fatal("figures of a copy that nobody asks for")
	}
	if u := r.source.Uncopied(orders, 5); len(u) != 0 {
		t.Fatalf("uncopied %+v: there is no target", u)
	}
	r.publish(5, "global")
	if got := r.source.Running(); got != 0 || r.copy.Cursor().Sequence != 5 {
		t.Fatalf("%d flows run, the copy has %d", got, r.copy.Cursor().Sequence)
	}
	r.fed.Replace(before)
	r.target.ManifestChanged(t.Context())
	r.source.LogsChanged()
	r.mirrored()
	r.dense()
	r.target.Watermarks("eu-west", r.source.Marks("us-east", false))
	if l := r.atTarget(); l.State != regions.LagCaughtUp {
		t.Errorf("after the return the target is %s: %s", l.State, l.Cause)
	}
}

// B12: what is not copied is counted per target, exactly where it can be, and unknown
// where the target was never heard.
func TestB12_UncopiedIsCountedOrUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.wire.up = false })
	r.publish(3, "global")
	if u := r.source.Uncopied(orders, 3); len(u) != 1 || u[0].Known || u[0].Target != "us-east" {
		t.Fatalf("before it was heard: %+v", u)
	}
	if w := r.source.Waits(orders); !strings.Contains(w, "us-east was not heard") {
		t.Errorf("waits: %q", w)
	}
	r.heal()
	r.mirrored()
	if u := r.source.Uncopied(orders, 3); len(u) != 0 {
		t.Fatalf("all is there, and yet %+v", u)
	}
	r.cut()
	r.publish(500, "global")
	r.publish(7, "eu")
	r.eventually("the backlog is counted", func() bool { o := r.origin(); return o.RecordsKnown && o.Records == 500 })
	u := r.source.Uncopied(orders, 510)
	if len(u) != 1 || !u[0].Known || !u[0].Exact || u[0].Records != 500 {
		t.Fatalf("uncopied %+v, want exactly 500: seven may never go there", u)
	}
	if u := r.source.Uncopied(orders, 13); len(u) != 1 || u[0].Records != 10 || u[0].Exact {
		t.Fatalf("up to 13: %+v", u)
	}
	if w := r.source.Waits(orders); w != "us-east has 3 of 510" {
		t.Errorf("waits: %q", w)
	}
}

// B12: a topic leaves manifest and catalog in one step, while its flows still run. What
// the new policy does not know it does not withhold: no gap, and the count stands.
func TestB12_APolicyWithoutTheTopicWithholdsNothing(t *testing.T) {
	t.Parallel()
	gone := &edition{serial: 2, revision: "2-b", unknown: true}
	for name, side := range map[string]func(*rig) *book{
		"at the home": func(r *rig) *book { return r.euPolicy }, "at the copy": func(r *rig) *book { return r.usPolicy },
	} {
		r := newRig(t)
		r.publish(3, "global")
		r.mirrored()
		side(r).now.Store(gone)
		r.source.PolicyChanged()
		r.publish(5, "global")
		r.eventually(name+": the flow waits", func() bool {
			s := r.origin().State
			return s == regions.LagStalled || s == regions.LagPolicySkew || r.copy.Cursor().Sequence > 3
		})
		if c := r.copy.Cursor(); c.Sequence != 3 || c.Ledger.Withheld != 0 {
			t.Errorf("%s: the copy ends at %+v", name, c)
		}
		if u := r.source.UncopiedFlows(orders, 8); len(u) != 1 || u[0] != (mirror.Uncopied{Target: "us-east", Known: true, Records: 5, Exact: u[0].Exact}) {
			t.Errorf("%s: uncopied %+v, want 5", name, u)
		}
	}
}

// TestR14j_ACopyIsWholeByItsHomesWord: that a region is in a log's sync set does not say that
// its copy has all that was acknowledged; that its home said how far the set has it, since
// this copy was opened, and that the copy is there, does.
func TestR14j_ACopyIsWholeByItsHomesWord(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.common = &syncset.Mark{} })
	whole := func(want bool, when string) {
		t.Helper()
		if got := r.target.Whole(orders); got != want {
			t.Errorf("%s: whole is %t", when, got)
		}
	}
	r.publish(5, "global")
	r.eventually("the copy has everything", func() bool { return r.copy.Cursor().Sequence == 5 })
	whole(false, "before its home said anything")
	r.round()
	whole(true, "its home has said so")
	r.cut()
	r.publish(5, "global") // nobody can have acknowledged them
	whole(true, "cut off from its home")
	r.startTarget()
	whole(false, "after a start, cut off")
	r.heal()
	r.mirrored()
	r.round()
	whole(true, "when it has caught up")
	r.cut()
	r.copy = newMemoryLog(orders, "", r.clock)
	r.target.Forget(t.Context(), orders)
	r.heal()
	r.eventually("the copy is made anew", func() bool { return r.copy.Cursor().Sequence == 10 })
	whole(false, "when it was made anew, and its home has not spoken since")
	r.publish(1, "global")
	r.eventually("the copy has everything", func() bool { return r.copy.Cursor().Sequence == 11 })
	r.round()
	whole(true, "when it was made anew, and has come to there")
	r.publish(1, "eu")
	r.eventually("one is kept from it", func() bool { return r.copy.Cursor().Sequence == 12 })
	whole(false, "when one was kept from it")
}
