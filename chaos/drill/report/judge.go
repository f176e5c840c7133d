package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/chaos/drill/history"
	"domicile/regions"
)

// Judge makes the report of a history. It does not change it.
func Judge(h *history.History) *Report {
	s := newScene(h)
	r := &Report{
		Version: Version, Drill: h.Head.Drill, Federation: h.Head.Federation, Controller: h.Head.Controller, Began: h.Head.Origin, Simulated: h.Head.Simulated, Took: s.end,
		Source: source(h), Plan: h.Plan(), Cut: s.cut,
		Lags: s.lags(), Sight: s.sight(), Behind: s.behind(), Expected: s.expected(), Moves: s.moves(), Degraded: s.degraded(),
		Reconcile: s.reconciled(), Scans: s.scans(), Phases: s.phases(), Notes: s.notes(),
	}
	r.Moments, r.Matrix = s.matrix()
	r.Figures = s.figures(r)
	r.Checks = s.checks(r)
	r.Verdict = s.verdict(r)
	r.Line = r.marked(s.line(r))
	r.Unproven = s.unproven(r)
	return r
}

func source(h *history.History) Source {
	out := Source{Chain: h.Chain, Events: len(h.Events), Torn: h.Torn}
	if c := h.Closed(); c != nil {
		out.Closed, out.Dropped = true, c.Dropped
	}
	return out
}

func (s *scene) checks(r *Report) []Check {
	expected := named(CheckExpected)
	for _, e := range r.Expected {
		if e.Moot {
			continue
		}
		expected.judge(e.OK, "%s towards %s at %s: %s", cmp.Or(e.Log, e.Topic), cmp.Or(e.Target, "any region"), e.Moment, e.Got)
	}
	list := []Check{s.control(), expected.done(fmt.Sprintf("%d of %d", expected.Judged, expected.Judged)), s.decisions(), s.seen(r.Sight), s.answered()}
	list = append(list, s.stored()...)
	list = append(list, s.intact())
	list = append(list, s.lagChecks(r.Lags, r.Behind)...)
	degraded, loss, rto := named(CheckDegraded), named(CheckLoss), named(CheckRTO)
	for _, d := range r.Degraded {
		degraded.judge(d.OK, "%s, %s, asked in %s: %s", d.Topic, d.Residency, d.Asked, d.Text)
	}
	for _, m := range r.Moves {
		judgeMove(&m, loss, rto)
	}
	reconcile, scan := named(CheckReconcile), named(CheckScan)
	for _, l := range r.Reconcile {
		reconcile.judge(l.OK, "%s in %s: %d not explained %s", l.Log, l.Region, l.Unexplained, l.Text)
	}
	for _, v := range r.Scans {
		if v.Home {
			scan.judge(v.OK, "%d of %d marks found at home in %s: the search does not see what is there", v.Hits, v.Sown, v.Where)
		} else {
			scan.judge(v.OK, "%d found in %s", v.Hits, v.Where)
		}
	}
	return append(list, degraded.done("in every region"), loss.done("each loss is named"), rto.done("each in time"),
		reconcile.done("0 unexplained"), scan.done(s.searched(r.Scans)))
}

func judgeMove(m *Move, loss, rto *check) {
	what := m.Log + " to " + m.To
	loss.judge(m.Known, "%s: where the old epoch ended is not known", what)
	if m.Kind == "planned" {
		loss.judge(m.Lost == 0, "%s was planned and lost %s", what, count(m.Lost, "record"))
	} else if m.Oldest != nil && m.Bound > 0 {
		loss.judge(*m.Oldest <= m.Bound, "%s lost records up to %s old, declared are %s", what, span(*m.Oldest), span(m.Bound))
	}
	for _, l := range m.Reports {
		loss.judge(l.Agrees, "%s: the report of %s: %s", what, l.By, l.Text)
	}
	rto.judge(m.RTO != nil, "%s: no record was acknowledged in the new epoch", what)
	if m.RTO != nil && m.Limit > 0 {
		rto.judge(*m.RTO <= m.Limit, "%s took %s, declared are %s", what, span(*m.RTO), span(m.Limit))
	}
}

// verdict weighs everything. What is not whole proves nothing, whatever it shows.
func (s *scene) verdict(r *Report) Verdict {
	closed := s.history.Closed()
	switch {
	case s.cut == nil && (closed == nil || closed.Outcome != history.Completed):
		return Refused
	case s.cut != nil && s.cut.Lapsed, closed != nil && closed.Outcome == history.Uncontrolled, closed == nil && s.cut != nil && s.cut.Gone >= s.end:
		return Uncontrolled
	case slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK }):
		return Fail
	case !r.Source.Whole(), closed.Outcome != history.Completed, s.cut == nil:
		return Incomplete
	}
	return Pass
}

// held counts the expectations that held, and those that could be judged.
func (r *Report) held() (held, judged int) {
	for _, e := range r.Expected {
		if e.Moot {
			continue
		}
		if judged++; e.OK {
			held++
		}
	}
	return held, judged
}

