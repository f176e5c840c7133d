package oracle

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// poll is the time between two looks at what is still lacking.
const poll = 50 * time.Millisecond

// Lacking is how many of a producer's acknowledged records of a log no reader of a region
// has seen although they rest there by the map.
type Lacking struct {
	Producer, Log, Region string
	Records               int
}

// Settle ends the publishing, asks again for every record whose outcome nobody knew, until
// somebody does, and waits until the readers of every region have what has to be there, or ctx ends. It
// answers what is still lacking. The oracle goes on to read and to ask.
func (o *Oracle) Settle(ctx context.Context) ([]Lacking, error) {
	o.pause()
	for _, p := range o.producers {
		if err := p.settled(ctx); err != nil {
			return o.lacking(), err
		}
		for p.again(ctx) {
			pass(ctx, poll)
		}
	}
	for ctx.Err() == nil {
		if len(o.lacking()) == 0 {
			return nil, nil
		}
		pass(ctx, poll)
	}
	list := o.lacking()
	if len(list) == 0 {
		return nil, nil
	}
	return list, fmt.Errorf("%d records of %s are not seen in %s: %w", list[0].Records, list[0].Log, list[0].Region, context.Cause(ctx))
}

// settled waits until every record has its answer: each has a deadline.
func (p *producer) settled(ctx context.Context) error {
	for p.open.Load() > 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("%d records of %s have no answer: %w", p.open.Load(), p.feed.name(), context.Cause(ctx))
		}
		pass(ctx, poll)
	}
	p.flush()
	return nil
}

func (o *Oracle) lacking() []Lacking {
	var readable []string
	for _, r := range o.config.Regions {
		if r.Door != nil {
			readable = append(readable, r.Name)
		}
	}
	var list []Lacking
	for _, p := range o.producers {
		p.mu.Lock()
		for log, acked := range p.acked {
			for _, region := range o.config.Plan.Rests(log, p.feed.Residency) {
				if !slices.Contains(readable, region) {
					continue
				}
				if n := acked.lacks(p.heard[region]); n > 0 {
					list = append(list, Lacking{p.feed.name(), log, region, n})
				}
			}
		}
		p.mu.Unlock()
	}
	return list
}
