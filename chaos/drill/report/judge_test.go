package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
)

func checkOf(r *Report, name string) Check {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		return Check{}
	}
	return r.Checks[i]
}

func TestR14i_AGoodDrillPasses(t *testing.T) {
	r := Judge(story{}.tell(t))
	if r.Verdict != Pass {
		t.Errorf("%s: %s", r.Verdict, r.Line)
	}
	for _, c := range r.Checks {
		move := c.Name == CheckLoss || c.Name == CheckRTO
		if !c.OK || (c.Judged == 0) != move {
			t.Errorf("%s: ok %v, judged %d: %s", c.Name, c.OK, c.Judged, c.Text)
		}
	}
	for _, l := range r.Lags {
		if l.Log == "catalog.updates@home" && l.Target == "us-east" && (l.Most == nil || *l.Most < 15 || !l.Busy || l.Slope == nil) {
			t.Errorf("lag %+v", l)
		}
	}
	for _, b := range r.Behind {
		if b.Log == "catalog.updates@home" && (b.Records == 0 || b.Bytes != b.Records*256 || b.Oldest == nil || len(b.IDs) != 1 || b.Said == nil || *b.Said != b.Records) {
			t.Errorf("behind %+v", b)
		}
	}
	if len(r.Moments) != 4 || len(r.Matrix) != 3 || len(r.Unproven) == 0 {
		t.Errorf("%d moments, %d rows, %d not proven", len(r.Moments), len(r.Matrix), len(r.Unproven))
	}
}

func TestR14i_AnExecutedMoveIsMeasured(t *testing.T) {
	r := Judge(story{moves: true}.tell(t))
	if len(r.Moves) != 1 {
		t.Fatalf("%d moves", len(r.Moves))
	}
	if r.Verdict != Pass {
		t.Errorf("%s: %s", r.Verdict, r.Line)
	}
	m := r.Moves[0]
	if m.Decide == nil || *m.Decide != step || m.Fence == nil || *m.Fence != 11*step || m.RTO == nil || m.Detect == nil || m.First == nil {
		t.Errorf("times %+v", m)
	}
	// From the cut on until its fence the old home goes on: five records a second.
	if want := uint64((fenceAt - cutAt) / step); !m.Known || m.Lost != want || m.Bytes != want*256 {
		t.Errorf("lost %d of %d bytes, want %d", m.Lost, m.Bytes, want)
	}
	if len(m.Reports) != 1 || !m.Reports[0].Agrees {
		t.Errorf("reports %+v", m.Reports)
	}
	if c := checkOf(r, CheckKept); !c.OK {
		t.Errorf("void records count as lost: %s", c.Text)
	}
}

// later is an answer that took so much longer, and is as true as it was.
func later(e *history.Event, by time.Duration) *history.Event {
	if e.Gauge != nil {
		e.Gauge.Asked = max(e.Gauge.Asked-by, 0)
	}
	return e
}

// An answer that took longer than the bound is not held against it by its far end, as
// nobody knows when it was true; and it is counted.
func TestR14i_AFewAnswersThatCameLateAreNoFault(t *testing.T) {
	n := 0
	r := Judge(story{spoil: func(e *history.Event) *history.Event {
		if e.Gauge != nil {
			if n++; n%7 == 0 {
				return later(e, 2*time.Second)
			}
		}
		return e
	}}.tell(t))
	late := 0
	for _, l := range r.Lags {
		late += l.Late
	}
	if c := checkOf(r, CheckLagTruth); !c.OK || late == 0 {
		t.Errorf("%d late: %s", late, c.Text)
	}
}

