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

// spurned is a peer's signed policy that this region does not take, and will not without a
// person.
type spurned struct {
	serial int64
	why    string
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
	s.take(ctx, peer, h.SignedPolicy, fetch)
}

// told is what a hello says: the signed policy that is handed out, and the one beside
// which nothing older is under way.
func (p *policies) told() (kept, fenced int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		return 0, 0
	}
	return p.live.serial(), p.fenced
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
					(*spread)(t).take(ctx, l.Peer, l.Hello.SignedPolicy, func(ctx context.Context, serial int64) ([]byte, error) {
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

// take fetches and activates a peer's signed policy if it is newer than the one here. It
// is verified as one that an operator brings: the peer's word counts for nothing. Its time
// may be over: what it took away must not come back here because it was missed.
func (s *spread) take(ctx context.Context, peer string, serial int64, fetch link.Fetch) {
	p := s.policies
	if !p.wants(peer, serial) {
		return
	}
	if len(p.trust.Keys) == 0 {
		p.spurn(peer, serial, errors.New("this region trusts nobody to sign: there are no keys under policy in node.yaml"))
		return
	}
	data, err := fetch(ctx, serial)
	if err == nil {
		_, err = p.activate(ctx, data, true, func(next *signed) (func(error), error) { return s.auditPolicy(ctx, next, peer) })
	}
	if err == nil {
		return
	}
	s.logger.Warn("a peer's newer policy is not active here", "peer", peer, "serial", serial, "err", err)
	if code := api.CodeOf(err); (code == api.PolicyError || code == api.ConfigInvalid) && !errors.Is(err, bundle.ErrNotYetValid) {
		p.spurn(peer, serial, err)
	}
}

// wants reports whether a peer's policy is worth asking for.
func (p *policies) wants(peer string, serial int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if serial == 0 || p.live != nil && p.live.serial() >= serial {
		delete(p.spurned, peer)
		return false
	}
	return p.spurned[peer].serial != serial
}

func (p *policies) spurn(peer string, serial int64, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spurned[peer] = spurned{serial, why.Error()}
}

func sortedNames(m map[string]spurned) []string { return slices.Sorted(maps.Keys(m)) }
