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
	"domicile/regions/link"
)

const (
	samplesWanted = 30                     // readings during the cut, if there is time for them
	settleFor     = 300 * time.Millisecond // after the cut, for marks that were under way
	catchUp       = 30 * time.Second       // bound for the mirrors after the heal
)

// watch reads all metrics pages again and again: for the table, and during the cut
// for the slope.
type watch struct {
	run   *run
	table *table

	mu     sync.Mutex
	phase  string
	from   time.Time // samples are kept since then; zero: none
	to     time.Time // the first instant of which none are kept any more; zero: no end yet
	series map[string][]sample
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
		w.take(v, r, page, before.Add(after.Sub(before)/2))
	}
	for _, log := range sortedKeys(v) {
		v[log][w.run.homeOf(log)] = cell{home: true}
	}
	w.mu.Lock()
	phase := w.phase
	w.mu.Unlock()
	w.table.show(w.run.clock.Now(), phase, v)
}

func (w *watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// take puts one region's page into the view and, while the cut is measured, into the
// series.
func (w *watch) take(v view, r *lab.Region, page []lab.Metric, at time.Time) {
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
			w.keep(log, r.Name, sample{at, c.seconds})
		case lab.MirrorState:
			c.state = m.Labels["state"]
		}
		v[log][r.Name] = c
	}
}

func (w *watch) keep(log, region string, s sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.from.IsZero() || s.at.Before(w.from) || !w.to.IsZero() && !s.at.Before(w.to) {
		return
	}
	w.series[seriesName(log, region)] = append(w.series[seriesName(log, region)], s)
}

func seriesName(log, region string) string { return log + " in " + region }

// measure keeps samples while the cut lasts. When it is known everywhere, somebody in
// us-east hands in an EU order.
func (w *watch) measure(ctx context.Context, cut time.Duration) error {
	start := w.run.clock.Now()
	w.mu.Lock()
	w.from = start.Add(settleFor)
	w.mu.Unlock()
	if err := wait(ctx, cut*3/5); err != nil {
		return err
	}
	w.table.release()
	w.run.tryWhileCut(ctx)
	err := wait(ctx, cut-w.run.clock.Now().Sub(start))
	w.mu.Lock()
	w.to = w.run.clock.Now()
	w.mu.Unlock()
	return err
}

// judgeSlopes fits a line to every series of a copy that the cut has separated from
// its home: those in the cut-off region, and those of its logs elsewhere.
func (w *watch) judgeSlopes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.run
	busy, idle := 0, 0
	worst := math.NaN()
	for _, region := range r.lab.Regions() {
		for _, log := range region.Copies() {
			home := r.homeOf(log)
			if region.Name != cutRegion && home != cutRegion {
				continue
			}
			name := seriesName(log, region.Name)
			s, ok := slope(w.readings(log, region.Name))
			if !ok {
				r.result.verdict(CheckSlope, false, fmt.Sprintf("%s: %d samples while cut off, want %d", name, len(w.series[name]), minSamples))
				continue
			}
			r.result.Slopes[name] = s
			if math.IsNaN(worst) || math.Abs(s-1) > math.Abs(worst-1) {
				worst = s
			}
			r.result.verdict(CheckSlope, math.Abs(s-1) <= 0.1, fmt.Sprintf("%s: slope %.3f", name, s))
			if region.Name == cutRegion {
				if r.stored(log, w.from, w.to) > 0 {
					busy++
				} else {
					idle++
				}
			}
		}
	}
	r.result.verdict(CheckSlope, busy > 0 && idle > 0, fmt.Sprintf("want a busy and an idle log in %s, got %d and %d", cutRegion, busy, idle))
	if !math.IsNaN(worst) {
		r.result.LagSlopeDuringCut = &worst
	}
}

// readings are the samples of one copy, as the hook lets them be seen.
func (w *watch) readings(log, region string) []sample {
	samples := slices.Clone(w.series[seriesName(log, region)])
	if h := w.run.o.Hooks.Gauge; h != nil {
		for i := range samples {
			samples[i].value = h(region, log, samples[i].value)
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

// trade lets producers publish while the region is cut off in the middle of it.
func (r *run) trade(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.watch = &watch{run: r, series: map[string][]sample{}, table: &table{out: r.o.Story, terminal: terminal(r.o.Story), regions: r.regionNames()}}
	w := r.watch
	var work sync.WaitGroup
	defer work.Wait()
	producing, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	for _, name := range r.regionNames() {
		s := newShop(name, r.lab.Federation, r.tokens)
		work.Go(func() { r.traffic.produce(producing, s, r.doors[name], pace(r.o.Rate, len(r.doors))) })
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	work.Go(func() { w.loop(watching) })
	if err := r.acts(ctx, w); err != nil {
		return err
	}
	stopProducing()
	stopWatching()
	work.Wait()
	w.table.release()
	if w.failed != nil {
		return fmt.Errorf("read the metrics: %w", w.failed)
	}
	return nil
}

// acts are the parts of the story: trade, cut, heal. A fifth, a half, the rest.
func (r *run) acts(ctx context.Context, w *watch) error {
	calm, cut := r.o.For/5, r.o.For/2
	r.say("Now producers publish in all three regions.")
	w.enter("calm")
	if err := wait(ctx, calm); err != nil {
		return err
	}
	w.table.release()
	r.say("Now eu-west is cut off: nothing gets in or out, and nobody is told. ap-south rests.")
	w.enter("cut off")
	if err := r.rest(ctx); err != nil {
		return err
	}
	if err := r.lab.Cut(cutRegion, link.BlackHole, cut+time.Minute); err != nil {
		return err
	}
	if err := w.measure(ctx, cut); err != nil {
		return err
	}
	r.lab.Heal()
	r.traffic.rest("")
	w.table.release()
	r.say("The cut heals.")
	w.enter("healed")
	return wait(ctx, r.o.For-calm-cut)
}

// rest lets the idle region come to rest: nothing more for its own logs is under way.
func (r *run) rest(ctx context.Context) error {
	r.traffic.rest(idleRegion)
	return lab.Poll(ctx, 2*r.traffic.wait, func() error {
		if n := r.traffic.local.Load(); n != 0 {
			return fmt.Errorf("%d records for the logs of %s are under way", n, idleRegion)
		}
		return nil
	})
}

// wait lets the story go on for d.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