// line says the verdict in one sentence.
func (s *scene) line(r *Report) string {
	switch r.Verdict {
	case Refused:
		return "Nothing was cut: the drill was refused, or ended before its cut."
	case Uncontrolled:
		return "The controller lost the drill: the cut did not end by command. Whatever else is shown below, this drill failed" + s.lost()
	case Incomplete:
		return "The drill or its history ended early, and what is shown is not a whole drill" + why(s.history.Closed())
	}
	held, judged := r.held()
	text := fmt.Sprintf("%s was cut off from %s for %s. %d of %d expectations held", r.Plan.Isolate, strings.Join(r.Plan.Peers, " and "), span(r.Cut.Held()), held, judged)
	wrong := 0
	for _, c := range r.Checks {
		if !c.OK {
			wrong++
		}
	}
	if wrong == 0 {
		return text + ", and every check that was put to the test."
	}
	if s.early() {
		text = "Ended early" + strings.TrimSuffix(why(s.history.Closed()), ".") + ". " + text
	}
	return text + fmt.Sprintf("; %d of %d checks did not.", wrong, len(r.Checks))
}

// lost is how the controller did, as far as the history says.
func (s *scene) lost() string {
	if s.cut != nil && s.cut.Why != "" {
		return why(&history.Close{Text: s.cut.Why})
	}
	if s.history.Closed() == nil {
		return ": its history ends in the midst of the cut, as when whoever runs a drill is killed."
	}
	return why(s.history.Closed())
}

// why is the end of a sentence: what the controller wrote last.
func why(c *history.Close) string {
	if c == nil || c.Text == "" {
		return "."
	}
	return ": " + strings.Join(strings.Fields(c.Text), " ") + "."
}

func (s *scene) reconciled() []Reconciled {
	var out []Reconciled
	for i := range s.history.Events {
		if e := &s.history.Events[i]; e.Reconcile != nil {
			out = append(out, Reconciled{Region: e.Region, OK: e.Reconcile.Unexplained == 0 && e.Reconcile.Damaged == 0, Reconcile: *e.Reconcile})
		}
	}
	s.digests(out)
	slices.SortStableFunc(out, func(a, b Reconciled) int { return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Region, b.Region)) })
	return out
}

// digests compares a copy with its home where nothing may be missing from it.
func (s *scene) digests(list []Reconciled) {
	for i := range list {
		c := &list[i]
		if c.Region == c.Home || c.Digest == "" || c.Withheld+c.Expired+c.Purged+c.Erased+c.Void > 0 {
			continue
		}
		for _, h := range list {
			if h.Log == c.Log && h.Region == h.Home && h.Digest != "" && h.Head == c.Cursor && h.Digest != c.Digest {
				c.OK, c.Text = false, "its digest is not that of its home"
			}
		}
	}
}

func (s *scene) scans() []Scan {
	var out []Scan
	for i := range s.history.Events {
		if e := &s.history.Events[i]; e.Scan != nil {
			ok := e.Scan.Hits == 0
			if e.Scan.Home {
				ok = e.Scan.Hits == e.Scan.Sown
			}
			out = append(out, Scan{Region: e.Region, OK: ok, Scan: *e.Scan})
		}
	}
	return out
}

// searched says how much was looked through outside.
func (s *scene) searched(list []Scan) string {
	var files, bytes uint64
	for _, v := range list {
		if !v.Home {
			files, bytes = files+v.Files, bytes+v.Bytes
		}
	}
	return fmt.Sprintf("0 in %s, %s; at home all are found", count(files, "file"), regions.Bytes(int64(bytes)))
}

func (s *scene) phases() []Phase {
	var out []Phase
	for i := range s.history.Events {
		e := &s.history.Events[i]
		switch {
		case e.Step == nil:
		case !e.Step.End:
			out = append(out, Phase{Name: e.Step.Phase, Began: e.At, Budget: e.Step.Budget})
		default:
			for k := len(out) - 1; k >= 0; k-- {
				if out[k].Name == e.Step.Phase && out[k].Took == nil {
					took := e.At - out[k].Began
					out[k].Took, out[k].OK, out[k].Text = &took, e.Step.OK, e.Step.Text
					break
				}
			}
		}
	}
	return out
}

func (s *scene) notes() []Note {
	var out []Note
	for i := range s.history.Events {
		e := &s.history.Events[i]
		switch {
		case e.Stop != nil:
			out = append(out, Note{e.At, "stop", e.Region, strings.TrimSpace(fmt.Sprintf("%s: %g, limit %g. %s", e.Stop.Condition, e.Stop.Value, e.Stop.Limit, e.Stop.Text))})
		case e.Outside != nil:
			out = append(out, Note{e.At, "outside", e.Region, strings.TrimSpace(e.Outside.Peer + " " + e.Outside.Text)})
		}
	}
	return out
}

// span is a length of time for people.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// count is a number and what it counts.
func count(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return comma(n) + " " + what
}

func comma(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
