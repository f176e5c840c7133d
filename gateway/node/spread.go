package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/policy/bundle"
	"domicile/regions"
	"domicile/regions/link"
)

// chaseEvery is how often a policy of a peer is asked for again that did not come or could
// not be kept, at pace 1.
const chaseEvery = 5 * time.Second

// word is what a region, or a node of this one, says of its signed policy.
type word struct {
	serial  int64  // that it keeps; 0: none
	signers string // names the set of keys that signed it; "": not said
}

// spurned is a signed policy that this node does not take, and will not without a person or
// more signatures.
type spurned struct {
	word
	why string
}

// spread is a turn as the way by which signed policies come and go over the links.
type spread turn

// Kept hands out the policy that is active here.
func (s *spread) Kept(serial int64) []byte {
	if live := s.policies.signedNow(); live != nil && live.serial() == serial {
		return live.data
	}
	return nil
}

// Met takes a peer's newer policy before anything else passes between the two.
func (s *spread) Met(ctx context.Context, peer string, h regions.Hello, fetch link.Fetch) {
	s.take(ctx, peer, word{h.SignedPolicy, h.PolicySigners}, fetch)
}

// told is what a node says: the signed policy that it hands out, or will once it has looked
// at what it keeps, and the serial beside which nothing older is under way.
func (p *policies) told() (kept word, fenced int64) {
	p.mu.Lock()
	live, fenced := p.live, p.fenced
	p.mu.Unlock()
	if live != nil {
		return word{live.serial(), live.bundle.Signers()}, fenced
	}
	m, err := p.shelf.mark()
	if serials := p.shelf.serials(); err != nil && len(serials) > 0 {
		return word{serial: serials[len(serials)-1]}, 0
	}
	if m == nil {
		return word{}, 0
	}
	return word{serial: m.Serial}, 0
}

// fencedSerial is the serial beside which nothing older is under way on this node; 0: none.
func (p *policies) fencedSerial() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		return 0
	}
	return p.fenced
}

// chase takes newer policies of peers while the links are up, until the turn is over.
func (t *turn) chase() {
	ctx, cancel := context.WithCancel(t.life)
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(t.seams.Pace.Of(chaseEvery))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.newer:
			case <-tick.C:
			}
			for _, l := range t.mesh.Statuses() {
				if l.Up && l.Hello != nil {
					t.take(ctx, l.Peer, word{l.Hello.SignedPolicy, l.Hello.PolicySigners}, func(ctx context.Context, serial int64) ([]byte, error) {
						return t.mesh.FetchPolicy(ctx, l.Peer, serial)
					})
				}
			}
		}
	})
	t.onClose("taking of policies", func(context.Context) error {
		cancel()
		work.Wait()
		return nil
	})
}

// take brings a signed policy that is newer than the one here, or more signatures of this
// one, from a peer or another node of the region. One that is not taken is not asked for
// again before it has other signatures.
func (n *Node) take(ctx context.Context, from string, w word, fetch link.Fetch) {
	p := n.policies
	if !p.wants(from, w) {
		return
	}
	err := n.bring(ctx, from, w.serial, fetch)
	if err != nil {
		n.logger.Warn("a newer policy of others is not active here", "from", from, "serial", w.serial, "err", err)
		if ctx.Err() != nil {
			return // there was no time to judge it: that says nothing of the policy
		}
	}
	code := api.CodeOf(err)
	if err == nil || (code == api.PolicyError || code == api.ConfigInvalid) && !errors.Is(err, bundle.ErrNotYetValid) {
		p.met(from, w, err)
	}
}

// bring fetches and activates a signed policy of others. It is verified as one that an
// operator brings: their word counts for nothing. Its time may be over: what it took away
// must not come back here because it was missed.
func (n *Node) bring(ctx context.Context, from string, serial int64, fetch link.Fetch) error {
	if len(n.policies.trust.Keys) == 0 {
		return refusePolicy("policy.keys", "", "this region trusts nobody to sign: there are no keys under policy in node.yaml", bundle.ErrWrongKey)
	}
	data, err := fetch(ctx, serial)
	if err == nil {
		_, err = n.policies.activate(ctx, data, true, func(next *signed) (func(error), error) { return n.auditPolicy(ctx, next, from) })
	}
	return err
}

// wants reports whether a policy of others is worth asking for.
func (p *policies) wants(from string, w word) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.serial == 0 || p.live != nil && p.live.serial() >= w.serial {
		delete(p.spurned, from)
	}
	switch {
	case w.serial == 0 || p.live != nil && p.live.serial() > w.serial:
		return false
	case p.live != nil && p.live.serial() == w.serial:
		return w.signers != "" && w.signers != p.live.bundle.Signers() && p.merged[from] != w
	}
	return p.spurned[from].word != w
}

// met notes what came of a policy of others, so that it is not asked for again.
func (p *policies) met(from string, w word, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.live != nil && p.live.serial() >= w.serial:
		p.merged[from] = w
	case err != nil:
		p.spurned[from] = spurned{w, err.Error()}
	}
}

func sortedNames(m map[string]spurned) []string { return slices.Sorted(maps.Keys(m)) }
