package placer

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// now reads the machine's clocks at full pace, whatever the pace is: leases are counted in
// it, as the declarations write them.
func (p *Placer) now() placement.Instant {
	return placement.Instant{Boot: nominal(p.cfg.Pace, p.cfg.Boot()), Wall: int64(nominal(p.cfg.Pace, p.cfg.Wall().Round(0).Sub(p.start.Round(0))))}
}

func nominal(pace regions.Pace, d time.Duration) time.Duration {
	if pace == 0 {
		return d
	}
	return time.Duration(float64(d) / float64(pace))
}

// hold renews the region's leases.
func (p *Placer) hold(ctx context.Context, a Authority) {
	every := time.NewTicker(p.cfg.Pace.Of(placement.RenewEvery))
	defer every.Stop()
	for {
		p.renewOnce(ctx, a)
		select {
		case <-every.C:
		case <-p.renew:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Placer) renewOnce(ctx context.Context, a Authority) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Pace.Of(renewWithin))
	defer cancel()
	sent := p.now()
	grant, err := a.Renew(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.cfg.Log.Debug("the region's leases were not renewed", "err", err)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if grant.Generation < p.state.Generation() {
		return // of an authority that was overtaken, perhaps before this node's last start
	}
	fits := p.holder.Answered(grant, sent) // if not: what this region misses is on its way, and then it renews again
	p.answered, p.heard, p.fits = sent, true, fits && len(grant.Revoked) == 0
}

// confirmed reports whether the authority was heard lately. p.mu is held.
func (p *Placer) confirmed(now placement.Instant) bool {
	since := now.Boot - p.answered.Boot
	return p.heard && p.authority != nil && since >= 0 && since <= regions.ConfirmedFor
}

// Left is how much is left of this region's lease on a log; false: it holds none, or it
// does not know the log.
func (p *Placer) Left(id api.LogID) (time.Duration, bool) {
	now := p.now()
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.holder.Left(p.names.of[id], now)
}

// Answered is how long ago the last renewal was sent that the authority answered, at full
// pace; false: none was in this run. reached: that is lately enough for acks to count on.
func (p *Placer) Answered() (ago time.Duration, reached, ok bool) {
	now := p.now()
	p.mu.RLock()
	defer p.mu.RUnlock()
	return now.Boot - p.answered.Boot, p.confirmed(now), p.heard
}

// Current reports whether the authority answered lately and has nothing to say of this
// region's logs that this node has not heard.
func (p *Placer) Current() bool {
	now := p.now()
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.confirmed(now) && p.fits
}

// Authority names the founding whose word was heard last, with its generation and the
// version of what it decided; "": none was.
func (p *Placer) Authority() (name string, generation uint32, version uint64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.state.Authority(), p.state.Generation(), p.state.Version()
}

// Voters are the regions that vote, as the authority noted it; none: it noted no change yet.
func (p *Placer) Voters() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.state.Voters()
}

// mayWrite refuses unless this region may write the log in its epoch now. unconfirmed: it
// may, by the log's declaration, although the authority is out of reach, and what it
// writes may yet be void.
func (p *Placer) mayWrite(id api.LogID, h home) (unconfirmed bool, err error) {
	now := p.now()
	p.mu.RLock()
	defer p.mu.RUnlock()
	l, ok := p.placed[h.incarnation]
	refused := func(code api.Code, hint string) error {
		after := time.Second
		if ok && (code == api.NotReady || code == api.Fenced) {
			after = moveStep
		}
		return &api.Error{Code: code, Op: "append", Topic: id.Topic, Region: p.cfg.Self, RetryAfter: p.cfg.Pace.Of(after), Hint: hint}
	}
	switch {
	case !ok:
		return false, refused(api.NotReady, "the placement authority has not taken the log in, so nobody may write it yet; send it again with the same id")
	case l.Status == placement.Contested:
		return false, refused(api.Contested, "two regions claim the log; both refuse until people decide")
	case l.Home != p.cfg.Self || l.Epoch != h.epoch:
		return false, refused(api.Fenced, "the log's home has moved, or is about to; send it again with the same id")
	case l.Refused != "":
		return false, refused(api.HomeOutsideBoundary, "this region's policy forbids it to be the log's home")
	case l.Status == placement.Opening, l.Status == placement.Moving && l.Op.Unopened:
		return false, refused(api.NotReady, "the log's new home has not opened it yet; send it again with the same id")
	case l.Terms.Isolation == placement.FenceAfter:
		return false, p.holder.Check(h.incarnation, h.epoch, now)
	}
	// A forced move may have fixed where the epoch ends already: what is written now is void then.
	return !p.confirmed(now) || l.Status == placement.Moving && l.Op.Kind == placement.Forced, nil
}

// leased is a home log that takes a record only while this region may write it.
type leased struct {
	regions.HomeLog
	placer *Placer
	home   home
}

// Leased is a home log, opened in an epoch, as publishes see it: what the region may not
// write is refused, and what it could not be sure to be allowed any more when it was
// stored is OUTCOME_UNKNOWN.
func (p *Placer) Leased(log regions.HomeLog, incarnation string, epoch api.Epoch) regions.HomeLog {
	return &leased{log, p, home{incarnation, epoch}}
}

// Append hands a draft to the log's writer.
func (l *leased) Append(d regions.Draft, done func(regions.Stored)) {
	id := l.ID()
	if _, err := l.placer.mayWrite(id, l.home); err != nil {
		go done(regions.Stored{Err: err}) // not on the caller's goroutine: it may hold what done needs
		return
	}
	l.HomeLog.Append(d, func(s regions.Stored) {
		done(l.after(s))
	})
}

// after is what a producer may be told of what the log's writer did, by what this region
// may do now. What was refused by a log that was closed is refused as one that moved: that
// is tried again.
func (l *leased) after(s regions.Stored) regions.Stored {
	unconfirmed, err := l.placer.mayWrite(l.ID(), l.home)
	switch {
	case err == nil:
		s.Unconfirmed = unconfirmed && s.Err == nil
	case s.Err == nil:
		s = regions.Stored{Err: &api.Error{Code: api.OutcomeUnknown, Op: "append", Topic: l.ID().Topic, Region: l.placer.cfg.Self, Log: l.ID(),
			Hint: "this region lost its right to write the log while the record was being stored; send it again with the same id"}}
	case api.CodeOf(s.Err).Stored() == api.StoredNo:
		s.Err = err
	}
	return s
}
