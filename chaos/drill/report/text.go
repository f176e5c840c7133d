package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"domicile/chaos/drill/history"
)

// JUnit writes one test suite: a test case for each expectation, and one for each check. A
// check that was not put to the test is skipped, not passed.
func (r *Report) JUnit(w io.Writer) error {
	s := suite{Name: r.word() + r.Drill, Time: fmt.Sprintf("%.3f", r.Took.Seconds()), Timestamp: r.Began.UTC().Format("2006-01-02T15:04:05")}
	for _, e := range r.Expected {
		c := testcase{Class: "expectation." + e.Topic, Name: e.title()}
		switch {
		case !e.OK:
			c.Failure = &message{Message: "got " + e.Got}
		case e.Moot:
			c.Skipped = &message{Message: e.Got}
		}
		s.add(c)
	}
	for _, k := range r.Checks {
		c := testcase{Class: "check", Name: k.Name}
		switch {
		case !k.OK:
			c.Failure = &message{Message: k.Text}
		case k.Judged == 0:
			c.Skipped = &message{Message: k.Text}
		}
		s.add(c)
	}
	c := testcase{Class: strings.TrimSpace(r.word()), Name: "verdict"}
	if r.Verdict != Pass {
		c.Failure = &message{Message: string(r.Verdict) + ": " + r.Line}
	}
	s.add(c)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(s); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

type suite struct {
	XMLName   xml.Name   `xml:"testsuite"`
	Name      string     `xml:"name,attr"`
	Tests     int        `xml:"tests,attr"`
	Failures  int        `xml:"failures,attr"`
	Skipped   int        `xml:"skipped,attr"`
	Time      string     `xml:"time,attr"`
	Timestamp string     `xml:"timestamp,attr"`
	Cases     []testcase `xml:"testcase"`
}

type testcase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Failure *message `xml:"failure"`
	Skipped *message `xml:"skipped"`
}

type message struct {
	Message string `xml:"message,attr"`
}

func (s *suite) add(c testcase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
}

// title is an expectation in one line: "orders@eu-west to us-east at rpo: denied (residency)".
func (e *Expected) title() string {
	text := cmp.Or(e.Log, e.Topic)
	if e.Target != "" {
		text += " to " + e.Target
	}
	switch e.Moment {
	case history.Always:
		text += " at every moment"
	case history.Before:
		text += " before the cut"
	case history.AfterHeal:
		text += " after the heal"
	default:
		text += " at " + moment(e.Moment)
	}
	text += ": " + e.Want
	if e.Why != "" {
		text += " (" + e.Why + ")"
	}
	return text
}

// moment is a moment's name for people.
func moment(name string) string {
	switch name {
	case history.AtCut:
		return "t = 0"
	case history.HalfRPO:
		return "t = RPO ÷ 2"
	case history.AtRPO:
		return "t = RPO"
	case history.TwiceRPO:
		return "t = 2 RPO"
	case history.AfterHeal:
		return "after the heal"
	}
	return name
}

// Markdown writes the report for a ticket. The page holds more.
func (r *Report) Markdown(w io.Writer) error {
	b := &strings.Builder{}
	line := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	line("# %s: %s\n", cell(r.title()), r.Verdict)
	line("%s\n", cell(r.Line))
	line("Federation %s, %s, %s long. History: %d events, last hash `%s`.\n", cell(r.Federation), r.Began.UTC().Format(time.RFC3339), span(r.Took), r.Source.Events, r.Source.Chain)
	line("## Expectations\n\n| | expectation | answer | asked |\n|---|---|---|---|")
	for i := range r.Expected {
		e := &r.Expected[i]
		line("| %s | %s | %s | %d |", tick(e.OK, e.Asked), cell(e.title()), cell(e.Got), e.Asked)
	}
	line("\n## Checks\n\n| | check | judged | |\n|---|---|---|---|")
	for _, c := range r.Checks {
		line("| %s | %s | %d | %s |", tick(c.OK, c.Judged), cell(c.Name), c.Judged, cell(c.Text))
	}
	line("\n## Lag while cut off\n\n| log | target | last figure | grew | off at most | below at most |\n|---|---|---|---|---|---|")
	for _, l := range r.Lags {
		if l.Parted {
			line("| %s | %s | %s | %s | %s | %.2f s |", cell(l.Log), cell(l.Target), seconds(l.Most), perSecond(l.Slope), judged(&l), l.Under)
		}
	}
	line("\n## What the targets lacked at the heal\n\n| log | target | records | bytes | oldest | ids |\n|---|---|---|---|---|---|")
	for _, v := range r.Behind {
		line("| %s | %s | %s | %s | %s | %s |", cell(v.Log), cell(v.Target), comma(v.Records), comma(v.Bytes), age(v.Oldest), cell(idText(v.IDs)))
	}
	for _, m := range r.Moves {
		line("\n## Move of %s to %s, %s\n", cell(m.Log), cell(m.To), m.Kind)
		line("Detection %s, decision %s, fence %s, open %s, first ack %s; RTO %s (declared %s). Lost %s of %s bytes, oldest %s.", age(m.Detect), age(m.Decide), age(m.Fence), age(m.Open), age(m.First),
			age(m.RTO), span(m.Limit), count(m.Lost, "record"), comma(m.Bytes), age(m.Oldest))
	}
	line("\n## Not proven by this drill\n")
	for _, u := range r.Unproven {
		line("- %s", cell(u))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func tick(ok bool, judged int) string {
	switch {
	case !ok:
		return "✘"
	case judged == 0:
		return "–"
	}
	return "✔"
}

// cell keeps text from making tables or markup of its own.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", "`", "'").Replace(s)
}

func seconds(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f s", *v)
}

func perSecond(v *float64) string {
	if v == nil {
		return "too few figures"
	}
	return fmt.Sprintf("%.3f s/s", *v)
}

func judged(l *Lag) string {
	if l.Judged == 0 {
		return "not judged"
	}
	return fmt.Sprintf("%.2f s", l.Off)
}

func age(d *time.Duration) string {
	if d == nil {
		return "–"
	}
	return span(*d)
}

// idText lists records; a very long list is cut, the JSON has it whole.
func idText(ids []IDs) string {
	var parts []string
	for i, id := range ids {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("and %d more rows", len(ids)-i))
			break
		}
		if id.From == id.To {
			parts = append(parts, fmt.Sprintf("%s-%d", id.Producer, id.From))
		} else {
			parts = append(parts, fmt.Sprintf("%s-%d … %d", id.Producer, id.From, id.To))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
