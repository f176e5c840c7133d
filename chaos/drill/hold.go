package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// hold is what the drill holds at the nodes, and who renews it.
type hold struct {
	run    *run
	nodes  []*Node // all of the regions that take part
	stop   context.CancelCauseFunc
	broken context.Context // ends, with the cause, when the drill can't go on
	end    context.CancelFunc
	work   sync.WaitGroup

	told  sync.Once     // that a certificate has ended
	since time.Duration // when all were armed, by the history

	mu     sync.Mutex
	lapsed map[string]string // node → how it lost the drill by itself

	left map[string]history.Figure // log and target → room to loss, as last said; watch's until work is done
}

// arm asks every node of both sides, all or none, and begins to renew.
func (r *run) arm(ctx context.Context) (*hold, error) {
	nodes, err := members(r.Nodes, &r.Plan)
	if err != nil {
		return nil, err
	}
	h := &hold{run: r, nodes: nodes, lapsed: map[string]string{}, left: map[string]history.Figure{}}
	err = r.phase(ctx, history.Arm, armWithin, func(ctx context.Context) error {
		return all(ctx, h.nodes, func(ctx context.Context, n *Node) error {
			return r.gate(n, history.ActArm, func() error { return r.armOne(ctx, n, false) })
		})
	})
	if err != nil {
		h.release(context.WithoutCancel(ctx))
		return nil, err
	}
	h.broken, h.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	h.end, h.since = end, r.history.Now()
	for _, n := range h.nodes {
		h.work.Go(func() { h.renew(renewing, n) })
	}
	h.work.Go(func() { h.watch(renewing) })
	return h, nil
}

// gate asks one node something of its gate, and notes when it was asked and what it said.
func (r *run) gate(n *Node, act string, ask func() error) error {
	asked := r.history.Now()
	err := ask()
	r.note(history.Event{Region: n.Region, Gate: &history.Gate{Node: n.Name, Act: act, OK: err == nil, Asked: asked, Lease: r.Plan.Lease, Text: text(err)}})
	return err
}

// request is what nodes are asked to hold.
func (r *run) request(dryRun bool) *pb.ArmDrillRequest {
	p := &r.Plan
	return &pb.ArmDrillRequest{Id: r.ID, Reason: p.Reason, Approvals: r.Approvals, DryRun: dryRun, Spec: p.Spec()}
}

// armOne asks one node to hold the drill. A node that does not know the plan's gate is of an
// older version, and would use another.
func (r *run) armOne(ctx context.Context, n *Node, dryRun bool) error {
	s, err := n.Admin.ArmDrill(ctx, r.request(dryRun))
	if err == nil && r.Plan.Gate == gateFilter && s.GetSpec().GetGate() != gateFilter {
		err = &api.Error{Code: api.VersionMismatch, Op: "arm drill", Region: n.Region, Field: "gate", Value: r.Plan.Gate, Hint: "the node does not know that gate: upgrade it first, or say gate: process"}
	}
	return err
}

// Spec is what nodes are asked to hold: the plan's cut, and as long as it may last with
// the time to heal it.
func (p *Plan) Spec() *pb.DrillSpec {
	return &pb.DrillSpec{Isolate: p.Isolate, Peers: p.Peers, Planes: p.Planes, Direction: p.Direction, Fault: p.Fault, Gate: p.Gate, LeaseNano: int64(p.Lease), ForNano: int64(p.For + p.Lease)}
}

// cut begins the fault at every node.
func (h *hold) cut(ctx context.Context) error {
	r := h.run
	r.cutAt = r.Clock.Now()
	return all(ctx, h.nodes, func(ctx context.Context, n *Node) error {
		return r.gate(n, history.ActCut, func() error {
			_, err := n.Admin.CutDrill(ctx, r.ID)
			return err
		})
	})
}

// renew keeps one node's lease alive until ctx ends. The first node that is lost ends the
// drill.
func (h *hold) renew(ctx context.Context, n *Node) {
	every := h.run.Plan.Lease / renewalParts
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, hurried := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, every)
		began, asked := time.Now(), h.run.history.Now()
		state, err := n.Admin.RenewDrill(within, h.run.ID)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = began
			if hurried { // else the pace is kept, however long answers take
				hurried = false
				tick.Reset(every)
			}
			h.run.note(history.Event{Region: n.Region, Gate: &history.Gate{Node: n.Name, Act: history.ActRenew, OK: true, Asked: asked, Lease: h.run.Plan.Lease}})
			h.foreign(n.Region, state.GetCuts())
		case api.CodeOf(err) == api.Conflict:
			h.lost(n, err)
			return
		case time.Since(last) > h.run.Plan.Lease:
			h.lost(n, unheard(err))
			return
		default: // sooner than it would be due: of the lease a third has passed already
			h.ended(err)
			hurried = true
			tick.Reset(every / 4)
		}
	}
}

