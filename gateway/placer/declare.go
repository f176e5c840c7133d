package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
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

// Homes lists the logs that are open as this region's own, with their incarnations.
func (p *Placer) Homes() map[api.LogID]string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make(map[api.LogID]string, len(p.homes))
	for id, h := range p.homes {
		out[id] = h.incarnation
	}
	return out
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
		due := p.overdue()
		if len(due) == 0 {
			p.mu.Lock()
			p.trouble = ""
			p.mu.Unlock()
		}
		for _, c := range due {
			if err := p.submit(ctx, a, c); err != nil && ctx.Err() == nil {
				p.note(c, err)
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

// refusedAnew tells whose log it is that another incarnation of it is placed elsewhere, once
// that placement is known here.
func (p *Placer) refusedAnew(c placement.Command) {
	p.mu.RLock()
	var id api.LogID
	for name, h := range p.homes {
		if h.incarnation == c.Log {
			id = name
		}
	}
	other := ""
	for incarnation, l := range p.placed {
		if l.Terms.Address == c.Terms.Address && incarnation != c.Log {
			other = incarnation
		}
	}
	p.mu.RUnlock()
	if p.cfg.Second != nil && id != (api.LogID{}) && other != "" {
		p.cfg.Second(id, c.Log, other)
	}
}

// note keeps what went wrong with a declaration for Troubles, and logs it once.
func (p *Placer) note(c placement.Command, err error) {
	text := string(c.Verb) + " " + c.Log + ": " + err.Error()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != text {
		p.cfg.Log.Warn("a log's declaration is not taken by the placement authority", "verb", c.Verb, "log", c.Log, "err", err)
	}
	p.trouble = text
}

// Trouble is what keeps a log's declaration from the authority; "": nothing does.
func (p *Placer) Trouble() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.trouble
}

// Redeclare looks at the declarations again: another manifest or policy is in force.
func (p *Placer) Redeclare() { signal(p.due) }

func (p *Placer) submit(ctx context.Context, a Authority, c placement.Command) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Pace.Of(submitWithin))
	defer cancel()
	_, err := a.Submit(ctx, c)
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.Conflict && e.Field == placement.FieldAddress {
		p.refusedAnew(c)
		return err
	}
	if api.CodeOf(err) == api.Conflict {
		return nil // it is placed already; what was decided is on its way here
	}
	return err
}

// overdue makes what the authority is due to be told: of logs that it does not know, of
// those that are declared otherwise by now, and of those that are gone.
func (p *Placer) overdue() []placement.Command {
	p.mu.RLock()
	homes, placed, out := maps.Clone(p.homes), maps.Clone(p.named), p.retirements()
	p.mu.RUnlock()
	for id, h := range homes {
		if len(out) >= maxOverdue {
			break
		}
		c, err := p.declaration(id, h, placed[id])
		if err != nil {
			p.cfg.Log.Warn("a log's terms of moving cannot be told", "log", id.String(), "err", err)
		} else if c.Verb != "" {
			out = append(out, c)
		}
	}
	return out
}

// Widening is the change of a log's terms that the authority takes only from people: what
// the region, its home, would declare it as by now. false: it is declared so.
func (p *Placer) Widening(id api.LogID) (c placement.Command, from placement.Terms, ok bool, err error) {
	p.mu.RLock()
	h, open := p.homes[id]
	l := p.named[id]
	p.mu.RUnlock()
	if !open || l.Incarnation == "" {
		return c, from, false, nil
	}
	c, err = p.declaration(id, h, l)
	return c, l.Terms, err == nil && c.Verb == placement.Alter, err
}

// declaration is what the authority is to be told of a log that is open here, l as it has
// it, without an incarnation if it has not. A log on the move is altered when that is over.
func (p *Placer) declaration(id api.LogID, h home, l placement.Log) (placement.Command, error) {
	known := l.Incarnation != ""
	if known && (l.Home != p.cfg.Self || l.Epoch != h.epoch || l.Status != placement.Active || l.Op != nil) {
		return placement.Command{}, nil
	}
	terms, err := p.cfg.Terms(id)
	if err != nil || known && reflect.DeepEqual(terms, l.Terms) {
		return placement.Command{}, err
	}
	c := placement.Command{
		Verb: placement.Declare, ID: "declare/" + h.incarnation, Log: h.incarnation, Expect: h.epoch,
		Region: p.cfg.Self, Home: p.cfg.Self, Actor: "region " + p.cfg.Self, Reason: "the log is declared movable", Terms: &terms,
	}
	if known {
		c.Verb, c.ID, c.Home, c.Reason = placement.Alter, fmt.Sprintf("alter/%s/%d", h.incarnation, l.Version), "", "the topic is declared otherwise"
	}
	return c, nil
}
