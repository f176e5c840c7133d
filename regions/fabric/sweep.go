package fabric

import (
	"context"
	"maps"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
)

// sweepEvery is how often retention looks at the logs, at pace 1.
const sweepEvery = 10 * time.Second

// Retention by bytes begins at highWater of MaxBytes and ends at lowWater, in
// percent, so that a log under its bound never has to refuse an append.
const (
	highWater = regions.HighWater
	lowWater  = regions.LowWater
)

// Swept is what one sweep took.
type Swept struct {
	From, To uint64 // sequences; 0: nothing
	Records  uint64
	Bytes    int64
}

// sweepLoop is the region's retention. The broker's own is never used: it would
// outrun mirrors without a trace.
func (f *Fabric) sweepLoop() {
	tick := time.NewTicker(max(f.cfg.Pace.Of(sweepEvery), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.sweeps:
		case <-f.ctx.Done():
			return
		}
		f.Believe()
		f.mu.Lock()
		logs := maps.Clone(f.logs)
		f.mu.Unlock()
		for _, l := range logs {
			if f.stopping() {
				return
			}
			if _, err := l.sweep(f.ctx); err != nil && !f.stopping() {
				l.log.Warn("retention will try again", "error", err)
			}
		}
	}
}

func (f *Fabric) kickSweep() {
	select {
	case f.sweeps <- struct{}{}:
	default:
	}
}

// checkRoom wakes retention when the log nears its bound.
func (l *store) checkRoom() {
	if l.over(highWater) > 0 {
		l.f.kickSweep()
	}
}

// over is by how many bytes the log exceeds a share of its bound.
func (l *store) over(percent int64) int64 {
	return l.bytes.Load() - l.bounds().MaxBytes/100*percent
}

// Sweep applies a log's retention now, as the fabric itself does every few seconds. It
// takes what is older than MaxAge, and the oldest of a log that nears MaxBytes, but
// never past Safe; nothing by age while the clock is in doubt. The range is in the log, durably, before anything is deleted.
func (f *Fabric) Sweep(ctx context.Context, id api.LogID) (Swept, error) {
	l, err := f.opened(id, "sweep")
	if err != nil {
		return Swept{}, err
	}
	f.Believe()
	return l.sweep(ctx)
}

// opened is a log that is open in this run.
func (f *Fabric) opened(id api.LogID, op string) (*store, error) {
	stream, err := streamName(id)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.logs[stream]; l != nil {
		return l, nil
	}
	return nil, &api.Error{Code: api.NotReady, Op: op, Field: "log", Value: id.String(), Hint: "the log is not open"}
}

// cut is what a sweep is about to take: all broker messages below next.
type cut struct {
	Swept
	next uint64        // the broker's sequence of the first message to keep
	data uint64        // data records among what goes
	late time.Duration // see LogHealth.Overdue
}

func (l *store) sweep(ctx context.Context) (Swept, error) {
	ctx, cancel := context.WithTimeout(ctx, l.f.cfg.Pace.Of(30*time.Second))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.still() {
		return Swept{}, nil
	}
	if err := l.refit(ctx); err != nil {
		return Swept{}, err
	}
	c, err := l.plan(ctx)
	if err == nil {
		l.overdue.Store(int64(c.late))
	}
	if err != nil || c.To == 0 {
		return Swept{}, err
	}
	if err := l.announce(ctx, c); err != nil {
		return Swept{}, err
	}
	l.setFirst(c.To+1, 0) // first: a reader that meets the hole must know why it is there
	if err := l.admin.Purge(ctx, jetstream.WithPurgeSequence(c.next)); err != nil {
		return Swept{}, l.readFailed(err)
	}
	l.front.Store(c.next)
	l.bytes.Add(-c.Bytes)
	l.setFirst(c.To+1, c.data)
	// A purge may write the block it ends in anew: acknowledged records are on disk
	// only once that is.
	if err := l.f.flush(ctx); err != nil {
		return Swept{}, err
	}
	l.log.Debug("retention took records", "from", c.From, "to", c.To)
	return c.Swept, nil
}

func (l *store) setFirst(first, gone uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
	l.records -= min(l.records, gone)
}

// plan walks the log from its front as far as retention may go.
func (l *store) plan(ctx context.Context) (cut, error) {
	safe := uint64(math.MaxUint64)
	bounds, purged := l.bounds(), l.purgedTo()
	if bounds.asksMirrors() {
		safe = bounds.Safe()
	}
	l.mu.Lock()
	c := cut{Swept: Swept{From: l.first}}
	end := l.durable
	l.mu.Unlock()
	var excess int64
	if l.over(highWater) > 0 {
		excess = l.over(lowWater)
	}
	if c.From == 0 || bounds.MaxAge <= 0 && excess <= 0 && purged == 0 {
		return c, nil
	}
	ages := l.f.ages(bounds.MaxAge)
	var held skipped
	count := 1 // most sweeps find that nothing has to go
	for from := uint64(1); from <= end.broker; count = readMessages {
		got, err := l.readUpTo(ctx, from, end.broker, count, readBytes)
		if err != nil || len(got) == 0 {
			return c, err
		}
		for _, m := range got {
			if m.broker > end.broker {
				return c, nil
			}
			if d := l.voidIn(m); d != nil && d.Settled == nil {
				return c, nil // and so is all that lies behind it
			}
			if m.control != "" && m.control != controlGap || l.isVoid(m) {
				held.bytes += m.stored
				continue
			}
			aged, ahead, late := ages.of(m.item.Time)
			if m.position.Sequence > purged && (m.position.Sequence > safe || !aged && c.Bytes >= excess) {
				if ahead && c.To == 0 && m.position.Sequence <= safe && !ages.now.Before(l.lookAgain) {
					held.add(m)
					continue
				}
				if held.ahead {
					l.lookAgain = m.item.Time.Add(bounds.MaxAge)
					if m.position.Sequence > safe { // what lies behind it was not looked at
						l.lookAgain = ages.now.Add(min(clock.Gap, bounds.MaxAge))
					}
				}
				c.late = late
				return c, nil
			}
			if c.To == 0 {
				c.From = min(c.From, m.firstSequence()) // an earlier sweep may not have got as far as deleting
			}
			c.take(m, held)
			held = skipped{}
		}
		from = got[len(got)-1].broker + 1
	}
	if held.ahead {
		l.lookAgain = ages.now.Add(bounds.MaxAge)
	}
	return c, nil
}

// skipped is what goes with the next item, if that goes: markers, and records whose stamps
// are ahead of the clock.
type skipped struct {
	bytes   int64
	records uint64
	ahead   bool
}

func (s *skipped) add(m *message) {
	s.ahead = true
	s.bytes += m.stored
	if m.control == "" {
		s.records++
	}
}

func (c *cut) take(m *message, s skipped) {
	c.To, c.next = m.position.Sequence, m.broker+1
	c.Bytes += m.stored + s.bytes
	c.data += s.records
	c.Records += s.records
	if m.control == "" {
		c.data++
		c.Records++
	}
}

// announce has the log's writer store the range, and waits until it is durable.
func (l *store) announce(ctx context.Context, c cut) error {
	result := make(chan regions.Stored, 1)
	e := &entry{sweep: &sweepRange{from: c.From, to: c.To}, size: 512,
		deadline: time.Now().Add(l.f.cfg.Pace.Of(AppendDeadline)), done: func(s regions.Stored) { result <- s }}
	l.mu.Lock()
	err := l.refusal
	if err == nil {
		err = l.f.suspension()
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	l.enqueue(e)
	l.mu.Unlock()
	select {
	case s := <-result:
		return s.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
