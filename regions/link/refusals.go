package link

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusals logs connections that were turned away, at most one line in ten seconds:
// whoever knocks must not be able to fill the disk.
type refusals struct {
	mu      sync.Mutex
	last    time.Time
	skipped int
}

const refusalEvery = 10 * time.Second

func (r *refusals) log(logger *slog.Logger, now time.Time, from net.Addr, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < refusalEvery {
		r.skipped++
		return
	}
	logger.Warn("handshake on the link port refused", "from", from.String(), "why", why.Error(), "more_since_last_line", r.skipped)
	r.last, r.skipped = now, 0
}
