package api_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
)

func TestPositionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z]{1,8}(\.[a-z]{1,5})?`)
		cursors := map[api.LogID]api.Cursor{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			c := api.Cursor{
				Log:         api.LogID{Tenant: api.DefaultTenant, Topic: name.Draw(t, "topic"), Slot: name.Draw(t, "slot")},
				Incarnation: rapid.StringMatching(`[0-9a-f]{0,16}`).Draw(t, "incarnation"),
				Epoch:       api.Epoch{Term: rapid.Uint32().Draw(t, "term"), Counter: rapid.Uint64().Draw(t, "counter"), Issuer: "eu-west"},
				Sequence:    rapid.Uint64().Draw(t, "seq"),
			}
			cursors[c.Log] = c
		}
		var list []api.Cursor
		for _, c := range cursors {
			list = append(list, c)
		}
		got, err := api.DecodePosition(api.EncodePosition(list))
		if err != nil || len(got) != len(list) {
			t.Fatalf("%v, %d of %d cursors", err, len(got), len(list))
		}
		for _, c := range got {
			if cursors[c.Log] != c {
				t.Fatalf("got %+v, want %+v", c, cursors[c.Log])
			}
		}
	})
}

func FuzzDecodePosition(f *testing.F) {
	f.Add(string(api.EncodePosition([]api.Cursor{{Log: api.LogID{Tenant: "default", Topic: "orders", Slot: "eu-west"}, Incarnation: "ab", Epoch: api.StaticEpoch("eu-west"), Sequence: 7}})))
	f.Add("p1.")
	f.Add("p1.AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		cursors, err := api.DecodePosition(api.Position(s))
		if err != nil {
			if api.CodeOf(err) != api.PositionInvalid {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if again, err := api.DecodePosition(api.EncodePosition(cursors)); err != nil || len(again) != len(cursors) {
			t.Fatalf("%q does not survive a second round: %v", s, err)
		}
	})
}

func TestTagStringIsCanonical(t *testing.T) {
	a := api.TagString([]api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "order"}})
	b := api.TagString([]api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "eu"}})
	if a != b || a != "class=order,residency=eu" {
		t.Errorf("%q, %q", a, b)
	}
	tags, err := api.ParseTagString(a)
	if err != nil || api.TagString(tags) != a {
		t.Errorf("%v %v", tags, err)
	}
}

// RA5: whatever is not one of our own refusals says that the outcome is unknown.
func TestRA5_ForeignErrorsAreUnknown(t *testing.T) {
	if got := api.CodeOf(errors.New("connection reset")); got != api.OutcomeUnknown {
		t.Errorf("got %s", got)
	}
	if got := api.CodeOf(fmt.Errorf("publish: %w", &api.Error{Code: api.StorageFull})); got != api.StorageFull {
		t.Errorf("got %s", got)
	}
	if api.OutcomeUnknown.Stored() != api.StoredUnknown || !api.OutcomeUnknown.Retryable() {
		t.Error("an unknown outcome is retried with the same id")
	}
	if newer := api.Code("FROM_A_NEWER_VERSION"); newer.Stored() != api.StoredUnknown {
		t.Error("an unknown code promises that nothing was stored")
	}
}

func TestEpochText(t *testing.T) {
	e := api.Epoch{Term: 2, Counter: 41, Issuer: "eu-west.a"}
	got, err := api.ParseEpoch(e.String())
	if err != nil || got != e {
		t.Errorf("%v %v", got, err)
	}
	for _, s := range []string{"", "1", "1.2", "1.2.", "x.2.q", "1.-2.q"} {
		if _, err := api.ParseEpoch(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}
