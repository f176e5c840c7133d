package identity

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusalEvery bounds the lines of a Refusals: whoever knocks must not be able to
// fill the disk.
const refusalEvery = 10 * time.Second

// Refusals logs handshakes that were turned away at one port, at most one line in
// ten seconds with the count of those in between. The zero value is ready; it is
// safe for concurrent use.
type Refusals struct {
	mu      sync.Mutex
	last    time.Time // of the last line
	skipped int       // refusals since
}

// Log notes one refusal at the named port.
func (r *Refusals) Log(logger *slog.Logger, port string, now time.Time, from net.Addr, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < refusalEvery {
		r.skipped++
		return
	}
	logger.Warn("handshake refused", "port", port, "from", from.String(), "err", why, "more_since_last_line", r.skipped)
	r.last, r.skipped = now, 0
}
