package mirror

import "time"

// maxChunks bounds a tally's memory: beyond it neighbours are joined.
const maxChunks = 4096

// chunk sums up a run of sequences.
type chunk struct {
	last    uint64    // last sequence of the run
	records uint64    // that egress lets go
	bytes   uint64    // their size
	oldest  time.Time // ingest time of the first of them; zero: none
}

// tally knows what is eligible in a log beyond a target's cursor: sequences
// (from, upto] have been judged under one policy revision. The zero tally knows
// nothing. It is a value with rules, no locks.
type tally struct {
	known      bool
	revision   string
	from, upto uint64
	chunks     []chunk
	partial    bool // the cursor lies inside the first chunk: counts are too high
}

// reset forgets everything and starts at the cursor.
func (t *tally) reset(cursor uint64, revision string) {
	*t = tally{known: true, revision: revision, from: cursor, upto: cursor, chunks: t.chunks[:0]}
}

// add appends the run (upto, c.last].
func (t *tally) add(c chunk) {
	if !t.known || c.last <= t.upto {
		return
	}
	t.upto = c.last
	t.chunks = append(t.chunks, c)
	if len(t.chunks) > maxChunks {
		t.halve()
	}
}

// halve joins neighbours: sums stay exact, the steps get coarser.
func (t *tally) halve() {
	joined := t.chunks[:0]
	for i := 0; i < len(t.chunks); i += 2 {
		c := t.chunks[i]
		if i+1 < len(t.chunks) {
			d := t.chunks[i+1]
			c.last, c.records, c.bytes = d.last, c.records+d.records, c.bytes+d.bytes
			if c.oldest.IsZero() {
				c.oldest = d.oldest
			}
		}
		joined = append(joined, c)
	}
	t.chunks = joined
}

// confirm moves the cursor. A cursor outside what was judged starts anew.
func (t *tally) confirm(cursor uint64) {
	switch {
	case !t.known || cursor == t.from:
		return
	case cursor < t.from || cursor > t.upto:
		t.reset(cursor, t.revision)
		return
	}
	n := 0
	for n < len(t.chunks) && t.chunks[n].last <= cursor {
		n++
	}
	start := t.from
	if n > 0 {
		start = t.chunks[n-1].last
		t.partial = false
	}
	t.chunks = append(t.chunks[:0], t.chunks[n:]...)
	t.partial = t.partial || cursor > start
	t.from = cursor
}

// pending is how many eligible records lie beyond the cursor, and their bytes. exact
// is false while not everything up to head has been judged, or while the cursor lies
// inside a run.
func (t *tally) pending(head uint64) (records, bytes uint64, exact bool) {
	for _, c := range t.chunks {
		records += c.records
		bytes += c.bytes
	}
	return records, bytes, t.known && t.upto >= head && !t.partial
}

// oldest is the ingest time of the oldest eligible record beyond the cursor, zero if
// there is none. Inside a run it is the run's oldest: never too young. known is
// false while the answer lies in what has not been judged.
func (t *tally) oldest(head uint64) (at time.Time, known bool) {
	if !t.known {
		return time.Time{}, false
	}
	for _, c := range t.chunks {
		if c.records > 0 {
			return c.oldest, true
		}
	}
	return time.Time{}, t.upto >= head
}
