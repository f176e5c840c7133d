package council

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

const (
	renewBatch = time.Second            // one renewal entry in this time
	lapseCheck = 250 * time.Millisecond // how often the leader looks for leases that ran out
	// spreadTimeout is the longest that a leader waits to say that an entry counts.
	spreadTimeout = 50 * time.Millisecond
	lookEvery     = 5 * time.Second // how often a founded authority greets the regions of the one before
	maxWaiters    = 1024            // renewals that wait for the next batch
)

// govern does a leader's duties while this voter leads.
func (v *Voter) govern(notify <-chan bool) {
	var term sync.WaitGroup
	end := func() {}
	defer func() { end(); term.Wait() }()
	for {
		select {
		case leading := <-notify:
			end()
			term.Wait()
			ctx, cancel := context.WithCancel(v.ctx)
			end = cancel
			if leading {
				term.Go(func() { v.lead(ctx) })
			}
		case <-v.ctx.Done():
			return
		}
	}
}

// lead is one term of leadership.
func (v *Voter) lead(ctx context.Context) {
	defer v.renewals.close()
	if !v.settle(ctx) {
		return
	}
	v.machine.elected()
	v.renewals.open()
	renew, lapse := time.NewTicker(v.cfg.Pace.Of(renewBatch)), time.NewTicker(v.cfg.Pace.Of(lapseCheck))
	defer renew.Stop()
	defer lapse.Stop()
	for changed := v.machine.next(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			changed = v.machine.next()
			v.spread()
		case <-renew.C:
			v.renewBatch(ctx)
		case <-lapse.C:
			v.proveLapses(ctx)
		}
	}
}

// spread has the other voters hear at once what was decided: they learn that an entry counts
// from the next one, which else may be up to a second away. A move has five such steps.
func (v *Voter) spread() {
	v.raft.Barrier(v.cfg.Pace.Of(spreadTimeout)) // if it does not go, they hear it later
}

// settle waits until this voter has applied all that earlier leaders committed, and founds
// the authority if nobody has.
func (v *Voter) settle(ctx context.Context) bool {
	err := again(ctx, v.cfg.Pace.Of(retryEvery), func() (bool, error) {
		if err := v.raft.Barrier(v.cfg.Pace.Of(lineTimeout)).Error(); err != nil {
			return false, noLeader()
		}
		if v.greeting().Generation > 0 || len(v.mark.Founding) == 0 {
			return false, nil
		}
		_, sent, err := v.propose(ctx, v.mark.Founding)
		return sent, err
	})
	if err != nil && ctx.Err() == nil {
		v.cfg.Log.Error("the authority cannot be founded", "err", err)
	}
	return err == nil
}

// lookOut greets the regions of the founding before, and those that were found to belong to
// another, so that two authorities that live side by side learn of each other and of their
// end; who leads takes in what the earlier one decided meanwhile.
func (v *Voter) lookOut() {
	every := time.NewTicker(v.cfg.Pace.Of(lookEvery))
	defer every.Stop()
	for {
		for _, region := range v.strangers() {
			var theirs hello
			conn, err := open(v.ctx, v.cfg.Lines, region, v.hello(greet), func(name string, h hello) { v.heard(name, h); theirs = h })
			if err != nil {
				continue
			}
			_ = conn.Close() // greeted
			if v.raft.State() == raft.Leader {
				v.meetOnce(v.ctx, region, theirs)
			}
		}
		select {
		case <-every.C:
		case <-v.ctx.Done():
			return
		}
	}
}

// strangers are the regions that may belong to another founding.
func (v *Voter) strangers() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := slices.Concat(v.mark.Others, slices.Collect(maps.Keys(v.rivals)))
	slices.Sort(all)
	return slices.Compact(all)
}

// meetOnce takes in what a region of an earlier founding says, unless that was done.
func (v *Voter) meetOnce(ctx context.Context, region string, theirs hello) {
	theirs = hello{Authority: theirs.Authority, Generation: theirs.Generation, After: theirs.After} // what there is to take in
	if theirs.Authority == v.mark.Authority || theirs.Generation == 0 || theirs.Generation >= v.greeting().Generation || v.met[region] == theirs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := v.Meet(ctx, region, "authority", "its regions belonged to an earlier founding")
	if err != nil {
		if ctx.Err() == nil {
			v.cfg.Log.Error("what an earlier authority decided cannot be taken in whole", "region", region, "err", err)
		}
		return
	}
	v.met[region] = theirs
	v.cfg.Log.Warn("an earlier authority was met", "region", region, "contested", len(c.Contested()))
}

func (v *Voter) proveLapses(ctx context.Context) {
	for _, c := range v.machine.lapses(v.raft.CurrentTerm()) {
		data, err := c.Encode()
		if err == nil {
			_, _, err = v.propose(ctx, data)
		}
		if err != nil && ctx.Err() == nil {
			v.cfg.Log.Warn("a lapsed lease could not be noted", "op", c.Op, "err", err)
		}
	}
}