// spoilt is a story that went wrong in one thing, and the checks that have to say so.
var spoilt = []struct {
	name  string
	moves bool
	red   []string
	spoil func(*history.Event) *history.Event
}{
	{"the lease ran out", false, []string{CheckControl}, func(e *history.Event) *history.Event {
		if e.Gate != nil && e.Gate.Act == history.ActHeal {
			e.Gate.Act = history.ActLapsed
		}
		return e
	}},
	{"most answers came late", false, []string{CheckLagTruth}, func(e *history.Event) *history.Event {
		return later(e, 2*time.Second)
	}},
	{"a resident log may go", false, []string{CheckExpected}, func(e *history.Event) *history.Event {
		if e.Probe != nil && e.Probe.Topic == "orders" && e.Probe.Moment == history.TwiceRPO {
			e.Probe.Allowed, e.Probe.Why = true, ""
		}
		return e
	}},
	{"denied, for another reason", false, []string{CheckExpected}, func(e *history.Event) *history.Event {
		if e.Probe != nil && e.Probe.Topic == "orders" {
			e.Probe.Why = "authority"
		}
		return e
	}},
	{"a move is allowed with too old a copy", false, []string{CheckExpected, CheckDecision}, func(e *history.Event) *history.Event {
		if e.Probe != nil && e.Probe.Topic == "catalog.updates" && e.Probe.Moment == history.TwiceRPO {
			e.Probe.Allowed, e.Probe.Why = true, ""
		}
		return e
	}},
	{"a denial without a rule", false, []string{CheckDecision}, func(e *history.Event) *history.Event {
		if e.Probe != nil && !e.Probe.Allowed {
			e.Probe.Rule, e.Probe.Code = "", ""
		}
		return e
	}},
	{"nobody asked", false, []string{CheckExpected}, func(e *history.Event) *history.Event {
		if e.Probe != nil && e.Probe.Moment == history.HalfRPO {
			return nil
		}
		return e
	}},
	{"one side sees nothing", false, []string{CheckSeen}, func(e *history.Event) *history.Event {
		if e.Link != nil && e.Region == "us-east" {
			e.Link.State = "up"
		}
		return e
	}},
	{"a region is silent", false, []string{CheckAnswered}, func(e *history.Event) *history.Event {
		if e.Gauge != nil && e.Region == "ap-south" && e.Gauge.Asked == cutAt+4*time.Second {
			return &history.Event{Region: "ap-south", Silent: &history.Silent{Text: "deadline exceeded"}}
		}
		return e
	}},
	{"an acknowledged record is gone", false, []string{CheckKept}, func(e *history.Event) *history.Event {
		if e.Heard != nil && e.Region == "eu-west" && e.Heard.Runs[0].Producer == "p-eu" && e.Heard.Runs[0].From == 18 {
			return nil
		}
		return e
	}},
	{"a copy lacks a record", false, []string{CheckCopied}, func(e *history.Event) *history.Event {
		if e.Heard != nil && e.Region == "ap-south" && e.Heard.Runs[0].Producer == "p-catalog" && e.Heard.Runs[0].From == 5 {
			return nil
		}
		return e
	}},
	{"a reader abroad gets a resident record", false, []string{CheckResident, CheckKept}, func(e *history.Event) *history.Event {
		if e.Heard != nil && e.Heard.Runs[0].Producer == "p-eu" && e.Heard.Runs[0].From == 7 {
			e.Region = "us-east"
		}
		return e
	}},
	{"a resident record is stored abroad", false, []string{CheckResident, CheckDegraded, CheckCopied, CheckPending}, func(e *history.Event) *history.Event {
		if e.Told != nil && e.Told.Producer == "p-us" && e.Told.Outcome == history.NotStored && e.Told.Rows[0].Number == 60 {
			e.Told.Outcome, e.Told.Code, e.Told.Log, e.Told.Region = history.Acked, "", "orders@us-east", "us-east"
		}
		return e
	}},
	{"another body", false, []string{CheckIntact}, func(e *history.Event) *history.Event {
		if e.Heard != nil && e.Heard.Runs[0].From == 9 {
			e.Heard.Altered = 1
		}
		return e
	}},
	{"lag reads 0 while cut off", false, []string{CheckLagFloor, CheckLagTruth, CheckLagSlope}, func(e *history.Event) *history.Event {
		if e.Gauge != nil && e.Gauge.Target == "us-east" && e.Gauge.Staleness != nil {
			zero := 0.0
			e.Gauge.Staleness = &zero
		}
		return e
	}},
	{"lag runs fast", false, []string{CheckLagTruth, CheckLagSlope}, func(e *history.Event) *history.Event {
		if e.Gauge != nil && e.Gauge.State == "LINK_DOWN" && e.Gauge.Staleness != nil {
			more := *e.Gauge.Staleness * 1.2
			e.Gauge.Staleness = &more
		}
		return e
	}},
	{"too few pending", false, []string{CheckPending}, func(e *history.Event) *history.Event {
		if e.Gauge != nil && e.Gauge.Records != nil && *e.Gauge.Records > 10 {
			*e.Gauge.Records -= 10
		}
		return e
	}},
	{"producers hang", false, []string{CheckDegraded}, func(e *history.Event) *history.Event {
		if e.Told != nil && e.Told.Outcome == history.NotStored {
			e.Told.Outcome, e.Told.Code = history.Unknown, api.OutcomeUnknown
		}
		return e
	}},
	{"a local producer is refused", false, []string{CheckDegraded}, func(e *history.Event) *history.Event {
		if e.Told != nil && e.Told.Producer == "p-eu" && e.Told.Rows[0].Number == 70 {
			e.Told.Outcome, e.Told.Code = history.NotStored, api.Overloaded
		}
		if e.Heard != nil && e.Heard.Runs[0].Producer == "p-eu" && e.Heard.Runs[0].From == 70 {
			return nil
		}
		return e
	}},
	{"a loss report leaves a record out", true, []string{CheckLoss}, func(e *history.Event) *history.Event {
		if e.Loss != nil {
			e.Loss.Missing[0].From += 6
		}
		return e
	}},
	{"a planned move loses records", true, []string{CheckLoss}, func(e *history.Event) *history.Event {
		if e.Move != nil {
			e.Move.Kind = "planned"
		}
		return e
	}},
	{"the new home takes nothing", true, []string{CheckRTO}, func(e *history.Event) *history.Event {
		if e.Told != nil && e.Told.Producer == "p-new" {
			return nil
		}
		return e
	}},
	{"a sequence is not explained", false, []string{CheckReconcile}, func(e *history.Event) *history.Event {
		if e.Reconcile != nil && e.Region == "us-east" {
			e.Reconcile.Unexplained = 1
		}
		return e
	}},
	{"a copy is another one", false, []string{CheckReconcile}, func(e *history.Event) *history.Event {
		if e.Reconcile != nil && e.Region != e.Reconcile.Home {
			e.Reconcile.Digest = "d2"
		}
		return e
	}},
	{"a token abroad", false, []string{CheckScan}, func(e *history.Event) *history.Event {
		if e.Scan != nil && !e.Scan.Home {
			e.Scan.Hits = 1
		}
		return e
	}},
	{"a search that does not find all that is at home", false, []string{CheckScan}, func(e *history.Event) *history.Event {
		if e.Scan != nil && e.Scan.Home {
			e.Scan.Hits--
		}
		return e
	}},
}

