package oracle

import (
	"slices"
	"sync"
	"time"
)

// latencies are how long the last acknowledgements took. It is safe for concurrent use.
type latencies struct {
	mu   sync.Mutex
	last []took
	next int
}

type took struct{ end, span time.Duration }

// maxLatencies bounds how many are kept.
const maxLatencies = 4096

func (l *latencies) add(t took) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) < maxLatencies {
		l.last = append(l.last, t)
		return
	}
	l.last[l.next] = t
	l.next = (l.next + 1) % maxLatencies
}

// AckP99 is what 99 of 100 acknowledgements that came since an offset of the history took
// at most, and of how many; of more than the last 4,096 it is of those.
func (o *Oracle) AckP99(since time.Duration) (p99 time.Duration, of int) {
	o.spans.mu.Lock()
	var spans []time.Duration
	for _, t := range o.spans.last {
		if t.end >= since {
			spans = append(spans, t.span)
		}
	}
	o.spans.mu.Unlock()
	if len(spans) == 0 {
		return 0, 0
	}
	slices.Sort(spans)
	return spans[(len(spans)*99-1)/100], len(spans)
}
