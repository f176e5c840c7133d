package regions

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"domicile/api"
)

// Federation is the manifest in force: the same on every node. Everyone keeps the one
// *Federation and sees a replaced manifest at the next call; what it hands out is never
// changed. Whoever needs answers of one and the same manifest from several calls takes
// a Snapshot. Safe for concurrent use.
type Federation struct {
	now     atomic.Pointer[state]
	placing sync.Mutex // one writer of now at a time
}

func newFederation(s *state) *Federation {
	f := &Federation{}
	f.now.Store(s)
	return f
}

// Replace puts another manifest in force for everyone who holds f. What may change
// while a node runs is for the caller to check (Changes).
func (f *Federation) Replace(next *Federation) {
	f.placing.Lock()
	defer f.placing.Unlock()
	f.now.Store(next.now.Load().with(f.now.Load().placed))
}

// Snapshot is the manifest in force as one that nobody replaces.
func (f *Federation) Snapshot() *Federation { return newFederation(f.now.Load()) }

// Name is the federation's name.
func (f *Federation) Name() string { return f.now.Load().name }

// Digest is the digest of everything in the manifest, in canonical form.
func (f *Federation) Digest() string { return f.now.Load().sum }

// Regions lists all regions by name.
func (f *Federation) Regions() []string { return f.now.Load().regionNames }

// Region returns a region of the map.
func (f *Federation) Region(name string) (Region, bool) {
	r, ok := f.now.Load().regions[name]
	return r, ok
}

// Boundaries lists the boundary names, sorted.
func (f *Federation) Boundaries() []string {
	return slices.Sorted(maps.Keys(f.now.Load().boundaries))
}

// Boundary returns a boundary of the map.
func (f *Federation) Boundary(name string) (Boundary, bool) {
	b, ok := f.now.Load().boundaries[name]
	return b, ok
}

// Neighbours lists the regions of a region's boundary, itself included, by name; none for
// one that lies in no boundary.
func (f *Federation) Neighbours(region string) []string {
	now := f.now.Load()
	return now.boundaries[now.regions[region].Boundary].Regions
}

// Topics lists all topics by name.
func (f *Federation) Topics() []string { return f.now.Load().topicNames }

// Topic returns a topic's declaration. It must not be changed.
func (f *Federation) Topic(name string) (*Topic, bool) {
	t, ok := f.now.Load().topics[name]
	return t, ok
}

// TopicDigest is the digest of one topic's declaration, "" for an unknown topic.
func (f *Federation) TopicDigest(name string) string { return f.now.Load().digests[name] }

// Peers lists the regions that have a link with region, sorted.
func (f *Federation) Peers(region string) []string { return f.now.Load().links[region] }

// Addresses are those of the regions that have a link with region, by name.
func (f *Federation) Addresses(region string) map[string][]string {
	now, all := f.now.Load(), map[string][]string{}
	for _, peer := range now.links[region] {
		r := now.regions[peer]
		all[peer] = r.Links()
	}
	return all
}

// Logs lists the logs of a topic.
func (f *Federation) Logs(t *Topic) []api.LogID { return t.logs() }

func (t *Topic) logs() []api.LogID {
	if t.Writes == WritesHome {
		return []api.LogID{{Tenant: api.DefaultTenant, Topic: t.Name, Slot: api.HomeSlot}}
	}
	logs := make([]api.LogID, 0, len(t.Regions))
	for _, r := range t.Regions {
		logs = append(logs, api.LogID{Tenant: api.DefaultTenant, Topic: t.Name, Slot: r})
	}
	return logs
}

// Placement says who owns a log now. Implementations are safe for concurrent use.
type Placement interface {
	// Home is the region that owns the log and the epoch in which it does. ok is
	// false for a log that the federation does not have.
	Home(log api.LogID) (home string, epoch api.Epoch, ok bool)
}

// Home is where the authority has placed the log, as Place was told last, and else where
// the manifest puts it: a home log at its topic's home, a local one in the region it is
// named after.
func (f *Federation) Home(log api.LogID) (string, api.Epoch, bool) {
	return f.now.Load().home(log)
}

// FirstHome is the region where the manifest puts a log, whether or not it moved since;
// false: the federation has no such log.
func (f *Federation) FirstHome(log api.LogID) (string, bool) { return f.now.Load().firstHome(log) }

func (s *state) home(log api.LogID) (string, api.Epoch, bool) {
	if log.Tenant != api.DefaultTenant {
		return "", api.Epoch{}, false
	}
	for _, l := range s.logs[log.Topic] {
		if l.slot == log.Slot {
			return l.Home, l.Epoch, true
		}
	}
	return "", api.Epoch{}, false
}

func (s *state) firstHome(log api.LogID) (string, bool) {
	t, ok := s.topics[log.Topic]
	if !ok || log.Tenant != api.DefaultTenant {
		return "", false
	}
	home := log.Slot
	if t.Writes == WritesHome {
		if log.Slot != api.HomeSlot {
			return "", false
		}
		home = t.Home
	}
	return home, slices.Contains(t.Regions, home)
}

// Targets lists the regions that get a copy of a log, leaving out regions without a link
// to its home: those of the topic's mirror list, and of a log that moved the region where
// the manifest puts it. Policy decides per record.
func (f *Federation) Targets(log api.LogID) []string {
	return f.now.Load().targets(log)
}

func (s *state) targets(log api.LogID) []string {
	home, _, ok := s.home(log)
	if !ok {
		return nil
	}
	first, _ := s.firstHome(log)
	var targets []string
	for _, r := range s.topics[log.Topic].holders(first) {
		if r != home && slices.Contains(s.links[home], r) {
			targets = append(targets, r)
		}
	}
	return targets
}

// holders lists, by name, the regions that hold a log of the topic, wherever its home is,
// given where the manifest puts it.
func (t *Topic) holders(first string) []string {
	if slices.Contains(t.Mirror, first) {
		return t.Mirror
	}
	return slices.Sorted(slices.Values(append(slices.Clone(t.Mirror), first)))
}

// Differences names the fields in which a peer's declaration of a topic differs
// from ours, each as "field: ours | theirs". Empty when they agree.
func Differences(ours, theirs map[string]string) []string {
	var diffs []string
	for field, v := range ours {
		if theirs[field] != v && theirs[field] != api.Printable(v, MaxFieldText) { // so another region's came in
			diffs = append(diffs, field+": "+quoteEmpty(v)+" | "+quoteEmpty(theirs[field]))
		}
	}
	for field, v := range theirs {
		if _, ok := ours[field]; !ok {
			diffs = append(diffs, field+": absent | "+quoteEmpty(v))
		}
	}
	slices.Sort(diffs)
	return diffs
}

func quoteEmpty(s string) string {
	if s == "" {
		return "(empty)"
	}
	return s
}