// Every check is red on a run that was spoilt for it, and on no other.
func TestR14i_EachCheckIsSeenRed(t *testing.T) {
	seen := map[string]bool{}
	for _, bad := range spoilt {
		t.Run(strings.ReplaceAll(bad.name, " ", "_"), func(t *testing.T) {
			r := Judge(story{moves: bad.moves, spoil: bad.spoil}.tell(t))
			for _, c := range r.Checks {
				want := slices.Contains(bad.red, c.Name)
				if c.OK == want {
					t.Errorf("%q: ok %v: %s", c.Name, c.OK, c.Text)
				}
				seen[c.Name] = seen[c.Name] || !c.OK
			}
			if r.Verdict == Pass {
				t.Error("the verdict is pass")
			}
		})
	}
	for _, c := range Judge(story{}.tell(t)).Checks {
		if !seen[c.Name] {
			t.Errorf("%q was never seen red", c.Name)
		}
	}
}

// What is not whole is never a pass.
func TestR14i_AHistoryThatEndsEarlyIsNoPass(t *testing.T) {
	h := story{}.tell(t)
	whole := h.Events
	for _, c := range []struct {
		name string
		end  int
		want Verdict
	}{
		{"before the cut", slices.IndexFunc(whole, func(e history.Event) bool { return e.Gate != nil }), Refused},
		{"in the cut", slices.IndexFunc(whole, func(e history.Event) bool { return e.Probe != nil && e.Probe.Moment == history.TwiceRPO }), Uncontrolled},
	} {
		h.Events = whole[:c.end]
		if r := Judge(h); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, r.Verdict, c.want)
		}
	}
	h.Events = whole[:len(whole)-1]
	if r := Judge(h); r.Verdict == Pass || r.Source.Whole() {
		t.Errorf("without its close: %s", r.Verdict)
	}
	h.Events, h.Torn = whole, true
	if r := Judge(h); r.Verdict != Incomplete {
		t.Errorf("torn: %s", r.Verdict)
	}
}

