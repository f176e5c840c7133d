package demo

import (
	"context"
	"fmt"
	"sync"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
)

// probing is what is being sent past egress on purpose, and where the rules' verdict
// is forced to allow. It is safe for concurrent use.
type probing struct {
	mu      sync.Mutex
	log     string
	targets []string
	forceAt string
	probes  []probed
}

// probed is a resident record that was sent where it may not rest.
type probed struct {
	place  place
	target string
	check  string
	id     string
}

func (p *probing) past(log api.LogID, target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if log.String() != p.log {
		return false
	}
	for _, t := range p.targets {
		if t == target {
			return true
		}
	}
	return false
}

func (p *probing) forced(region string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forceAt == region
}

func (p *probing) set(log, forceAt string, targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log, p.forceAt, p.targets = log, forceAt, targets
}

// probe sends a US order past egress, to see arrival refuse it; then once more to a
// region in which the rules say yes to everything, to see the boundary refuse it.
func (r *run) probe(ctx context.Context) error {
	r.say("Two probes: a US order is sent out of us-east although it may not leave.")
	log := shop.Orders + "@" + usRegion
	defer r.probing.set("", "")
	r.probing.set(log, "", cutRegion, idleRegion)
	if err := r.smuggle(ctx, CheckIngressRefuses, cutRegion, idleRegion); err != nil {
		return err
	}
	r.probing.set(log, idleRegion, idleRegion)
	if err := r.lab.Region(idleRegion).Restart(ctx); err != nil {
		return err
	}
	if err := r.lab.Linked(ctx); err != nil {
		return err
	}
	return r.smuggle(ctx, CheckFloorRefuses, idleRegion)
}

// smuggle publishes one resident record and waits until the copies at the targets
// have dealt with it, one way or the other.
func (r *run) smuggle(ctx context.Context, check string, targets ...string) error {
	s := shop.New(usRegion, r.lab.Federation, r.tokens)
	p := s.Pack(shop.Ware{Topic: shop.Orders, Class: "order", Residency: "us", Local: true})
	e := r.traffic.publish(ctx, r.doors[usRegion], p)
	if e.Outcome != ledger.Acked {
		return fmt.Errorf("the probe for %s was not taken: %s %s", check, e.Outcome, e.Code)
	}
	for _, target := range targets {
		r.probing.probes = append(r.probing.probes, probed{place{e.Log, e.Sequence}, target, check, e.ID})
	}
	return r.caughtUp(ctx)
}

// judgeProbes looks at what the targets' disks hold in place of each probe.
func (r *run) judgeProbes(stores map[string]*store) {
	for _, p := range r.probing.probes {
		gap, ok := stores[p.target].gapAt(p.place)
		switch {
		case !ok:
			r.result.verdict(p.check, false, fmt.Sprintf("%s holds the record, or nothing in its place", p.target))
		case gap.Side != "ingress" || !gap.Code.Refusal():
			r.result.verdict(p.check, false, fmt.Sprintf("%s: it was withheld at %s with %s, not refused on arrival", p.target, gap.Side, gap.Code))
		default:
			r.result.verdict(p.check, true, "")
		}
	}
}
