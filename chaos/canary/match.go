package canary

import "encoding/binary"

// anchorLen is how much of each pattern is looked up at every byte of a file.
const anchorLen = 8

// filterBits sizes the table that turns most bytes away without a map look-up:
// 512 KiB, which stays in a core's cache.
const filterBits = 22

// matcher finds any of many patterns in one pass. Nobody may search while one is added.
type matcher struct {
	filter  []uint64
	byFirst map[uint64][]pattern
	longest int
}

func newMatcher(tokens []string) *matcher {
	m := &matcher{filter: make([]uint64, 1<<filterBits/64), byFirst: map[uint64][]pattern{}}
	for i, t := range tokens {
		m.add(t, i)
	}
	return m
}

func (m *matcher) add(token string, index int) {
	for _, p := range patternsOf(token, index) {
		anchor := binary.LittleEndian.Uint64([]byte(p.text[:anchorLen]))
		m.byFirst[anchor] = append(m.byFirst[anchor], p)
		h := filterSlot(anchor)
		m.filter[h/64] |= 1 << (h % 64)
		m.longest = max(m.longest, len(p.text))
	}
}

func filterSlot(anchor uint64) uint64 { return anchor * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

// find reports every pattern that starts in b[:starts]; b reaches further, so that
// a pattern over the end of starts is seen whole.
func (m *matcher) find(b []byte, starts int, found func(at int, p pattern)) {
	last := min(starts-1, len(b)-anchorLen)
	for i := 0; i <= last; i++ {
		anchor := binary.LittleEndian.Uint64(b[i:])
		h := filterSlot(anchor)
		if m.filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for _, p := range m.byFirst[anchor] {
			if len(b)-i >= len(p.text) && string(b[i:i+len(p.text)]) == p.text {
				found(i, p)
			}
		}
	}
}
