package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

const (
	samplesWanted = 30                     // readings during the cut, if there is time for them
	blur          = 250 * time.Millisecond // a reading that took longer says too little about when it was
	extension     = 20 * time.Second       // how much longer the cut may last, for readings enough
	settleFor     = 300 * time.Millisecond // after the cut, for marks that were under way
	catchUp       = 30 * time.Second       // bound for the mirrors after the heal
)

// watch reads all metrics pages again and again: for the table, and during the cut
// for the slope.
type watch struct {
	run *run

	mu     sync.Mutex
	phase  string
	from   time.Time // samples are kept since then; zero: none
	to     time.Time // the first instant of which none are kept any more; zero: no end yet
	series map[copyOf][]sample
	failed error
}

func (w *watch) enter(phase string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
}

// sampleEvery is the time between two readings, for a cut of this length.
func sampleEvery(cut time.Duration) time.Duration {
	return min(max(cut/samplesWanted, 50*time.Millisecond), 250*time.Millisecond)
}

// loop ends with ctx.
func (w *watch) loop(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery(w.run.o.For / 2))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.read(ctx)
		}
	}
}

func (w *watch) read(ctx context.Context) {
	v := view{}
	for _, r := range w.run.lab.Regions() {
		before := w.run.clock.Now()
		page, err := r.Metrics(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.fail(err)
			}
			return
		}
		after := w.run.clock.Now()
		w.take(v, r, page, before.Add(after.Sub(before)/2), after.Sub(before) <= blur)
	}
	for _, log := range sortedKeys(v) {
		v[log][w.run.homeOf(log)] = cell{home: true}
	}
	w.mu.Lock()
	phase := w.phase
	w.mu.Unlock()
	w.run.show(w.run.clock.Now(), phase, w.run.regionNames(), v)
}

func (w *watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// take puts one region's page into the view and, while the cut is measured and the
// time is sharp enough, into the series.
func (w *watch) take(v view, r *lab.Region, page []lab.Metric, at time.Time, sharp bool) {
	for _, log := range r.Copies() {
		if v[log] == nil {
			v[log] = map[string]cell{}
		}
	}
	for _, m := range page {
		log := m.Labels["log"]
		if m.Labels["target"] != r.Name || v[log] == nil {
			continue
		}
		c := v[log][r.Name]
		switch m.Name {
		case lab.LagSeconds:
			c.known, c.seconds = true, m.Value
			if sharp {
				w.keep(copyOf{log, r.Name}, sample{at, c.seconds})
			}
		case lab.MirrorState:
			c.state = m.Labels["state"]
		}
		v[log][r.Name] = c
	}
}

func (w *watch) keep(c copyOf, s sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.from.IsZero() || s.at.Before(w.from) || !w.to.IsZero() && !s.at.Before(w.to) {
		return
	}
	w.series[c] = append(w.series[c], s)
}

// copyOf is a log's copy in a region.
type copyOf struct{ log, region string }

func (c copyOf) String() string { return c.log + " in " + c.region }

// measure keeps samples while the cut lasts. When it is known everywhere, somebody in
// us-east hands in an EU order.
func (w *watch) measure(ctx context.Context, cut time.Duration) error {
	start := w.run.clock.Now()
	w.mu.Lock()
	w.from = start.Add(settleFor)
	w.mu.Unlock()
	if err := lab.Pass(ctx, cut*3/5); err != nil {
		return err
	}
	w.run.tryWhileCut(ctx)
	err := lab.Pass(ctx, cut-w.run.clock.Now().Sub(start))
	if err == nil {
		err = lab.Poll(ctx, extension, w.enough)
	}
	w.mu.Lock()
	w.to = w.run.clock.Now()
	w.mu.Unlock()
	return err
}

// separated lists the copies that the cut has separated from their homes: those in
// the cut-off region, and those of its logs elsewhere.
func (r *run) separated() []copyOf {
	var copies []copyOf
	for _, region := range r.lab.Regions() {
		for _, log := range region.Copies() {
			if region.Name == cutRegion || r.homeOf(log) == cutRegion {
				copies = append(copies, copyOf{log, region.Name})
			}
		}
	}
	return copies
}

// enough is nil when every separated copy has readings for a slope.
func (w *watch) enough() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.run.separated() {
		if n := len(w.series[c]); n < minSamples {
			return fmt.Errorf("%s: %d readings while cut off, want %d", c, n, minSamples)
		}
	}
	return nil
}

// judgeSlopes fits a line to the readings of every separated copy.
func (w *watch) judgeSlopes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.run
	busy, idle := 0, 0
	worst := math.NaN()
	for _, c := range r.separated() {
		s, ok := slope(w.readings(c))
		if !ok {
			r.result.verdict(CheckSlope, false, fmt.Sprintf("%s: %d readings while cut off, want %d", c, len(w.series[c]), minSamples))
			continue
		}
		r.result.Slopes[c.String()] = s
		if math.IsNaN(worst) || math.Abs(s-1) > math.Abs(worst-1) {
			worst = s
		}
		r.result.verdict(CheckSlope, math.Abs(s-1) <= 0.1, fmt.Sprintf("%s: slope %.3f", c, s))
		switch {
		case c.region != cutRegion:
		case r.stored(c.log, w.from, w.to) > 0:
			busy++
		default:
			idle++
		}
	}
	r.result.verdict(CheckSlope, busy > 0 && idle > 0, fmt.Sprintf("want a busy and an idle log in %s, got %d and %d", cutRegion, busy, idle))
	if !math.IsNaN(worst) {
		r.result.LagSlopeDuringCut = &worst
	}
}

// readings are the samples of one copy, as the hook lets them be seen.
func (w *watch) readings(c copyOf) []sample {
	samples := slices.Clone(w.series[c])
	if h := w.run.o.Hooks.Gauge; h != nil {
		for i := range samples {
			samples[i].value = h(c.region, c.log, samples[i].value)
		}
	}
	return samples
}

// stored is how many records of a log were acknowledged in a time.
func (r *run) stored(log string, from, to time.Time) int {
	n := 0
	for _, e := range r.book.Entries() {
		if e.Outcome == ledger.Acked && e.Log == log && e.Ended.After(from) && e.Ended.Before(to) {
			n++
		}
	}
	return n
}
