package fabric

import (
	"maps"
	"slices"
)

const crowdedHere = "the data volume of this node is full, and another node's is not"

// ails: this node should hold no seat while another can. It says so in its answers to
// pings.
func (f *Fabric) ails() bool {
	return f.failure.Load() != nil || f.unfit.Load() || f.isFull()
}

// failed: this node's store takes nothing more until it is started again.
func (f *Fabric) failed() bool {
	x := f.failure.Load()
	return x != nil && !x.passes
}

// isFull: appends are refused for want of room on the data volume.
func (f *Fabric) isFull() bool {
	v := f.volume()
	return v.Known && !v.Low.IsZero()
}

// crowded: appends are refused here for want of room, and a sibling would take them.
// While all are full, whoever holds the seat keeps it, for the readers.
func (f *Fabric) crowded() bool {
	return f.isFull() && f.relieved()
}

// relieved: a sibling is up that ails in nothing.
func (f *Fabric) relieved() bool {
	return f.members.first(func(p *peer) bool { return !p.ails }) != ""
}

// able is a sibling that is up, ails in nothing and lacks nothing, "" without one.
func (m *members) able() string {
	return m.first(func(p *peer) bool { return !p.ails && p.has.Lacks == "" })
}

// heir is a sibling that is up, if possible one that is able, or at least lacks nothing;
// "" without one.
func (m *members) heir() string {
	if name := m.able(); name != "" {
		return name
	}
	if name := m.first(func(p *peer) bool { return p.has.Lacks == "" }); name != "" {
		return name
	}
	return m.first(func(*peer) bool { return true })
}

func (m *members) first(fits func(*peer) bool) string {
	first := ""
	m.each(func(name string, p *peer) {
		if first == "" && m.isUp(p) && fits(p) {
			first = name
		}
	})
	return first
}

// each hands over the siblings in their order, with mu held.
func (m *members) each(on func(name string, p *peer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		on(name, m.peers[name])
	}
}
