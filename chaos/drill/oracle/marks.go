package oracle

// marks says which numbers of a producer have been seen, one bit each.
type marks struct {
	words []uint64
	count uint64
}

// set marks a number and reports whether it was new.
func (m *marks) set(n uint64) bool {
	i, bit := n/64, uint64(1)<<(n%64)
	for uint64(len(m.words)) <= i {
		m.words = append(m.words, 0)
	}
	if m.words[i]&bit != 0 {
		return false
	}
	m.words[i] |= bit
	m.count++
	return true
}

// lacks counts the numbers that are marked in m and not in other.
func (m *marks) lacks(other *marks) (n int) {
	for i, w := range m.words {
		if other != nil && i < len(other.words) {
			w &^= other.words[i]
		}
		for ; w != 0; w &= w - 1 {
			n++
		}
	}
	return n
}
