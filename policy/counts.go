package policy

// Count has the gate count how often each question is asked from the next activation on;
// call it before the first, and Drain from time to time, which makes room for what older
// generations counted.
func (g *Gate) Count() { g.counts = true }

// count notes one question. What is no cell of the generation is not counted.
func (h *held) count(c Cell) {
	if i, ok := h.gen.layout.index(c); ok {
		h.asked[i].Add(1)
	}
}

// counted reports whether something was counted and not drained.
func (h *held) counted() bool {
	for i := range h.asked {
		if h.asked[i].Load() != 0 {
			return true
		}
	}
	return false
}

// Drain hands over how often each question was asked since the last Drain, and whether
// it is allowed, and counts from zero again. A question is asked once for each record on
// most walks; a record that is judged again, as after a flip or by each of several
// readers, is counted again.
func (g *Gate) Drain(fn func(q Question, allowed bool, n uint64)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range append(g.older[:len(g.older):len(g.older)], g.current.Load()) {
		for i := range h.asked {
			d := h.gen.table[i]
			if d == nil || h.asked[i].Load() == 0 {
				continue
			}
			c, _ := h.gen.layout.cell(uint32(i))
			fn(h.gen.question(c), d.Allow, h.asked[i].Swap(0))
		}
	}
	g.prune()
}
