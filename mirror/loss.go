package mirror

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
)

// The rates that a forecast stands on are those of the last rateSpan, from samples
// every sampleEvery. With less than minSpan between the first and the last there is no
// forecast.
const (
	sampleEvery = 5 * time.Second
	rateSpan    = time.Minute
	minSpan     = 10 * time.Second
)

// maxLost is how many lost ranges of a flow are kept for status.
const maxLost = 8

// sample is where a flow was at one moment.
type sample struct {
	at           time.Time
	head, cursor uint64
	stamp        time.Time // ingest time of the target's last record
}

// lossView is what a forecast of retention overtaking a mirror is made of.
type lossView struct {
	pending       uint64        // sequences the target has not confirmed
	exposure      time.Duration // age of the oldest record among them
	exposed       bool          // exposure is known and there is such a record
	maxAge        time.Duration
	maxBytes      int64
	held          int64   // bytes in the log
	perRecord     float64 // bytes of one sequence
	hold          bool
	rated         bool    // the rates are known
	in, out       float64 // sequences per second: appended, confirmed
	gains         float64 // seconds of ingest time the copy gains per second
	alreadyBehind bool    // retention has taken what the target does not have
}

const never = time.Duration(-1)

// forecast says when, at the present rates, retention takes what the target does not
// have, or, where the topic holds, when the log is full.
func (v *lossView) forecast() regions.Loss {
	switch {
	case v.alreadyBehind:
		return regions.Loss{State: regions.LossNow, Soon: true}
	case v.pending == 0:
		return regions.Loss{State: regions.LossNone}
	case !v.rated:
		return regions.Loss{}
	}
	state, in := regions.LossAhead, v.byBytes(regions.HighWater, regions.LowWater)
	if v.hold {
		state, in = regions.LossRefusal, v.byBytes(100, 100)
	} else if !v.exposed {
		return regions.Loss{}
	} else if age := v.byAge(); in == never || age != never && age < in {
		in = age
	}
	if in == never {
		return regions.Loss{State: regions.LossNone}
	}
	return regions.Loss{State: state, In: in, Soon: in <= v.maxAge/2 || v.hold && in <= time.Hour}
}

// byAge: the oldest pending record grows older by a second per second, less what the
// copy gains.
func (v *lossView) byAge() time.Duration {
	if v.maxAge <= 0 {
		return never
	}
	return fills(float64(max(0, v.maxAge-v.exposure))/float64(time.Second), 1-v.gains)
}

// byBytes: retention by bytes begins when the log has reached its high mark, and takes
// pending records when those alone exceed the low one; marks in percent of the log. A log
// that holds keeps all that is pending and nothing else: it is full when that fills it.
func (v *lossView) byBytes(highest, lowest float64) time.Duration {
	high := float64(v.maxBytes)/100*highest - float64(v.held)
	low := float64(v.maxBytes)/100*lowest - float64(v.pending)*v.perRecord
	begins, reaches := fills(high, v.in*v.perRecord), fills(low, (v.in-v.out)*v.perRecord)
	if begins == never || reaches == never {
		return never
	}
	return max(begins, reaches)
}

// fills is when a rate has used up what is left.
func fills(left, rate float64) time.Duration {
	const longest = 10 * 365 * 24 * time.Hour
	switch {
	case left <= 0:
		return 0
	case rate <= 0 || left/rate > longest.Seconds():
		return never
	}
	return time.Duration(left / rate * float64(time.Second))
}

// rates reads the rates off a flow's samples.
func (v *lossView) rates(samples []sample, least time.Duration) {
	if len(samples) < 2 {
		return
	}
	a, b := samples[0], samples[len(samples)-1]
	span := b.at.Sub(a.at)
	if span < least {
		return
	}
	v.rated = true
	v.in = float64(b.head-min(a.head, b.head)) / span.Seconds()
	v.out = float64(b.cursor-min(a.cursor, b.cursor)) / span.Seconds()
	if !a.stamp.IsZero() && b.stamp.After(a.stamp) {
		v.gains = b.stamp.Sub(a.stamp).Seconds() / span.Seconds()
	}
}

