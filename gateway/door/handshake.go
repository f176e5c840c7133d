package door

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// handshakes is transport security that says who was turned away, and why.
type handshakes struct {
	credentials.TransportCredentials
	clock    regions.Clock
	logger   *slog.Logger
	refusals identity.Refusals
}

// ServerHandshake lets a caller in, or logs the refusal.
func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // one that only looks whether the port is open
		h.refusals.Log(h.logger, "door", h.clock.Now(), raw.RemoteAddr(), why(err))
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
