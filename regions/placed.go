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

// with is the manifest under another overlay.
func (s *state) with(placed map[api.LogID]Placed) *state {
	next := *s
	next.placed = placed
	return &next
}
