package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

const manifest = `
version: 1
federation: shop
regions: {eu-west: {link: "a:1"}, eu-central: {link: "b:1"}, us-east: {link: "c:1"}}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  news:
    writes: home
    home: eu-west
    mirror: [all]
    failover: {mode: manual, targets: [us-east, eu-central], rpo: 5s, rto: 1m, approvals: 1}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
  fixed:
    writes: local
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`

var news = api.LogID{Tenant: api.DefaultTenant, Topic: "news", Slot: api.HomeSlot}

// authority is the real state machine, asked in this process.
type authority struct {
	mu    sync.Mutex
	state placement.State
	index uint64
	names map[api.LogID]string
}

func (a *authority) Submit(_ context.Context, c placement.Command) (placement.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index++
	return a.state.Apply(a.index, c)
}

func (a *authority) Log(id api.LogID) (placement.Log, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.Log(a.names[id])
}

func (a *authority) Placements() (map[api.LogID]placement.Log, <-chan struct{}) {
	out := map[api.LogID]placement.Log{}
	for id := range a.names {
		if l, ok := a.Log(id); ok {
			out[id] = l
		}
	}
	return out, make(chan struct{})
}

// office is a node with operators, and the authority that it asks.
type office struct {
	*Service
	t     *testing.T
	ca    *identity.Authority
	clock *regions.ManualClock
	place *authority
	acts  []string
	facts func(*Facts)
}

func newOffice(t *testing.T) *office {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, clock: regions.NewManualClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), place: &authority{names: map[api.LogID]string{news: "inc-news"}}, facts: func(*Facts) {}}
	if o.ca, err = identity.NewCA("shop", o.clock.Now(), 240*time.Hour); err != nil {
		t.Fatal(err)
	}
	cert, key, err := o.ca.Issue(identity.Region, "us-east", o.clock.Now(), 120*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.New(cert, key, o.ca.CertPEM(), o.clock)
	if err != nil {
		t.Fatal(err)
	}
	o.Service = New(Config{
		Self: "us-east", Federation: f, Placements: o.place, Facts: o.known, Clock: o.clock, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Audit: func(_ context.Context, a Act) (func(error), error) {
			o.acts = append(o.acts, a.Name+" begun")
			return func(err error) { o.acts = append(o.acts, a.Name+" "+string(api.CodeOf(err))) }, nil
		},
		Verifier: &approval.Verifier{Federation: "shop", Trust: trust, Clock: o.clock, Rules: approval.Rules{
			{Match: "ada", Roles: []string{approval.Operator, approval.Incident}}, {Match: "eve", Roles: []string{approval.Operator, approval.Incident}},
			{Match: "max", Roles: []string{approval.Operator}},
		}},
	})
	o.do(placement.Command{Verb: placement.Found, ID: "found", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}})
	o.do(placement.Command{Verb: placement.Declare, ID: "declare", Log: "inc-news", Expect: api.StaticEpoch("eu-west"), Actor: "a", Reason: "r", Region: "eu-west", Home: "eu-west",
		Terms: &placement.Terms{Allowed: []string{"eu-central", "eu-west", "us-east"}, Targets: []string{"eu-central", "eu-west", "us-east"}, Mode: placement.Manual, Isolation: placement.Accept,
			RPO: 5 * time.Second, Approvals: 1, Digest: f.TopicDigest("news")}})
	return o
}

func (o *office) do(c placement.Command) {
	o.t.Helper()
	if _, err := o.place.Submit(context.Background(), c); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) known(_ context.Context, l placement.Log, _ Request) (Facts, error) {
	d := o.Federation.TopicDigest("news")
	f := Facts{Reachable: true, Up: func(string) bool { return true }, Digests: map[string]string{"eu-west": d, "us-east": d, "eu-central": d}, Copies: []Copy{
		{Region: "eu-west", Home: true, Known: true, Sequence: 9}, {Region: "us-east", Known: true, Sequence: 9, LagKnown: true, PendingKnown: true, Lag: time.Second},
	}}
	o.facts(&f)
	return f, nil
}

func (o *office) approval(name, plan, role string) string {
	o.t.Helper()
	cert, key, err := o.ca.Issue(identity.Operator, name, o.clock.Now(), 120*time.Hour)
	if err != nil {
		o.t.Fatal(err)
	}
	s, err := approval.Sign(approval.Statement{Federation: "shop", Hash: plan, Role: role, Expires: o.clock.Now().Add(time.Hour)}, cert, key)
	if err != nil {
		o.t.Fatal(err)
	}
	text, err := s.Encode()
	if err != nil {
		o.t.Fatal(err)
	}
	return text
}

func planned() Request { return Request{Log: news, Kind: placement.Planned, Target: "us-east"} }

