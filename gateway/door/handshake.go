package door

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"domicile/api"
	"domicile/regions"
)

// refusalEvery bounds the lines about callers that were turned away: whoever knocks
// must not be able to fill the disk.
const refusalEvery = 10 * time.Second

// handshakes is transport security that says who was turned away, and why.
type handshakes struct {
	credentials.TransportCredentials
	clock  regions.Clock
	logger *slog.Logger

	mu      sync.Mutex
	last    time.Time // of the last line
	skipped int       // refusals since
}

// ServerHandshake lets a caller in, or logs the refusal.
func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // one that only looks whether the port is open
		h.refused(raw.RemoteAddr(), why(err))
	}
	return conn, info, err
}

// Clone shares the count of refusals.
func (h *handshakes) Clone() credentials.TransportCredentials { return h }

func why(err error) error {
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		return denied("tls", "", "the caller does not speak TLS: is it set up for a development door?")
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.PermissionDenied, Op: "identify caller", Field: "tls", Err: err, Hint: "connect with a client certificate of this federation"}
}

func (h *handshakes) refused(from net.Addr, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	if !h.last.IsZero() && now.Sub(h.last) < refusalEvery {
		h.skipped++
		return
	}
	h.logger.Warn("a caller was refused at the door", "from", from.String(), "err", err, "more_since_last_line", h.skipped)
	h.last, h.skipped = now, 0
}
