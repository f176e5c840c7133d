package drill_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway/drill"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
	"domicile/regions/link"
)

const manifest = `version: 1
federation: shop
regions: {eu-west: {link: "a:1"}, us-east: {link: "b:1"}, ap-south: {link: "c:1"}}
drills: {approvals: %d, max_for: 15m, windows: [Mon-Fri 09:00-16:00]}
`

// gates hold what they are told and remember it.
type gates struct {
	next uint64
	held map[uint64]link.Cut
}

func (g *gates) Hold(c link.Cut, _ time.Duration) (uint64, error) {
	g.next++
	c.ID = g.next
	g.held[c.ID] = c
	return c.ID, nil
}
func (g *gates) RenewFor(id uint64, _ time.Duration) bool { _, ok := g.held[id]; return ok }
func (g *gates) Heal(id uint64) bool {
	_, ok := g.held[id]
	delete(g.held, id)
	return ok
}
func (g *gates) Active() (out []link.Cut) {
	for _, c := range g.held {
		out = append(out, c)
	}
	return out
}

// filter holds what it is told unless it refuses, and remembers it.
type filter struct {
	refuses error
	cuts    []link.Cut
	ended   bool // in the kernel
}

func (f *filter) Check([]link.Cut) error { return f.refuses }
func (f *filter) Hold(cuts []link.Cut, _ time.Duration) error {
	if f.refuses == nil {
		f.cuts = cuts
	}
	return f.refuses
}
func (f *filter) RenewFor(time.Duration) bool { return !f.ended && len(f.cuts) > 0 }
func (f *filter) Heal()                       { f.cuts = nil }
func (f *filter) Active() []link.Cut          { return f.cuts }

type rig struct {
	*drill.Desk
	gates  *gates
	filter *filter
	clock  *regions.ManualClock
	ca     *identity.Authority
	acts   []string
}

