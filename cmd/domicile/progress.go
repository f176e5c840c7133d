package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress is the bar on a terminal. A nil progress draws nothing: elsewhere a bar
// would only fill files.
type progress struct {
	w       io.Writer
	now     func() time.Time
	start   time.Time
	next    time.Time
	size    int64 // of the input, 0: not known
	started bool
}

const (
	barWidth  = 24
	barPeriod = 100 * time.Millisecond
)

func (a *app) progressBar(size int64) *progress {
	if !terminal(a.err) {
		return nil
	}
	return &progress{w: raw(a.err), now: a.now, start: a.now(), size: size}
}

// draw redraws the line, at most ten times a second.
func (p *progress) draw(t *tally) {
	if p != nil {
		p.show(func(now time.Time) string { return p.line(t, now) })
	}
}

func (p *progress) show(line func(now time.Time) string) {
	now := p.now()
	if now.Before(p.next) {
		return
	}
	p.next, p.started = now.Add(barPeriod), true
	fmt.Fprintf(p.w, "\r\x1b[K%s", line(now))
}

func (p *progress) line(t *tally, now time.Time) string {
	text := fmt.Sprintf("%s lines, %s acked, %s unknown", count(t.Lines), count(t.Acked+t.Duplicates), count(t.Unknown))
	if took := now.Sub(p.start).Seconds(); took > 0 {
		text += fmt.Sprintf(", %s/s", count(int64(float64(t.Lines)/took)))
	}
	if p.size <= 0 {
		return text
	}
	return barOf(float64(t.read)/float64(p.size)) + "  " + text
}

// barOf draws a share of 1.
func barOf(share float64) string {
	share = min(share, 1)
	full := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), share*100)
}

// end leaves the last line of the bar standing clear of what follows.
func (p *progress) end() {
	if p != nil && p.started {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
