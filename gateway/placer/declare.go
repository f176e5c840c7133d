package placer

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

// Opened notes that a log is open as this region's own, in an epoch. The authority is told
// of it if it does not know the log; until it has taken it in no record is.
func (p *Placer) Opened(id api.LogID, incarnation string, epoch api.Epoch) {
	p.mu.Lock()
	p.homes[id] = home{incarnation, epoch}
	p.mu.Unlock()
	p.Named(id, incarnation)
	signal(p.due)
}

// Closed notes that a log is no longer open as this region's own.
func (p *Placer) Closed(id api.LogID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.homes, id)
}

// declare brings the logs of this region to the authority that it does not know.
func (p *Placer) declare(ctx context.Context, a Authority) {
	retry := time.NewTicker(p.cfg.Pace.Of(retryEvery))
	defer retry.Stop()
	for {
		var again <-chan time.Time
		for _, c := range p.undeclared() {
			if err := p.submit(ctx, a, c); err != nil && ctx.Err() == nil {
				p.cfg.Log.Warn("a log could not be brought to the placement authority; until it is there it takes no record", "log", c.Log, "err", err)
				again = retry.C
			}
		}
		p.keepNames()
		select {
		case <-p.due:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Placer) submit(ctx context.Context, a Authority, c placement.Command) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Pace.Of(submitWithin))
	defer cancel()
	_, err := a.Submit(ctx, c)
	if api.CodeOf(err) == api.Conflict {
		return nil // it is placed already; what was decided is on its way here
	}
	return err
}

// undeclared makes the declarations that are due.
func (p *Placer) undeclared() []placement.Command {
	p.mu.RLock()
	missing := map[api.LogID]home{}
	for id, h := range p.homes {
		if _, ok := p.placed[h.incarnation]; !ok && len(missing) < maxOverdue {
			missing[id] = h
		}
	}
	p.mu.RUnlock()
	var out []placement.Command
	for id, h := range missing {
		terms, err := p.cfg.Terms(id)
		if err != nil {
			p.cfg.Log.Warn("a log's terms of moving cannot be told; it takes no record", "log", id.String(), "err", err)
			continue
		}
		out = append(out, placement.Command{
			Verb: placement.Declare, ID: "declare/" + h.incarnation, Log: h.incarnation, Expect: h.epoch,
			Region: p.cfg.Self, Home: p.cfg.Self, Actor: "region " + p.cfg.Self, Reason: "the log is declared movable", Terms: &terms,
		})
	}
	return out
}
