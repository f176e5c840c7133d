package policy_test

import (
	"context"
	"testing"

	"domicile/api"
	"domicile/policy"
)

// TestR14b_LapsedPolicyAnswersTheSameWithinABorder looks at every question: what would
// cross a border waits, and nothing else is answered in another way.
func TestR14b_LapsedPolicyAnswersTheSameWithinABorder(t *testing.T) {
	f := federation(t)
	before := build(t, f, 3, "three", allowAll(f))
	after := before.Lapsed(f, "yesterday")
	if after.Serial != 3 || after.Step != 1 || after.Revision != "3.1-three" || after.Digest != before.Digest {
		t.Errorf("the lapsed generation is %s, step %d", after.Revision, after.Step)
	}
	same := func(a, b string) bool {
		ra, _ := f.Region(a)
		rb, _ := f.Region(b)
		return a == b && a != policy.None || ra.Boundary != "" && ra.Boundary == rb.Boundary
	}
	counts := map[string]int{}
	for q, d := range before.All() {
		now, err := after.Ask(q)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allow {
			if now.Allow || now.Code != d.Code {
				t.Errorf("%s: refused before with %s, now %v %s", q, d.Code, now.Allow, now.Code)
			}
			continue
		}
		waits := !now.Allow && now.Code == api.PolicyUnavailable && api.CodeOf(now.Err()) == api.PolicyUnavailable
		if now.Allow == waits {
			t.Fatalf("%s: %+v", q, now)
		}
		switch q.Point {
		case policy.MirrorEgress, policy.MirrorIngress:
			if now.Allow != same(q.Origin, q.Target) {
				t.Errorf("%s: allowed %v", q, now.Allow)
			}
		case policy.Consume:
			if now.Allow != same(q.Place, q.Target) {
				t.Errorf("%s: allowed %v", q, now.Allow)
			}
		case policy.Admit:
			for _, r := range now.Regions {
				if !same(q.Origin, r) {
					t.Errorf("%s: may still rest in %s", q, r)
				}
			}
		}
		counts[q.Point.String()+map[bool]string{true: " goes on", false: " waits"}[now.Allow]]++
	}
	for _, want := range []string{"admit goes on", "admit waits", "transit waits", "mirror_egress waits", "mirror_ingress waits", "consume goes on", "consume waits"} {
		if counts[want] == 0 {
			t.Errorf("no question %s: %v", want, counts)
		}
	}
}

// TestR14b_WidensNamesExactlyWhatIsNew flips single answers and looks for them.
func TestR14b_WidensNamesExactlyWhatIsNew(t *testing.T) {
	f := federation(t)
	all := build(t, f, 1, "all", allowAll(f))
	none := build(t, f, 2, "none", denyAll)
	if got := policy.Widens(all, none); len(got) != 0 {
		t.Errorf("a policy that allows nothing widens %v", got)
	}
	if got := policy.Widens(all, all.Lapsed(f, "x")); len(got) != 0 {
		t.Errorf("a lapsed policy widens %v", got)
	}
	allowed := 0
	var one policy.Question
	for q, d := range all.All() {
		if d.Allow {
			allowed++
			if q.Point == policy.MirrorIngress {
				one = q
			}
		}
	}
	if got := policy.Widens(none, all); len(got) != allowed {
		t.Errorf("%d questions are new, %d are allowed", len(got), allowed)
	}
	flipped := build(t, f, 3, "but one", func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
		if q.String() == one.String() {
			return denyAll(ctx, q)
		}
		return allowAll(f)(ctx, q)
	})
	if got := policy.Widens(flipped, all); len(got) != 1 || got[0].String() != one.String() {
		t.Errorf("new is %v, want %s", got, one)
	}
}

// TestR14b_FenceRefusesOlderJudgements: of serials and of steps, who is behind whom.
func TestR14b_FenceRefusesOlderJudgements(t *testing.T) {
	f := federation(t)
	plain := build(t, f, 5, "five", denyAll)
	g := gate(t, f, "eu-west", policy.Hooks{}, plain)
	p := g.Enter()
	if p.TooOld(1) || !p.Behind(6, "6-x") || p.Behind(5, "5-five") || !p.Behind(5, "5.1-five") || p.Behind(4, "4.9-x") {
		t.Error("a directory's policy takes all, and is behind newer ones only")
	}
	p.Leave()
	fenced := build(t, f, 6, "six", denyAll).Fenced()
	wantCode(t, g.Activate(t.Context(), fenced), "")
	lapsed := fenced.Lapsed(f, "x")
	for range 2 {
		p = g.Enter()
		if !p.TooOld(5) || p.TooOld(6) || p.TooOld(7) {
			t.Error("a fenced policy takes its own serial and higher ones")
		}
		p.Leave()
		wantCode(t, g.Activate(t.Context(), lapsed), "")
	}
	if p = g.Enter(); p.Behind(6, "6-six") || p.Behind(6, "6.1-six") || !p.Behind(6, "6.2-six") {
		t.Error("steps do not order")
	}
	p.Leave()
	wantCode(t, g.Activate(t.Context(), fenced), api.ConfigInvalid)
}