// newRig is the desk of a region on a Monday noon.
func newRig(t *testing.T, self string, approvals int) *rig {
	f, err := regions.ParseManifest("federation.yaml", fmt.Appendf(nil, manifest, approvals))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{filter: &filter{}, gates: &gates{held: map[uint64]link.Cut{}}, clock: regions.NewManualClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
	if r.ca, err = identity.NewCA("shop", r.clock.Now(), 240*time.Hour); err != nil {
		t.Fatal(err)
	}
	cert, key := r.issue(t, identity.Region, self)
	trust, err := identity.New(cert, key, r.ca.CertPEM(), r.clock)
	if err != nil {
		t.Fatal(err)
	}
	r.Desk = drill.New(drill.Config{Self: self, Federation: f, Gates: r.gates, Filter: r.filter,
		Verifier: &approval.Verifier{Federation: "shop", Trust: trust, Clock: r.clock, Rules: approval.Rules{{Match: "*", Roles: []string{approval.Operator}}}},
		Audit:    func(_ context.Context, id, reason string) error { r.acts = append(r.acts, id+" "+reason); return nil },
		Proven: func(_ context.Context, id, chain string, _ []drill.Measured) error {
			r.acts = append(r.acts, id+" passed")
			return nil
		},
		Files: func(_ context.Context, texts []string, _ time.Time) (drill.Found, error) {
			return drill.Found{Marks: make([]uint64, len(texts))}, nil
		},
		Clock: r.clock, Boot: regions.SystemBootClock, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(r.Release)
	return r
}

func (r *rig) issue(t *testing.T, kind identity.Kind, name string) (cert, key []byte) {
	cert, key, err := r.ca.Issue(kind, name, r.clock.Now(), 120*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (r *rig) sign(t *testing.T, name, consent string) string {
	cert, key := r.issue(t, identity.Operator, name)
	signed, err := approval.Sign(approval.Statement{Federation: "shop", Hash: consent, Role: approval.Operator, Expires: r.clock.Now().Add(time.Hour)}, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func isolate() drill.Spec {
	return drill.Spec{Isolate: "eu-west", Peers: []string{"us-east", "ap-south"}, Planes: link.Planes(), Direction: drill.Both, Fault: drill.FaultCut,
		Lease: time.Hour / 20, For: 10 * time.Minute}
}

// TestR14i_LimitsAreTheNodes: what the manifest does not permit is refused by each node, by
// its own clock, whatever the controller thinks.
func TestR14i_LimitsAreTheNodes(t *testing.T) {
	r := newRig(t, "eu-west", 1)
	s := isolate()
	consent := s.Consent("shop", "d-1")
	arm := func(s drill.Spec, approvals ...string) error {
		_, err := r.Arm(t.Context(), "ada", "d-1", s, "test", approvals, false)
		return err
	}
	late := func() error {
		const evening = 3*time.Hour + 55*time.Minute
		r.clock.Advance(evening)
		defer r.clock.Advance(-evening)
		return arm(s, r.sign(t, "ben", consent))
	}
	longer := s
	longer.For += time.Second
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"nobody approves":         {arm(s), "0 of 1 people have approved " + consent},
		"one's own":               {arm(s, r.sign(t, "ada", consent)), "cannot approve it too"},
		"of another drill":        {arm(longer, r.sign(t, "ben", consent)), "consents to something else"},
		"longer than the windows": {late(), "within Mon-Fri 09:00-16:00"},
	} {
		if api.CodeOf(c.err) != api.PermissionDenied || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if len(r.acts) > 0 || len(r.gates.held) > 0 {
		t.Errorf("something was done: %v %v", r.acts, r.gates.held)
	}
	if err := arm(s, r.sign(t, "ben", consent)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.acts, []string{"d-1 test"}) || len(r.gates.held) > 0 {
		t.Errorf("armed: %v %v", r.acts, r.gates.held)
	}
	if _, err := r.Cut("eve", "d-1"); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("somebody else cuts: %v", err)
	}
	if st, err := r.Cut("ada", "d-1"); err != nil || len(st.Cuts) != 2 || r.Active() != "d-1" {
		t.Fatalf("%+v %v", st, err)
	}
	// Whoever approved of one drill has not approved of the next.
	if _, err := r.Arm(t.Context(), "ada", "d-9", s, "test", []string{r.sign(t, "ben", consent)}, false); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("a consent to another id: %v", err)
	}
	// One gate ended by itself: the drill is over here, whole.
	for id := range r.gates.held {
		r.gates.Heal(id)
		break
	}
	if _, err := r.Renew("ada", "d-1"); api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), drill.Lost) || len(r.gates.held) > 0 || r.Active() != "" {
		t.Errorf("renewed: %v %v", err, r.gates.held)
	}
	if err := arm(s, r.sign(t, "ben", consent)); api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), "was held here already") {
		t.Errorf("the same drill again: %v", err)
	}
}

// TestR14i_WhatWasArmedInTimeIsNotCutLater: the window and the approvals are asked again
// before the cut, and a node is not kept for ever.
func TestR14i_WhatWasArmedInTimeIsNotCutLater(t *testing.T) {
	r := newRig(t, "eu-west", 1)
	boot := time.Hour
	r.Boot = func() time.Duration { return boot }
	s := isolate()
	arm := func(id string) {
		if _, err := r.Arm(t.Context(), "ada", id, s, "test", []string{r.sign(t, "ben", s.Consent("shop", id))}, false); err != nil {
			t.Fatal(err)
		}
	}
	arm("d-3")
	r.clock.Advance(3*time.Hour + 55*time.Minute)
	if _, err := r.Cut("ada", "d-3"); api.CodeOf(err) != api.PermissionDenied || len(r.gates.held) > 0 || r.State().ID != "" {
		t.Errorf("cut out of its window: %v %v", err, r.gates.held)
	}
	r.clock.Advance(-3*time.Hour - 55*time.Minute)
	arm("d-4")
	for range 3 {
		if _, err := r.Renew("ada", "d-4"); err != nil {
			t.Fatal(err)
		}
		boot += 2 * time.Minute
	}
	if left := r.State().Left; left != 0 {
		t.Errorf("kept for another %s after six minutes", left)
	}
}

// TestR14i_EachSideHoldsItsHalf: direction is seen from the isolated region.
func TestR14i_EachSideHoldsItsHalf(t *testing.T) {
	for self, want := range map[string][]string{
		"eu-west":  {"ap-south: black-hole data out of drill d-2", "us-east: black-hole data out of drill d-2"},
		"us-east":  {"eu-west: black-hole data in of drill d-2"},
		"ap-south": {"eu-west: black-hole data in of drill d-2"},
	} {
		r := newRig(t, self, 0)
		s := isolate()
		s.Planes, s.Direction, s.Fault = []link.Plane{link.Data}, "out", drill.FaultBlackhole
		if _, err := r.Arm(t.Context(), "ada", "d-2", s, "test", nil, false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Cut("ada", "d-2"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range r.gates.held {
			got = append(got, c.Peer+": "+c.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s holds %v", self, got)
		}
	}
}

// TestR14i_OnlyADrillsMarksAreLookedFor: a search can't be used to ask what people stored.
func TestR14i_OnlyADrillsMarksAreLookedFor(t *testing.T) {
	r := newRig(t, "eu-west", 0)
	const mark = "drill-d6eeinz3my4it6yk-0b"
	if found, err := r.Search(t.Context(), "ada", []string{mark}, r.clock.Now()); err != nil || len(found.Marks) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	for _, text := range []string{"", "alice@example.com", "drill-alice-0b", mark + "1", "drill-d6eeinz3my4it6yk", "drill-d6eeinz3my4it6y1-0b", "d6eeinz3my4it6yk-0b"} {
		if _, err := r.Search(t.Context(), "ada", []string{mark, text}, r.clock.Now()); api.CodeOf(err) != api.BadRequest || strings.Contains(err.Error(), "alice") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := r.Search(t.Context(), "ada", nil, r.clock.Now()); api.CodeOf(err) != api.BadRequest {
		t.Errorf("nothing to look for: %v", err)
	}
}

// TestR14i_EvidenceIsOfADrillThatWasHeldHere: only what was held here last, and healed by
// word, can have passed here.
func TestR14i_EvidenceIsOfADrillThatWasHeldHere(t *testing.T) {
	r := newRig(t, "eu-west", 0)
	chain := strings.Repeat("0", 64)
	if _, err := r.Prove(t.Context(), "ada", "d-1", chain, nil); api.CodeOf(err) != api.Conflict || r.State().Proof != (drill.Proof{}) {
		t.Errorf("nothing was held: %v", err)
	}
	if _, err := r.Arm(t.Context(), "ada", "d-1", isolate(), "test", nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Prove(t.Context(), "ada", "d-1", chain, nil); api.CodeOf(err) != api.Conflict {
		t.Errorf("it is held still: %v", err)
	}
	if _, err := r.Heal("d-1"); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Minute)
	if _, err := r.Prove(t.Context(), "ada", "d-1", chain, []drill.Measured{{Topic: "nosuch"}}); api.CodeOf(err) != api.BadRequest {
		t.Errorf("of a topic that is not there: %v", err)
	}
	s, err := r.Prove(t.Context(), "ada", "d-1", chain, nil)
	if want := (drill.Proof{ID: "d-1", By: "ada", Chain: chain, At: r.clock.Now()}); err != nil || s.Proof != want || r.acts[len(r.acts)-1] != "d-1 passed" {
		t.Errorf("%+v %v %v", s.Proof, r.acts, err)
	}
}

// TestR14i_APacketFilterCutsAllOrIsRefused: what a packet filter can't do is refused before
// anything is armed, it is part of what people consent to, and what ended in the kernel ends
// the drill.
func TestR14i_APacketFilterCutsAllOrIsRefused(t *testing.T) {
	r := newRig(t, "eu-west", 0)
	s := isolate()
	consent := s.Consent("shop", "d-1")
	s.Gate = drill.GateFilter
	if s.Consent("shop", "d-1") == consent {
		t.Error("a consent to one gate is one to the other")
	}
	arm := func(id string, s drill.Spec) error {
		_, err := r.Arm(t.Context(), "ada", id, s, "test", nil, false)
		return err
	}
	some := s
	some.Planes = []link.Plane{link.Data, link.Control}
	if err := arm("d-1", some); api.CodeOf(err) != api.BadRequest || !strings.Contains(err.Error(), "planes") {
		t.Errorf("some lanes: %v", err)
	}
	r.filter.refuses = &api.Error{Code: api.BadRequest, Op: "cut with nftables", Hint: "no root"}
	if err := arm("d-1", s); api.CodeOf(err) != api.BadRequest || r.State().ID != "" || len(r.acts) > 0 {
		t.Errorf("without root: %v %+v", err, r.State())
	}
	r.filter.refuses = nil
	for id, end := range map[string]func(id string) error{
		"healed": func(id string) error { _, err := r.Heal(id); return err },
		"lost": func(id string) error {
			r.filter.ended = true
			_, err := r.Renew("ada", id)
			if api.CodeOf(err) == api.Conflict && strings.Contains(err.Error(), drill.Lost) {
				err = nil
			}
			return err
		},
	} {
		r.filter.ended = false
		if err := arm(id, s); err != nil {
			t.Fatal(err)
		}
		st, err := r.Cut("ada", id)
		if err != nil || len(st.Filtered) != 2 || len(st.Cuts) > 0 || r.Active() != id {
			t.Fatalf("%+v %v", st, err)
		}
		if _, err := r.Renew("ada", id); err != nil {
			t.Error(err)
		}
		if err := end(id); err != nil || len(r.filter.cuts) > 0 || r.Active() != "" {
			t.Errorf("%s: %v %v", id, err, r.filter.cuts)
		}
	}
}
