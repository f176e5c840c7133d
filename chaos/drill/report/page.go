package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

// HTML writes the report as one page that needs no other file.
func (r *Report) HTML(w io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"span": span, "age": age, "comma": comma, "count": count, "moment": moment, "seconds": seconds, "perSecond": perSecond, "ids": idText,
		"join": strings.Join, "title": func(e Expected) string { return e.title() }, "off": func(l Lag) string { return judged(&l) },
		"number": func(v *float64) string { return number(v) }, "waits": waits, "bytes": bytesText, "fresh": fresh, "same": same,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	if err := page.Execute(w, view{r, r.charts(), r.facts(), r.bars(), uint64(r.Source.Events), r.Began.UTC().Format("2 January 2006, 15:04:05") + " UTC", r.title()}); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// view is what the page is made of.
type view struct {
	*Report
	Charts []chart
	Facts  []fact
	Bars   []bar

	EventCount uint64
	At         string
	Title      string
}

// fact is one figure of the page's head.
type fact struct {
	Value, Text string
	Bad         bool
}

func (r *Report) facts() []fact {
	if r.Cut == nil {
		return nil
	}
	failed := 0
	held, judged := r.held()
	out := []fact{{span(r.Cut.Held()), "cut off, " + r.Plan.Fault + ", " + r.Plan.Direction + " ways", r.Cut.Lapsed}}
	if r.Plan.Direction != "both" {
		out[0].Text = "cut off, " + r.Plan.Fault + ", " + r.Plan.Direction
	}
	out = append(out, fact{fmt.Sprintf("%d of %d", held, judged), "expectations held", held < judged})
	for _, c := range r.Checks {
		if !c.OK {
			failed++
		}
		switch c.Name {
		case CheckKept:
			f := fact{"0", fmt.Sprintf("of %s acknowledged records lost", comma(uint64(c.Judged))), !c.OK}
			if !c.OK {
				f.Value, f.Text = "not all", fmt.Sprintf("of %s acknowledged records were read at their homes", comma(uint64(c.Judged)))
			}
			if c.Judged > 0 {
				out = append(out, f)
			}
		case CheckResident:
			f := fact{"0", "resident records outside their boundary", !c.OK}
			if !c.OK {
				f.Value = "leak"
			}
			if c.Judged > 0 {
				out = append(out, f)
			}
		}
	}
	if off, n := r.worst(); n > 0 {
		out = append(out, fact{fmt.Sprintf("%.2f s", off), "the most that a lag can have been off the oracle", r.failed(CheckLagTruth) || r.failed(CheckLagFloor)})
	}
	out = append(out, fact{fmt.Sprint(failed), fmt.Sprintf("of %d checks failed", len(r.Checks)), failed > 0})
	for _, m := range r.Moves {
		if m.RTO != nil && !m.Back {
			out = append(out, fact{span(*m.RTO), "RTO of " + m.Log + ", moved to " + m.To, m.Limit > 0 && *m.RTO > m.Limit})
		}
	}
	return out
}

func (r *Report) failed(name string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name && !c.OK })
}

// worst is the most that any judged lag was off.
func (r *Report) worst() (off float64, n int) {
	for _, l := range r.Lags {
		if l.Judged > 0 {
			off, n = max(off, l.Off), n+1
		}
	}
	return off, n
}

// bar is a move's time in parts.
type bar struct {
	Move
	Parts []part
}

// part is one stretch of a move: share is in percent.
type part struct {
	Name  string
	Class int
	Took  time.Duration
	Share float64
}

func (r *Report) bars() []bar {
	var out []bar
	for _, m := range r.Moves {
		b := bar{Move: m}
		var all time.Duration
		for i, p := range []struct {
			name string
			took *time.Duration
		}{{"detection", m.Detect}, {"decision", m.Decide}, {"fence", m.Fence}, {"opening", m.Open}, {"first ack", m.First}} {
			if p.took != nil && *p.took > 0 {
				b.Parts = append(b.Parts, part{p.name, i, *p.took, 0})
				all += *p.took
			}
		}
		for i := range b.Parts {
			b.Parts[i].Share = max(2, 100*float64(b.Parts[i].Took)/float64(all))
		}
		out = append(out, b)
	}
	return out
}

// same reports whether a row was asked at every moment and answered alike.
func same(cells []Cell) bool {
	for i := range cells {
		a, b := cells[0], cells[i]
		if !b.Asked || a.Allowed != b.Allowed || a.Why != b.Why || a.Rule != b.Rule || a.Text != b.Text || b.Allowed && b.Span != nil {
			return false
		}
	}
	return true
}

// fresh reports whether a cell says something else than the one before it.
func fresh(cells []Cell, i int) bool {
	return cells[i].Text != "" && (i == 0 || cells[i-1].Text != cells[i].Text)
}

func number(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v == float64(int64(*v)) && *v >= 0:
		return comma(uint64(*v))
	}
	return fmt.Sprintf("%.2f", *v)
}

func waits(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return comma(*n)
}

// bytesText is a number of bytes for people.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i+1 < len(units); i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
