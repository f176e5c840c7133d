package placement_test

import (
	"encoding/json"
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

// TestR14e_Stories plays testdata/stories: commands of the authority, what each was
// answered with, and the state of the log after it. A command that leaves out epoch= takes
// the present one. "other" at the front means the state of a second authority.
func TestR14e_Stories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		w := &story{states: map[bool]*placement.State{false: {}, true: {}}, index: map[bool]uint64{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.run(t, d) })
	})
}

type story struct {
	states map[bool]*placement.State
	index  map[bool]uint64
	ids    int
}

func (w *story) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(d.Cmd + " " + argText(d) + "\n" + d.Input)) {
		line, other := strings.CutPrefix(strings.TrimSpace(line), "other ")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		args := map[string]string{}
		for _, word := range words[1:] {
			k, v, _ := strings.Cut(word, "=")
			args[k] = v
		}
		out.WriteString(w.line(t, other, words[0], args))
	}
	return out.String()
}

func argText(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
			continue
		}
		words = append(words, a.Key+"="+strings.Join(a.Vals, ","))
	}
	return strings.Join(words, " ")
}

func (w *story) line(t *testing.T, other bool, verb string, args map[string]string) string {
	s := w.states[other]
	switch verb {
	case "end":
		l, _ := s.Log(args["log"])
		e, err := api.ParseEpoch(args["epoch"])
		if err != nil {
			t.Fatal(err)
		}
		end, err := l.EpochEnd(e)
		if err != nil {
			return refusal(err)
		}
		return fmt.Sprintf("ends at %d\n", end)
	case "compare":
		c := placement.Compare(s, w.states[!other])
		return fmt.Sprintf("authority %s; logs %v; contested %v\n", c.Authority, c.Logs, c.Contested())
	case "reload":
		bytes, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if w.states[other], err = placement.Restore(bytes); err != nil {
			t.Fatal(err)
		}
		return "reloaded\n"
	}
	c := w.command(t, other, placement.Verb(verb), args)
	w.index[other]++
	r, err := s.Apply(w.index[other], c)
	if err != nil {
		return refusal(err)
	}
	if verb == "renew" {
		var b strings.Builder
		for _, g := range r.Grants {
			l := []string{}
			for _, log := range s.Changed(0) {
				if log.Home == g.Region && !strings.Contains(strings.Join(g.Revoked, " "), log.Incarnation) && log.Terms.Isolation == placement.FenceAfter {
					l = append(l, log.Incarnation)
				}
			}
			fmt.Fprintf(&b, "%s holds %v, revoked %v\n", g.Region, l, g.Revoked)
		}
		return b.String()
	}
	if l, ok := s.Log(c.Log); ok {
		return describe(l)
	}
	return fmt.Sprintf("generation %d, issuer %s\n", s.Generation(), s.Issuer())
}

func (w *story) command(t *testing.T, other bool, verb placement.Verb, a map[string]string) placement.Command {
	s := w.states[other]
	w.ids++
	c := placement.Command{Verb: verb, ID: fmt.Sprintf("c%d", w.ids), Log: a["log"], Op: a["op"], Region: a["region"], Actor: "anna", Reason: "test", Plan: a["plan"]}
	if v, ok := a["id"]; ok {
		c.ID = v
	}
	if v, ok := a["actor"]; ok {
		c.Actor = v
	}
	if l, ok := s.Log(c.Log); ok {
		c.Expect = l.Epoch
	}
	if v, ok := a["epoch"]; ok {
		e, err := api.ParseEpoch(v)
		if err != nil {
			t.Fatal(err)
		}
		c.Expect = e
	}
	w.parts(t, other, &c, a)
	return c
}