// What somebody else healed held no longer than it last said so: what was stored after that
// was not stored in spite of the cut, and what there was no time for has not failed.
func TestR14i_ADrillThatSomebodyHealedHasNotFailed(t *testing.T) {
	const held, found = cutAt + 2*time.Second, cutAt + 3*time.Second
	taken := func(e *history.Event) *history.Event {
		if t := e.Told; t != nil && t.Producer == "p-us" && t.Rows[0].Begin > held {
			t.Outcome, t.Code, t.Log, t.Region, t.Epoch, t.Durable, t.Rows[0].Sequence = history.Acked, "", "orders@eu-west", "eu-west", "1.1", "disk-1", 1_000+t.Rows[0].Number
		}
		if e.Heard != nil && e.Region == "eu-west" && e.Heard.Runs[0].Producer == "p-eu" && e.Heard.Runs[0].From == 1 {
			more := history.Run{Producer: "p-us", Residency: "eu", Log: "orders@eu-west", Epoch: "1.1", From: 1, To: 100, First: 1_001, Last: 1_100}
			e.Heard.Runs = append(e.Heard.Runs, more)
		}
		if e.Probe != nil && (e.Probe.Moment == history.TwiceRPO || e.Probe.Moment == history.HalfRPO) && e.Probe.Topic != "orders" {
			return nil
		}
		return e
	}
	h := story{spoil: taken}.tell(t)
	acts := map[time.Duration]history.Gate{held: {Act: history.ActRenew, OK: true, Asked: held}, found: {Act: history.ActEnded, OK: true}}
	for i := range h.Events {
		e := &h.Events[i]
		for at, gate := range acts {
			if e.Gauge != nil && e.At >= at {
				e.Gauge, e.Region, e.Gate = nil, "us-east", &gate
				delete(acts, at)
				break
			}
		}
	}
	h.Closed().Outcome, h.Closed().Text = history.Aborted, "somebody healed it at us-east"
	r := Judge(h)
	if r.Verdict != Incomplete || r.Cut.Until != held || !strings.Contains(r.Line, "somebody healed it") {
		t.Errorf("%s, held until %s: %s", r.Verdict, r.Cut.Until, r.Line)
	}
	for _, name := range []string{CheckDegraded, CheckExpected, CheckSeen} {
		if c := checkOf(r, name); !c.OK {
			t.Errorf("%s: %s", name, c.Text)
		}
	}
}

func TestR14i_VerifyFindsWhatWasChanged(t *testing.T) {
	h := story{moves: true}.tell(t)
	r := Judge(h)
	var text bytes.Buffer
	if err := r.JSON(&text); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(bytes.NewReader(text.Bytes()), h); err != nil || !v.Holds {
		t.Fatalf("an honest report: %+v, %v", v, err)
	}
	for name, change := range map[string]func(*Report){
		"verdict": func(r *Report) { r.Verdict = Pass },
		"chain":   func(r *Report) { r.Source.Chain = strings.Repeat("0", 64) },
		"loss":    func(r *Report) { r.Moves[0].Lost-- },
		"a check": func(r *Report) { r.Checks = r.Checks[1:] },
		"drill":   func(r *Report) { r.Drill = "another" },
	} {
		var bad Report
		if err := json.Unmarshal(text.Bytes(), &bad); err != nil {
			t.Fatal(err)
		}
		if name == "verdict" && r.Verdict == Pass {
			bad.Verdict = Fail
		} else {
			change(&bad)
		}
		var changed bytes.Buffer
		if err := bad.JSON(&changed); err != nil {
			t.Fatal(err)
		}
		if v, err := Verify(&changed, h); err != nil || v.Holds {
			t.Errorf("%s was changed: %+v, %v", name, v, err)
		}
	}
	if _, err := Verify(strings.NewReader("no report"), h); err == nil {
		t.Error("text was taken for a report")
	}
}

func TestR14i_JUnitHasACaseForEachExpectation(t *testing.T) {
	r := Judge(story{spoil: spoilt[1].spoil}.tell(t))
	var text bytes.Buffer
	if err := r.JUnit(&text); err != nil {
		t.Fatal(err)
	}
	var s suite
	if err := xml.Unmarshal(text.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Cases) != len(r.Expected)+len(r.Checks)+1 || s.Failures == 0 || s.Skipped == 0 || s.Tests != len(s.Cases) {
		t.Errorf("%d cases, %d failures, %d skipped", len(s.Cases), s.Failures, s.Skipped)
	}
	if want := "orders@eu-west to us-east at every moment: denied (residency)"; !strings.Contains(text.String(), want) {
		t.Errorf("no case %q", want)
	}
	text.Reset()
	if err := r.Markdown(&text); err != nil || !strings.Contains(text.String(), "Not proven by this drill") {
		t.Errorf("markdown: %v", err)
	}
}
