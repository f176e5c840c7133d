package failover

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/regions/placement"
)

// TestR14f_Plan runs the stories in testdata/plan: what is wanted and what is known, and
// what each rule says to it. The first line of a story is the request, its input what
// differs from a log at rest in eu-west whose copies in us-east and ap-south are well.
func TestR14f_Plan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r, f := request(t, d), facts(t, d)
			p := Make(r, f, time.Date(2026, 11, 30, 12, 15, 0, 0, time.UTC))
			return describe(t, &p)
		})
	})
}

func request(t *testing.T, d *datadriven.TestData) Request {
	t.Helper()
	r := Request{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "news", Slot: api.HomeSlot}, Kind: placement.Kind(d.Cmd)}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "to":
			r.Target = a.Vals[0]
		case "accept":
			span := duration(t, a.Vals[0])
			r.Accept.Span = &span
			if len(a.Vals) > 1 {
				n := number(t, a.Vals[1])
				r.Accept.Records = &n
			}
		case "override":
			r.Overrides = a.Vals
		case "divergence":
			r.Divergent = true
		case "attest":
			r.Attest = true
		default:
			t.Fatalf("unknown argument %q", a.Key)
		}
	}
	return r
}

// facts is a log at rest, changed by the lines of the input.
func facts(t *testing.T, d *datadriven.TestData) Facts {
	t.Helper()
	down := map[string]bool{}
	f := Facts{
		Self: "us-east", First: "eu-west", RTO: time.Minute, Reachable: true, Up: func(r string) bool { return !down[r] },
		Log: placement.Log{Incarnation: "inc", Home: "eu-west", Epoch: api.Epoch{Term: 1, Counter: 3, Issuer: "q"}, Status: placement.Active,
			Terms: placement.Terms{Allowed: []string{"ap-south", "eu-west", "us-east"}, Targets: []string{"eu-west", "us-east"}, Mode: placement.Manual, Isolation: placement.Accept, RPO: 5 * time.Second, Digest: "d"}},
		Digests: map[string]string{"eu-west": "d", "us-east": "d", "ap-south": "d"},
		Copies: []Copy{
			{Region: "ap-south", Known: true, Sequence: 100},
			{Region: "eu-west", Home: true, Known: true, Sequence: 100},
			{Region: "us-east", Known: true, Sequence: 100, LagKnown: true, Lag: 400 * time.Millisecond, LagError: 10 * time.Millisecond, PendingKnown: true},
		},
	}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		if len(words) > 0 {
			change(t, &f, down, words[0], words[1:])
		}
	}
	return f
}

