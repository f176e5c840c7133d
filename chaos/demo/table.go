package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// cell is what the table shows of one log in one region.
type cell struct {
	home    bool
	known   bool
	seconds float64
	state   string // of the flow, "" when the page has none
}

func (c cell) String() string {
	switch {
	case c.home:
		return "home"
	case c.known && c.state != "" && c.state != "CAUGHT_UP":
		return fmt.Sprintf("%.1f s %s", c.seconds, strings.ToLower(strings.ReplaceAll(c.state, "_", " ")))
	case c.known:
		return fmt.Sprintf("%.1f s", c.seconds)
	}
	return "unknown"
}

// view is one reading of all regions' metrics pages, log by region.
type view map[string]map[string]cell

// table shows lag while it changes: redrawn in place on a terminal, else one line
// every lineEvery.
type table struct {
	out      io.Writer
	terminal bool
	regions  []string
	drawn    int // lines on the screen
	last     time.Time
}

const (
	lineEvery  = 2 * time.Second
	drawEvery  = 500 * time.Millisecond
	cellWidth  = 22
	firstWidth = 20
)

// show draws a view. phase is a word or two for what is going on.
func (t *table) show(now time.Time, phase string, v view) {
	every := lineEvery
	if t.terminal {
		every = drawEvery
	}
	if now.Sub(t.last) < every {
		return
	}
	t.last = now
	if t.terminal {
		t.redraw(phase, v)
		return
	}
	fmt.Fprintf(t.out, "  %s\n", t.line(phase, v))
}

// release leaves what is drawn and lets ordinary lines follow.
func (t *table) release() { t.drawn, t.last = 0, time.Time{} }

func (t *table) redraw(phase string, v view) {
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	row := func(first string, cells []string) {
		fmt.Fprintf(&b, "\x1b[2K  %-*s", firstWidth, first)
		for _, c := range cells {
			fmt.Fprintf(&b, " %-*s", cellWidth, c)
		}
		b.WriteByte('\n')
	}
	row("lag: "+phase, t.regions)
	logs := sortedKeys(v)
	for _, log := range logs {
		cells := make([]string, len(t.regions))
		for i, r := range t.regions {
			cells[i] = v[log][r].String()
		}
		row(log, cells)
	}
	t.drawn = len(logs) + 1
	io.WriteString(t.out, b.String())
}

// line is the same in one line: the largest lag of the copies in each region.
func (t *table) line(phase string, v view) string {
	parts := make([]string, len(t.regions))
	for i, r := range t.regions {
		worst := cell{home: true}
		for _, c := range v {
			if here := c[r]; !here.home && (worst.home || worse(here, worst)) {
				worst = here
			}
		}
		parts[i] = fmt.Sprintf("%s %s", r, worst)
	}
	return fmt.Sprintf("%-8s lag: %s", phase, strings.Join(parts, ", "))
}

// worse: unknown is worse than any number of seconds.
func worse(a, b cell) bool {
	if a.known != b.known {
		return !a.known
	}
	return a.seconds > b.seconds
}

func sortedKeys(v view) []string {
	keys := make([]string, 0, len(v))
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
