package council

import (
	"context"
	"net"
	"time"

	"domicile/api"
)

// dialVoter opens a connection for the voters' protocol, to a voter of the same founding.
func (v *Voter) dialVoter(ctx context.Context, region string) (net.Conn, error) {
	h := v.greeting()
	h.For = voting
	same := false
	conn, err := open(ctx, v.cfg.Lines, region, h, func(name string, h hello) {
		v.noteRival(name, h)
		same = h.Authority == v.mark.Authority
	})
	if same {
		v.mu.Lock()
		v.dismissed = api.CodeOf(err) == api.PermissionDenied
		v.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // the protocol sets its own
	if !v.hold(conn) {
		_ = conn.Close() // too many, or closing
		return nil, net.ErrClosed
	}
	return &heldConn{conn, v}, nil
}