// lost says that a node does not hold the drill any more although nobody here ended it.
func (h *hold) lost(n *Node, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	how := "lapsed" // nobody could say otherwise
	if s, asked := n.Admin.DrillStatus(ctx); asked == nil {
		if how = "lost"; s.GetLast().GetId() == h.run.ID {
			how = s.GetLast().GetHow()
		}
	}
	if how == "healed" {
		h.run.note(history.Event{Region: n.Region, Gate: &history.Gate{Node: n.Name, Act: history.ActEnded, OK: true}})
		h.stop(fmt.Errorf("somebody healed it at %s", n.title()))
		return
	}
	h.lapse(n, how)
	h.run.note(history.Event{Region: n.Region, Gate: &history.Gate{Node: n.Name, Act: history.ActLapsed, Text: how + ": " + err.Error()}})
	h.stop(fmt.Errorf("%s does not hold the drill any more (%s): %w", n.title(), how, err))
}

// lapse notes that a node lost the drill by itself.
func (h *hold) lapse(n *Node, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lapsed[n.title()] = how
}

// foreign ends the drill when a gate is held that is not its own.
func (h *hold) foreign(region string, cuts []*pb.DrillCut) {
	for _, c := range cuts {
		if c.GetDrill() != h.run.ID {
			h.outside(region, c.GetPeer(), "a fault gate that is not the drill's holds the link: "+c.GetFault())
			return
		}
	}
}

func (h *hold) outside(region, peer, what string) {
	h.run.note(history.Event{Region: region, Outside: &history.Outside{Peer: peer, Text: what}})
	h.stop(fmt.Errorf("a fault outside the plan at %s, towards %s: %s", region, peer, what))
}

// watch looks for what the plan says to stop at, and for links that are down without it.
func (h *hold) watch(ctx context.Context) {
	down := map[string]int{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.slow()
		for _, region := range h.run.found.regions() {
			asked, cancel := context.WithTimeout(ctx, answerWithin)
			n, err := h.run.seat(asked, region)
			var status *pb.StatusResponse
			if err == nil {
				status, err = n.Admin.Status(asked)
			}
			if err == nil {
				err = n.Admin.Lag(asked, &pb.LagRequest{}, func(m *pb.LagResponse) error { h.room(region, m); return nil })
			}
			cancel()
			if err != nil {
				continue // a node that can't be reached can't renew either
			}
			h.storage(region, status)
			for _, l := range status.GetLinks() {
				key := region + " " + l.GetPeer()
				if l.GetState() != "down" || h.run.cuts(region, l.GetPeer()) {
					down[key] = 0
					continue
				}
				if down[key]++; down[key] == downFor {
					h.outside(region, l.GetPeer(), "the link is down: "+l.GetReason())
				}
			}
		}
	}
}

// downFor is how many looks in a row a link is down that is called down.
const downFor = 3

// cuts reports whether the drill cuts the link between two regions.
func (r *run) cuts(a, b string) bool {
	return a == r.Plan.Isolate && slices.Contains(r.Plan.Peers, b) || b == r.Plan.Isolate && slices.Contains(r.Plan.Peers, a)
}

func (h *hold) storage(region string, s *pb.StatusResponse) {
	limit := float64(h.run.Plan.StopWhen.StorageAbove)
	if used, most := s.GetStorage().GetUsedBytes(), s.GetStorage().GetLimitBytes(); most > 0 && float64(used)*100/float64(most) > limit {
		h.condition("storage above, percent", region, float64(used)*100/float64(most), limit)
	}
	if s.GetStorage() != nil && !s.GetStorage().GetHealthy() {
		h.condition("storage healthy", region, 0, 1)
	}
}