func (o *office) plan(r Request) string {
	o.t.Helper()
	p, err := o.Plan(context.Background(), r)
	if err == nil {
		err = p.Refusal()
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return p.ID
}

func wants(t *testing.T, err error, code api.Code, says string) {
	t.Helper()
	if api.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %s with %q", err, code, says)
	}
}

// What is begun is exactly what was planned, by someone who may, with the consent that the
// topic asks for; and nothing before that.
func TestR14f_WhatIsBegunIsWhatWasPlanned(t *testing.T) {
	o, ctx := newOffice(t), context.Background()
	id := o.plan(planned())
	consent := o.approval("eve", id, approval.Operator)
	for name, c := range map[string]struct {
		who, plan, reason string
		approvals         []string
		request           Request
		code              api.Code
		says              string
	}{
		"no reason":            {"ada", id, "", []string{consent}, planned(), api.BadRequest, "--reason"},
		"nobody":               {"carl", id, "r", []string{consent}, planned(), api.PermissionDenied, "takes the role operator or incident"},
		"no plan":              {"ada", "", "r", []string{consent}, planned(), api.BadRequest, "failover plan"},
		"another plan":         {"ada", strings.Repeat("0", len(id)-4) + "beef", "r", []string{consent}, planned(), api.BadRequest, "failover plan"},
		"another hash":         {"ada", id[:len(id)-1] + "x", "r", []string{consent}, planned(), api.Conflict, "has changed"},
		"another target":       {"ada", id, "r", []string{consent}, Request{Log: news, Kind: placement.Planned, Target: "eu-central"}, api.PlacementRefused, "S4"},
		"nobody consents":      {"ada", id, "r", nil, planned(), api.PlacementRefused, "S12"},
		"one's own consent":    {"eve", id, "r", []string{consent}, planned(), api.PlacementRefused, "S12"},
		"consent to another":   {"ada", id, "r", []string{o.approval("eve", "20261130T121500Z-00", approval.Operator)}, planned(), api.PlacementRefused, "consents to something else"},
		"consent without role": {"ada", id, "r", []string{o.approval("max", id, approval.Incident)}, planned(), api.PlacementRefused, "takes the role incident"},
		"a topic that stays":   {"ada", id, "r", nil, Request{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "fixed", Slot: "eu-west"}, Kind: placement.Planned, Target: "us-east"}, api.PlacementRefused, "S10"},
	} {
		_, err := o.Start(ctx, c.who, c.request, c.plan, c.reason, false, c.approvals)
		if err == nil {
			t.Fatalf("%s: it was begun", name)
		}
		wants(t, err, c.code, c.says)
	}
	if l, _ := o.place.Log(news); l.Op != nil || len(o.acts) != 0 {
		t.Fatalf("something was done: %+v %v", l.Op, o.acts)
	}
	if _, err := o.Start(ctx, "ada", planned(), id, "r", true, []string{consent}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if _, err := o.Start(ctx, "ada", planned(), id, "r", false, []string{consent}); err != nil {
		t.Fatal(err)
	}
	l, _ := o.place.Log(news)
	if l.Op == nil || l.Op.Plan != id || l.Op.Actor != "ada" || len(l.Op.Approvals) != 1 || l.Op.Approvals[0].Actor != "eve" {
		t.Fatalf("begun: %+v", l.Op)
	}
	if err := o.Approved(news, l); err != nil {
		t.Errorf("home and target: %v", err)
	}
	if _, err := o.Start(ctx, "ada", planned(), id, "r", false, []string{consent}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	wantActs := "move begun|move |approve begun|approve "
	if got := strings.Join(o.acts, "|"); got != wantActs {
		t.Errorf("the region's audit: %q", got)
	}
}

// TestS13_SecondOperatorGetsAConflict: two people, one log.
func TestS13_SecondOperatorGetsAConflict(t *testing.T) {
	o, ctx := newOffice(t), context.Background()
	a := o.plan(planned())
	if _, err := o.Start(ctx, "ada", planned(), a, "first", false, []string{o.approval("max", a, approval.Operator)}); err != nil {
		t.Fatal(err)
	}
	p, err := o.Plan(ctx, planned())
	if err != nil || p.ID != "" {
		t.Fatalf("a plan beside a move: %q %v", p.ID, err)
	}
	wants(t, p.Refusal(), api.PlacementRefused, "S6")
	// A command that was on its way meets the changed state at the authority as well.
	l, _ := o.place.Log(news)
	c := o.command(placement.Begin, "move/other", &l, "eve", "second")
	c.Plan, c.Move = "other-plan", &placement.Move{Kind: placement.Planned, Target: "us-east", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}
	_, err = o.place.Submit(ctx, c)
	wants(t, err, api.PlacementRefused, "S6")
}

// A plan ends, and dies with the epoch.
func TestR14f_APlanEnds(t *testing.T) {
	o, ctx := newOffice(t), context.Background()
	id := o.plan(planned())
	consent := []string{o.approval("eve", id, approval.Operator)}
	o.clock.Advance(Life)
	_, err := o.Start(ctx, "ada", planned(), id, "r", false, consent)
	wants(t, err, api.Conflict, "has ended")

	id = o.plan(planned())
	consent = []string{o.approval("eve", id, approval.Operator)}
	if _, err := o.Start(ctx, "ada", planned(), id, "r", false, consent); err != nil {
		t.Fatal(err)
	}
	_, err = o.Abort(ctx, "max", news, "another", "r", false)
	wants(t, err, api.Conflict, "this plan")
	if _, err := o.Abort(ctx, "max", news, id, "changed our minds", false); err != nil {
		t.Fatal(err)
	}
	l, _ := o.place.Log(news)
	if l.Op != nil || l.Epoch.Counter != 2 || l.Home != "eu-west" {
		t.Fatalf("after the abort: %+v", l)
	}
	_, err = o.Start(ctx, "ada", planned(), id, "r", false, consent)
	wants(t, err, api.PlacementRefused, "S6") // its home has to open the next epoch first
	o.do(placement.Command{Verb: placement.Opened, ID: "opened", Log: l.Incarnation, Expect: l.Epoch, Region: "eu-west", Actor: "a", Reason: "r", Point: &placement.Point{End: 9}})
	_, err = o.Start(ctx, "ada", planned(), id, "r", false, consent)
	wants(t, err, api.Conflict, "has changed")
}

// Home and target believe no count: an approval that the authority was told of by someone
// else, or whose signature does not hold here, is none.
func TestR14f_HomeAndTargetCheckApprovalsThemselves(t *testing.T) {
	o := newOffice(t)
	id := o.plan(planned())
	l, _ := o.place.Log(news)
	begin := o.command(placement.Begin, opOf(id), &l, "ada", "r")
	begin.Plan, begin.Move = id, &placement.Move{Kind: placement.Planned, Target: "us-east", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}
	o.do(begin)
	for i, a := range []placement.Approval{
		{Actor: "eve", Role: approval.Operator},
		{Actor: "eve", Role: approval.Operator, Signed: "{}"},
		{Actor: "eve", Role: approval.Operator, Signed: o.approval("ada", id, approval.Operator)}, // who asked
		{Actor: "eve", Role: approval.Operator, Signed: o.approval("eve", id[:len(id)-1], approval.Operator)},
	} {
		c := o.command(placement.Approve, fmt.Sprint("approve/", i), &l, "eve", "r")
		c.Op, c.Plan, c.Approvals = opOf(id), id, []placement.Approval{a}
		o.do(c)
		now, _ := o.place.Log(news)
		if err := o.Approved(news, now); api.CodeOf(err) != api.PlacementRefused || !strings.Contains(err.Error(), "S12") {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := o.Approve(context.Background(), news, o.approval("eve", id, approval.Operator), "seen", false); err != nil {
		t.Fatal(err)
	}
	now, _ := o.place.Log(news)
	if err := o.Approved(news, now); err != nil {
		t.Error(err)
	}
	o.clock.Advance(2 * time.Hour)
	if err := o.Approved(news, now); err == nil {
		t.Error("an approval that has ended still counts")
	}
}

// Attested: two people sign that the home is stopped, whatever the topic asks for.
func TestR14f_AttestedTakesTwoPeople(t *testing.T) {
	o, ctx := newOffice(t), context.Background()
	o.facts = func(f *Facts) { f.Up = func(r string) bool { return r != "eu-west" } }
	span := 5 * time.Second
	r := Request{Log: news, Kind: placement.Forced, Target: "us-east", Accept: placement.Loss{Span: &span}, Attest: true}
	id := o.plan(r)
	_, err := o.Start(ctx, "ada", r, id, "fire", false, []string{o.approval("eve", id, approval.Incident)})
	wants(t, err, api.PlacementRefused, "1 of 2 people")
	o.Verifier.Rules = append(o.Verifier.Rules, approval.Rule{Match: "zoe", Roles: []string{approval.Incident}})
	if _, err := o.Start(ctx, "ada", r, id, "fire", false, []string{o.approval("eve", id, approval.Incident), o.approval("zoe", id, approval.Incident)}); err != nil {
		t.Fatal(err)
	}
	l, _ := o.place.Log(news)
	if got, need := l.Approved(); !l.Op.Attested || l.Op.Step != placement.Begun || got != 2 || need != 2 {
		t.Fatalf("%d of %d: %+v", got, need, l.Op)
	}
	if err := o.Approved(news, l); err != nil {
		t.Error(err)
	}
	var e *api.Error
	if _, err := o.Abort(ctx, "carl", news, id, "r", false); !errors.As(err, &e) || e.Code != api.PermissionDenied {
		t.Errorf("aborted by nobody: %v", err)
	}
}