func (w *story) parts(t *testing.T, other bool, c *placement.Command, a map[string]string) {
	switch c.Verb {
	case placement.Found:
		c.Log, c.Founding = "", &placement.Founding{Authority: a["name"], Region: a["region"]}
		if c.Founding.Region != "" {
			cache, err := w.states[!other].Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			c.Founding.Cache = cache
		}
		c.Approvals = approvals(a["by"])
	case placement.Renew:
		*c = placement.Command{Verb: placement.Renew, Regions: list(a["regions"])}
	case placement.Declare, placement.Alter:
		c.Home, c.Terms, c.Approvals = a["home"], terms(a), approvals(a["by"])
		if c.Verb == placement.Declare && a["epoch"] == "" {
			c.Expect = api.StaticEpoch(c.Home)
		}
	case placement.Begin:
		c.ID, c.Plan = a["op"], "plan-"+a["op"]
		c.Op = ""
		c.Move = &placement.Move{Kind: placement.Kind(a["kind"]), Target: a["target"], HomeDigest: or(a["home_digest"], "d1"), TargetDigest: or(a["target_digest"], "d1"),
			Accepted: loss(t, a["accept"]), Divergent: a["two_histories"] == "yes", Attested: a["attested"] == "yes", Overrides: list(a["override"])}
	case placement.Approve:
		c.Plan = or(a["plan"], "plan-"+a["op"])
		c.Approvals = []placement.Approval{{Actor: c.Actor, Role: "incident"}}
	case placement.Prove:
		c.Proof = &placement.Proof{Kind: placement.ProofKind(a["by"]), End: number(t, a["at"]), Waited: span(t, a["waited"]), Renewed: number(t, a["since"]), Statement: a["statement"], Sum: a["sum"]}
	case placement.FixCut, placement.CaughtUp, placement.Opened:
		c.Point = &placement.Point{End: number(t, a["at"]), Sum: a["sum"]}
	case placement.Frozen:
		l := loss(t, a["lost"])
		c.Point, c.Lost = &placement.Point{End: number(t, a["at"])}, &l
	case placement.Diverged, placement.Closed:
		e, _ := api.ParseEpoch(a["of"])
		from, to := number(t, a["from"]), number(t, a["to"])
		c.Divergence = &placement.Divergence{Epoch: e, Region: c.Region, From: from, To: to, Count: to - from + 1, Root: "r", Fate: placement.Fate(or(a["fate"], "open"))}
	case placement.Denied:
		c.Denial = api.Code(a["code"])
	case placement.Meet:
		o, _ := w.states[!other].Log(c.Log)
		c.Other = &o
	case placement.Resolve:
		e, _ := api.ParseEpoch(a["winner"])
		c.Home, c.Winner = a["home"], e
	}
}

func terms(a map[string]string) *placement.Terms {
	mode, isolation := placement.Manual, placement.Accept
	if a["targets"] == "" {
		mode = placement.Never
	}
	t := &placement.Terms{Allowed: list(a["allowed"]), Targets: list(a["targets"]), Mode: mode, Isolation: isolation, Digest: or(a["digest"], "d1")}
	t.RPO, _ = time.ParseDuration(a["rpo"])
	t.Approvals, _ = strconv.Atoi(a["approvals"])
	if f := a["fence_after"]; f != "" {
		t.Isolation = placement.FenceAfter
		t.FenceAfter, _ = time.ParseDuration(f)
	}
	return t
}

func list(s string) []string {
	s = strings.Trim(s, "()")
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func approvals(s string) []placement.Approval {
	var all []placement.Approval
	for _, who := range list(s) {
		all = append(all, placement.Approval{Actor: who, Role: "compliance"})
	}
	return all
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func number(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(or(s, "0"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func span(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(or(s, "0s"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// loss reads "5s/100"; a part that is "?" is not known.
func loss(t *testing.T, s string) placement.Loss {
	var l placement.Loss
	if s == "" {
		return l
	}
	a, b, both := strings.Cut(s, "/")
	if a != "?" {
		d := span(t, a)
		l.Span = &d
	}
	if both && b != "?" {
		n := number(t, b)
		l.Records = &n
	}
	return l
}

func refusal(err error) string {
	var e *api.Error
	if !errors.As(err, &e) {
		return "error without a code: " + err.Error() + "\n"
	}
	what := strings.TrimSpace(string(e.Code) + " " + e.Field + " " + e.Value)
	return what + ": " + e.Hint + "\n"
}

func describe(l placement.Log) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s at %s in %s", l.Incarnation, l.Status, l.Home, l.Epoch)
	if o := l.Op; o != nil {
		fmt.Fprintf(&b, "; %s move %s to %s: %s", o.Kind, o.ID, o.Target, o.Step)
	}
	if l.Refused != "" {
		fmt.Fprintf(&b, "; refused %s", l.Refused)
	}
	if l.Rival != nil {
		fmt.Fprintf(&b, "; %s claims it by %s", l.Rival.Home, l.Rival.Epoch)
	}
	for _, h := range l.History {
		end := "?"
		if h.EndKnown {
			end = fmt.Sprint(h.End)
		}
		fmt.Fprintf(&b, "\n  %s at %s ended at %s, %s", h.Epoch, h.Home, end, h.How)
		if h.Lost != nil {
			text, _ := json.Marshal(h.Lost)
			fmt.Fprintf(&b, ", lost %s", text)
		}
		if c := h.Comparison(); c != "" {
			fmt.Fprintf(&b, ", %s", c)
		}
	}
	for _, d := range l.Divergences {
		fmt.Fprintf(&b, "\n  %s keeps %d to %d of %s: %s", d.Region, d.From, d.To, d.Epoch, d.Fate)
	}
	b.WriteString("\n")
	return b.String()
}
