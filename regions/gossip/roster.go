package gossip

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// strangersPerRegion is how many gateways of a region may be listed that the manifest does
// not name: enough to notice that it misses some, and a bound for whoever invents names.
const strangersPerRegion = 4

// roster says which names may be members. memberlist calls it under its own lock; it calls
// nothing.
type roster struct {
	self     string
	gateways map[string][]string // by the manifest; of linked regions and this one; fixed
	forget   time.Duration       // how long memberlist may remember a name after its last news
	now      func() time.Time

	mu      sync.Mutex
	strange map[string]time.Time // names that the manifest does not have → last news
	refused uint64
}

func newRoster(self string, gateways map[string][]string, forget time.Duration, now func() time.Time) *roster {
	return &roster{self: self, gateways: gateways, forget: forget, now: now, strange: map[string]time.Time{}}
}

// NotifyAlive refuses names of regions that have no link with this one, addresses that are
// not those of the region in the name, and more invented names than are bounded.
func (r *roster) NotifyAlive(n *memberlist.Node) error {
	err := r.admit(n)
	if err != nil {
		r.mu.Lock()
		r.refused++
		r.mu.Unlock()
	}
	return err
}

func (r *roster) admit(n *memberlist.Node) error {
	gateway, region := split(n.Name)
	named, known := r.gateways[region]
	switch {
	case !known:
		return fmt.Errorf("no linked region is named %.70q", region)
	case !n.Addr.Equal(addressOf(region)) || n.Port != port:
		return fmt.Errorf("%s is not where region %s is", n.FullAddress().Addr, region)
	case n.Name == r.self || slices.Contains(named, gateway):
		return nil
	case len(n.Name) > 200 || len(n.Meta) > 0:
		return fmt.Errorf("a member says more than its name")
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.strange, func(_ string, last time.Time) bool { return now.Sub(last) > r.forget })
	if _, listed := r.strange[n.Name]; !listed {
		others := 0
		for name := range r.strange {
			if _, of := split(name); of == region {
				others++
			}
		}
		if others >= strangersPerRegion {
			return fmt.Errorf("%d gateways of %s are listed that the manifest does not name", others, region)
		}
	}
	r.strange[n.Name] = now
	return nil
}

func (r *roster) turnedAway() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}