// renewBatch renews the leases of all regions that asked, in one entry. Nothing is answered
// before it is committed: a leader that was replaced cannot commit, whatever it believes.
func (v *Voter) renewBatch(ctx context.Context) {
	waiting := v.renewals.take()
	if len(waiting) == 0 {
		return
	}
	grants, err := v.renewRegions(ctx, slices.Sorted(maps.Keys(waiting)))
	for region, list := range waiting {
		g, ok := grants[region]
		e := err
		if e == nil && !ok {
			e = &api.Error{Code: api.Overloaded, Op: "renew", Region: region, Hint: "more regions than the authority serves"}
		}
		for _, w := range list {
			w <- renewed{g, e}
		}
	}
}

func (v *Voter) renewRegions(ctx context.Context, regions []string) (map[string]placement.Grant, error) {
	needed, generation := false, uint32(0)
	v.machine.read(func(s *placement.State) { needed, generation = s.Leases(), s.Generation() })
	grants := map[string]placement.Grant{}
	if !needed {
		// No log needs a lease: this grants none, so it costs no entry.
		for _, r := range regions {
			grants[r] = placement.Grant{Region: r, Generation: generation, Digest: placement.CoverDigest(nil)}
		}
		return grants, v.contested()
	}
	data, err := placement.Command{Verb: placement.Renew, Regions: regions}.Encode()
	if err != nil {
		return nil, err
	}
	r, _, err := v.propose(ctx, data)
	for _, g := range r.Grants {
		grants[g.Region] = g
	}
	return grants, err
}

// renewed is what a renewal came to.
type renewed struct {
	grant placement.Grant
	err   error
}

// renewals are the regions that wait for the leader's next batch.
type renewals struct {
	mu      sync.Mutex
	leading bool
	waiting map[string][]chan renewed
	count   int
}

func (r *renewals) init() { r.waiting = map[string][]chan renewed{} }

func (r *renewals) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading = true
}

// isOpen reports whether this voter leads and has applied all that earlier leaders committed.
func (r *renewals) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading
}

// close sends everyone who waits to the next leader.
func (r *renewals) close() {
	r.mu.Lock()
	r.leading = false
	r.mu.Unlock()
	for _, list := range r.take() {
		for _, w := range list {
			w <- renewed{err: noLeader()}
		}
	}
}

func (r *renewals) take() map[string][]chan renewed {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.waiting
	r.waiting, r.count = map[string][]chan renewed{}, 0
	return taken
}

func (r *renewals) join(region string) (<-chan renewed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.leading:
		return nil, noLeader()
	case r.count >= maxWaiters, len(r.waiting) >= placement.MaxRegions && r.waiting[region] == nil:
		return nil, &api.Error{Code: api.Overloaded, Op: "renew", Region: region, Hint: "too many renewals wait; ask again"}
	}
	w := make(chan renewed, 1)
	r.waiting[region], r.count = append(r.waiting[region], w), r.count+1
	return w, nil
}

// Renew prolongs this region's leases. Count them from before the call.
func (v *Voter) Renew(ctx context.Context) (placement.Grant, error) {
	return v.renew(ctx, v.mark.Region)
}

func (v *Voter) renew(ctx context.Context, region string) (g placement.Grant, err error) {
	err = again(ctx, v.cfg.Pace.Of(retryEvery), func() (bool, error) {
		if err := v.contested(); err != nil {
			return false, err
		}
		leader := v.leader()
		var err error
		if leader == "" && region == v.mark.Region {
			g, err = v.renewElsewhere(ctx, region)
			return false, err
		}
		if leader == "" { // it has gone since; elsewhere another region's renewal is no business of ours
			return false, noLeader()
		}
		if leader == v.mark.Region {
			g, err = v.renewHere(ctx, region)
			return false, err
		}
		answer, _, err := ask(ctx, v.cfg.Lines, leader, v.greeting(), v.heard, request{Renew: region, Forwarded: true})
		g = answer.Grant
		return false, err
	})
	return g, err
}

// renewElsewhere asks the other voters, one of which may hear a leader that this one does not:
// a link that is cut must not stop logs that need a lease.
func (v *Voter) renewElsewhere(ctx context.Context, region string) (g placement.Grant, err error) {
	err = noLeader()
	others := v.others()
	for i, other := range others {
		share := v.cfg.Pace.Of(lineTimeout)
		if end, ok := ctx.Deadline(); ok {
			share = min(share, time.Until(end)/time.Duration(len(others)-i))
		}
		at, cancel := context.WithTimeout(ctx, share)
		answer, _, failed := ask(at, v.cfg.Lines, other, v.greeting(), v.heard, request{Renew: region})
		cancel()
		if failed == nil {
			return answer.Grant, nil
		}
		err = failed
	}
	return g, err
}

// renewHere waits for the next batch of this voter, if it leads.
func (v *Voter) renewHere(ctx context.Context, region string) (placement.Grant, error) {
	if err := v.contested(); err != nil {
		return placement.Grant{}, err
	}
	w, err := v.renewals.join(region)
	if err != nil {
		return placement.Grant{}, err
	}
	select {
	case r := <-w:
		return r.grant, r.err
	case <-ctx.Done():
		return placement.Grant{}, unknown(ctx.Err())
	}
}