func (h *hold) room(region string, m *pb.LagResponse) {
	limit := h.run.Plan.StopWhen.RoomBelow.Seconds()
	for _, l := range m.GetLogs() {
		log := l.GetLog().GetTopic() + "@" + l.GetLog().GetSlot()
		key := log + " " + l.GetTarget()
		if l.GetLossState() != string(regions.LossAhead) && l.GetLossState() != string(regions.LossRefusal) {
			if region == l.GetHome() {
				delete(h.left, key)
			}
			continue
		}
		h.left[key] = history.Figure{Name: history.RoomAtHeal, Log: log, Target: l.GetTarget(), Value: l.GetLossSeconds(), Unit: "s", Basis: "the home's word, at the rates of the cut: " + l.GetLossState()}
		if l.GetLossSeconds() < limit {
			h.condition("room below, seconds, of "+log, region, l.GetLossSeconds(), limit)
		}
	}
}

// How long acknowledgements take is that of the last so many seconds, and of no fewer.
const (
	ackWindow = 10 * time.Second
	ackEnough = 100
)

// slow looks at how long acknowledgements took that came under the cut.
func (h *hold) slow() {
	if p99, over := h.run.slow(h.since); over {
		h.condition("ack p99 above, seconds", "", p99.Seconds(), h.run.Plan.StopWhen.AckP99.Seconds())
	}
}

// slow reports whether acknowledgements of the last seconds, none from before since, took
// longer than the plan bears, if they are enough to say.
func (r *run) slow(since time.Duration) (p99 time.Duration, over bool) {
	limit := r.Plan.StopWhen.AckP99
	p99, of := r.oracle.AckP99(max(r.history.Now()-ackWindow, since))
	return p99, limit > 0 && of >= ackEnough && p99 > limit
}

func (h *hold) condition(what, region string, value, limit float64) {
	h.run.note(history.Event{Region: region, Stop: &history.Stop{Condition: what, Value: value, Limit: limit}})
	if region != "" {
		what += ", at " + region
	}
	h.stop(fmt.Errorf("stopped: %s: %.1f, the plan stops at %.1f", what, value, limit))
}

// heal ends the drill everywhere and looks whether it is gone. The error says that it was
// not under control to its end.
func (r *run) heal(ctx context.Context, h *hold) error {
	h.end()
	h.work.Wait()
	h.stop(nil)
	for _, key := range slices.Sorted(maps.Keys(h.left)) {
		f := h.left[key]
		r.note(history.Event{Measured: &f})
	}
	var lapsed error
	err := r.phase(ctx, history.Heal, healWithin, func(ctx context.Context) error {
		err := h.release(ctx)
		for node, how := range h.lapsed {
			lapsed = errors.Join(lapsed, fmt.Errorf("%s lost the drill by itself (%s)", node, how))
		}
		return err
	})
	r.healed = r.Clock.Now()
	return errors.Join(lapsed, err)
}

// release heals every node, and tries again those that do not answer, until ctx ends or
// the lease must have ended them.
func (h *hold) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(h.run.Plan.Lease, healWithin/2))
	defer cancel()
	left := slices.Clone(h.nodes)
	for {
		// All at once: while one was waited for, the lease of the next would run out.
		errs := make([]error, len(left))
		var asked sync.WaitGroup
		for i, n := range left {
			asked.Go(func() { errs[i] = h.healOne(ctx, n) })
		}
		asked.Wait()
		last, still := errors.Join(errs...), left[:0]
		for i, n := range left {
			if errs[i] != nil {
				still = append(still, n)
			}
		}
		if left = still; len(left) == 0 {
			return nil
		}
		if err := pass(ctx, watchEvery/4); err != nil {
			return fmt.Errorf("not healed by word, and so by the end of the lease: %w", last)
		}
	}
}

// healOne heals one node and looks that its gates hold nothing of the drill.
func (h *hold) healOne(ctx context.Context, n *Node) error {
	r := h.run
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return r.gate(n, history.ActHeal, func() error {
		s, err := n.Admin.HealDrill(ctx, r.ID)
		if how := s.GetLast().GetHow(); err == nil && s.GetLast().GetId() == r.ID && how != "healed" {
			h.lapse(n, how)
		}
		if api.CodeOf(err) == api.Conflict { // it is held there no more
			err = nil
		}
		if err != nil {
			return err
		}
		s, err = n.Admin.DrillStatus(ctx)
		if err == nil && (s.GetId() == r.ID || slices.ContainsFunc(s.GetCuts(), func(c *pb.DrillCut) bool { return c.GetDrill() == r.ID })) {
			err = fmt.Errorf("%s still holds a gate of it", n.title())
		}
		return err
	})
}