func change(t *testing.T, f *Facts, down map[string]bool, what string, with []string) {
	t.Helper()
	one := strings.Join(with, " ")
	copyOf := func(region string) *Copy {
		for i := range f.Copies {
			if f.Copies[i].Region == region {
				return &f.Copies[i]
			}
		}
		t.Fatalf("no copy in %q", region)
		return nil
	}
	switch what {
	case "self":
		f.Self = one
	case "home":
		f.Log.Home = one
	case "down": // its link: what is known of it ends
		down[one] = true
		delete(f.Digests, one)
	case "fence_after":
		f.Log.Terms.Isolation, f.Log.Terms.FenceAfter = placement.FenceAfter, duration(t, one)
	case "approvals":
		f.Log.Terms.Approvals = int(number(t, one))
	case "status":
		f.Log.Status = placement.Status(one)
		if f.Log.Status == placement.Moving {
			f.Log.Op = &placement.Op{ID: "other", Target: "us-east", Step: placement.Proven}
		}
	case "mode":
		f.Log.Terms.Mode = placement.Mode(one)
	case "targets":
		f.Log.Terms.Targets = with
	case "allowed":
		f.Log.Terms.Allowed = with
	case "denied":
		f.Denied = &api.Error{Code: api.HomeOutsideBoundary, Value: with[0], Hint: "the rule says no"}
	case "digest":
		f.Digests[with[0]] = with[1]
	case "unreachable":
		f.Reachable = false
	case "tail":
		f.Log.Divergences = []placement.Divergence{{Region: one, Epoch: f.Log.Epoch, Count: 7, Fate: placement.Kept}}
	case "lag":
		c := copyOf(with[0])
		c.LagKnown, c.PendingKnown = with[1] != "unknown", false
		if c.LagKnown {
			c.Lag = duration(t, with[1])
		}
		c.Cause = strings.Join(with[2:], " ")
	case "pending":
		c := copyOf(with[0])
		c.PendingKnown, c.Pending = true, number(t, with[1])
	case "withheld":
		copyOf(with[0]).Withheld = number(t, with[1])
	case "damaged":
		copyOf(with[0]).Damaged = number(t, with[1])
	case "sequence":
		copyOf(with[0]).Sequence = number(t, with[1])
	case "sync":
		f.Sync = with
	case "whole":
		f.All = true
	default:
		t.Fatalf("unknown fact %q", what)
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func describe(t *testing.T, p *Plan) string {
	t.Helper()
	var b strings.Builder
	for _, c := range p.Checks {
		fmt.Fprintf(&b, "%-9s %-7s %s\n", c.Rule, c.State, c.Text)
	}
	if p.Kind == placement.Forced {
		span, records := "unknown", "unknown"
		if p.Loss.Span != nil {
			span = p.Loss.Span.String()
		}
		if p.Loss.Records != nil {
			records = fmt.Sprint(*p.Loss.Records)
		}
		fmt.Fprintf(&b, "loss at most: %s, records: %s; waits at most %s\n", span, records, p.Wait.Round(time.Millisecond))
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if err := p.Refusal(); err != nil {
		var e *api.Error
		if !errors.As(err, &e) || p.ID != "" {
			t.Errorf("a refused plan: %v, id %q", err, p.ID)
		}
		fmt.Fprintf(&b, "refused: %s %s\n", e.Code, e.Value)
	} else {
		fmt.Fprintf(&b, "plan %s, %d people\n", p.ID[:len("20261130T121500Z-")], p.Needs())
	}
	return b.String()
}

// TestR14f_APlanIsWhatItRestsOn: the id changes with all that a person looked at, and not
// with figures that move by themselves.
func TestR14f_APlanIsWhatItRestsOn(t *testing.T) {
	until := time.Date(2026, 11, 30, 12, 15, 0, 0, time.UTC)
	base := func() (Request, Facts) {
		d := &datadriven.TestData{Cmd: "forced"}
		r, f := request(t, d), facts(t, d)
		span := 5 * time.Second
		r.Target, r.Accept.Span = "us-east", &span
		return r, f
	}
	id := func(change func(*Request, *Facts)) string {
		r, f := base()
		change(&r, &f)
		p := Make(r, f, until)
		return p.ID
	}
	first := id(func(*Request, *Facts) {})
	if first == "" {
		t.Fatal("the first plan is refused")
	}
	for name, change := range map[string]func(*Request, *Facts){
		"another figure": func(_ *Request, f *Facts) { f.Copies[2].Lag, f.Copies[2].Sequence = time.Second, 90 },
		"another note":   func(_ *Request, f *Facts) { f.Copies[0].Sequence = 101 },
	} {
		if id(change) != first {
			t.Errorf("%s made it another plan", name)
		}
	}
	four := 4 * time.Second
	for name, change := range map[string]func(*Request, *Facts){
		"epoch":       func(_ *Request, f *Facts) { f.Log.Epoch.Counter++ },
		"home":        func(_ *Request, f *Facts) { f.Log.Home = "ap-south" },
		"incarnation": func(_ *Request, f *Facts) { f.Log.Incarnation = "other" },
		"terms":       func(_ *Request, f *Facts) { f.Log.Terms.Approvals = 1 },
		"accepted":    func(r *Request, _ *Facts) { r.Accept.Span = &four },
		"divergence":  func(r *Request, _ *Facts) { r.Divergent = true },
		"attested":    func(r *Request, _ *Facts) { r.Attest = true },
		"a waiver":    func(r *Request, _ *Facts) { r.Overrides = []string{placement.RuleTail} },
		"a rule's outcome": func(r *Request, f *Facts) {
			r.Overrides = []string{placement.RuleTail}
			f.Log.Divergences = []placement.Divergence{{Region: "us-east", Fate: placement.Kept}}
		},
	} {
		if got := id(change); got == first || got == "" {
			t.Errorf("another %s: plan %q", name, got)
		}
	}
}
