package node

import (
	"context"
	"fmt"
	"time"

	"domicile/regions"
)

// warnBefore is how long before the end of a policy's time status begins to warn, and
// then again.
var warnBefore = [...]time.Duration{24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// warnEnd logs once that the active policy ends within the next of those times.
func (p *policies) warnEnd() {
	left, ok := p.left()
	near := time.Duration(0)
	for _, before := range warnBefore {
		if ok && near == 0 && left <= before {
			near = before
		}
	}
	if near != p.warned {
		if p.warned = near; near > 0 {
			s := p.signedNow()
			p.logger.Warn("the policy ends soon: nothing crosses a border from then on", "serial", s.serial(), "within_days", int(near.Hours()/24), "valid_until", until(s))
		}
	}
}

// left is how long the active signed policy is still valid; false without one, or once it
// has lapsed.
func (p *policies) left() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil || p.active == nil || p.active.Generation.HasLapsed() {
		return 0, false
	}
	return max(0, p.live.bundle.Manifest.ValidUntil.Sub(p.clock.Now())), true
}

// untilChange is how long the active policy decides as it does now; false when nothing is
// scheduled.
func (p *policies) untilChange() (time.Duration, bool) {
	left, ok := p.left()
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok && len(p.active.Later) > 0 {
		left = min(left, max(0, p.active.Later[0].From.Sub(p.clock.Now())))
	}
	return left, ok
}

// lapsed reports whether the time of the active policy is over.
func (p *policies) lapsed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live != nil && p.active != nil && p.active.Generation.HasLapsed()
}

// turnOver puts in force what the active policy has scheduled for now: its next step, which
// was judged when it was activated, or the end of its time.
func (p *policies) turnOver(ctx context.Context) {
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return // the next look tries again
	}
	defer end()
	if wait, ok := p.untilChange(); !ok || wait > 0 {
		return // another one is active by now
	}
	s, next := p.signedNow(), *p.activePolicy()
	if left, _ := p.left(); left == 0 {
		if n := len(next.Later); n > 0 {
			next = *next.Later[n-1]
		}
		next.Later, next.Generation = nil, next.Generation.Lapsed(p.federation.Snapshot(), until(s))
		p.logger.Error("the policy's time is over: nothing crosses a border until another one is activated", "serial", s.serial(), "valid_until", until(s))
	} else {
		later := next.Later
		next = *later[0]
		next.Later = later[1:]
		p.logger.Info("an exception or a mechanism begins or ends", "revision", next.Generation.Revision)
	}
	if err := p.flip(ctx, &next, s); err != nil {
		p.logger.Warn("what was judged before is still under way", "err", err)
	}
}

// settle notes that nothing older is under way beside the signed policy, if whoever
// activated it did not wait for that.
func (p *policies) settle() {
	p.mu.Lock()
	done := p.live != nil && p.fenced < p.live.serial() && p.gate.Out() == 0
	if done {
		p.fenced = p.live.serial()
	}
	p.mu.Unlock()
	if done {
		p.changed()
	}
}

// warnings are what an operator should do about the policy in time.
func (p *policies) warnings() []string {
	var out []string
	if p.lapsed() {
		s := p.signedNow()
		out = append(out, fmt.Sprintf("policy %d was valid until %s: nothing crosses a border until another one is activated", s.serial(), until(s)))
	}
	if left, ok := p.left(); ok {
		for _, before := range warnBefore {
			if left <= before {
				s := p.signedNow()
				out = append(out, fmt.Sprintf("policy %d ends in %s, at %s: nothing crosses a border from then on; build, sign and activate one with a higher serial", s.serial(), regions.Span(left), until(s)))
				break
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range sortedNames(p.spurned) {
		r := p.spurned[peer]
		out = append(out, fmt.Sprintf("policy %d of %s is not taken here: %s", r.serial, peer, r.why))
	}
	return out
}