// loss fills in the forecast and what is lost already. f.mu is held.
func (f *flow) loss(l *regions.Lag, head regions.Head) {
	topic, pace := f.topic.Load(), f.source.cfg.Pace
	l.Lost = slices.Clone(f.lost)
	if !f.met {
		return
	}
	v := lossView{pending: head.Sequence - min(head.Sequence, f.cursor.Sequence), exposure: l.Exposure, exposed: l.ExposureKnown && l.Exposure > 0,
		maxAge: topic.Retention.MaxAge, maxBytes: int64(topic.Retention.MaxBytes), held: int64(head.Bytes), hold: topic.Hold}
	if kept := head.Sequence + 1 - head.First; kept > 0 {
		v.perRecord = float64(head.Bytes) / float64(kept)
	}
	if head.First > f.cursor.Sequence+1 && v.pending > 0 {
		v.alreadyBehind = true
		l.Lost = append(l.Lost, regions.Gap{From: f.cursor.Sequence + 1, To: head.First - 1})
	}
	v.rates(f.samples, pace.Of(minSpan))
	l.Loss = v.forecast()
	if l.ExposureKnown && l.Exposure == 0 && !v.alreadyBehind {
		l.Loss = regions.Loss{State: regions.LossNone} // what waits is not for this target
	}
}

// sampleRates notes where the flows are, until the Source ends.
func (s *Source) sampleRates() {
	defer s.work.Done()
	tick := time.NewTicker(max(s.cfg.Pace.Of(sampleEvery), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		flows := make([]*flow, 0, len(s.flows))
		for _, f := range s.flows {
			flows = append(flows, f)
		}
		s.mu.Unlock()
		for _, f := range flows {
			f.sample()
		}
	}
}

func (f *flow) sample() {
	now := f.source.cfg.Clock.Now()
	head := f.log.Head().Sequence
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.met {
		return
	}
	old := now.Add(-f.source.cfg.Pace.Of(rateSpan))
	f.samples = slices.DeleteFunc(f.samples, func(s sample) bool { return s.at.Before(old) })
	f.samples = append(f.samples, sample{at: now, head: head, cursor: f.cursor.Sequence, stamp: f.cursor.Time})
}

// noteLost keeps a range that a copy will never have, once the copy has the gap. f.mu is
// held.
func (f *flow) noteLost(gaps []regions.Gap) {
	for _, g := range gaps {
		f.source.cfg.Logger.Warn("records were gone before the copy had them", f.attrs("kind", g.Kind, "from", g.From, "to", g.To)...)
		if n := len(f.lost); n > 0 && f.lost[n-1].Kind == g.Kind && f.lost[n-1].To+1 == g.From {
			f.lost[n-1].To = g.To
			continue
		}
		f.lost = append(f.lost, regions.Gap{Kind: g.Kind, From: g.From, To: g.To})
	}
	f.lost = f.lost[max(0, len(f.lost)-maxLost):]
}

// Waits says, for people, which targets keep retention from taking more of a log, and
// how far each is; "" when none does.
func (s *Source) Waits(log api.LogID) string {
	var names []string
	for _, target := range s.cfg.Targets(log) {
		s.mu.Lock()
		f := s.flows[Flow{log, target}]
		s.mu.Unlock()
		if f == nil {
			names = append(names, target+" has not been asked yet")
			continue
		}
		head := f.log.Head()
		f.mu.Lock()
		switch {
		case !f.met:
			names = append(names, target+" was not heard since this node started")
		case f.cursor.Sequence < head.Sequence:
			names = append(names, fmt.Sprintf("%s has %d of %d", target, f.cursor.Sequence, head.Sequence))
		}
		f.mu.Unlock()
	}
	return strings.Join(names, ", ")
}
