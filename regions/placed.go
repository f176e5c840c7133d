package regions

import (
	"maps"

	"domicile/api"
)

// Placed is where the placement authority put a log.
type Placed struct {
	Home  string
	Epoch api.Epoch
}

// Place lays the authority's word over the manifest: the logs of the map have that home
// and epoch, all others what the manifest gives them. It takes the place of what an
// earlier call said, stays over a Replace, and is the caller's no more. An entry is a hint
// for whoever routes: a home itself refuses what it may not write.
func (f *Federation) Place(logs map[api.LogID]Placed) {
	f.placing.Lock()
	defer f.placing.Unlock()
	if now := f.now.Load(); !maps.Equal(now.placed, logs) {
		f.now.Store(now.with(logs))
	}
}

// slot is one log of a topic, and where it is.
type slot struct {
	slot string
	Placed
}

// with is the manifest under another overlay.
func (s *state) with(placed map[api.LogID]Placed) *state {
	next := *s
	next.placed, next.logs = placed, make(map[string][]slot, len(s.topics))
	for name, t := range s.topics {
		for _, id := range t.logs() {
			first, ok := s.firstHome(id)
			if !ok {
				continue
			}
			p, moved := placed[id]
			if !moved {
				p = Placed{first, api.StaticEpoch(first)}
			}
			next.logs[name] = append(next.logs[name], slot{id.Slot, p})
		}
	}
	return &next
}
