package council

import (
	"context"
	"net"
	"time"
)

// dialVoter opens a connection for the voters' protocol, to a voter of the same founding.
func (v *Voter) dialVoter(ctx context.Context, region string) (net.Conn, error) {
	h := v.greeting()
	h.For = voting
	conn, err := open(ctx, v.cfg.Lines, region, h, v.noteRival)
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
