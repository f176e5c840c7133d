package council

import (
	"context"
	"errors"
	"net"
	"time"

	"domicile/api"
)

// dialVoter opens a connection for the voters' protocol, to exactly the voter of the same
// founding that the vote was given to.
func (v *Voter) dialVoter(ctx context.Context, to address) (net.Conn, error) {
	region, born := to.parts()
	var theirs hello
	conn, err := open(ctx, v.cfg.Lines, region, v.hello(voting), func(name string, h hello) {
		v.heard(name, h)
		theirs = h
	})
	if theirs.Authority == v.mark.Authority && theirs.check() == nil {
		v.noteDismissal(region, theirs, err)
	}
	if err != nil {
		return nil, err
	}
	if theirs.Born != born {
		_ = conn.Close() // nothing was said on it
		return nil, &api.Error{Code: api.PermissionDenied, Op: "vote", Region: region, Field: fieldBorn, Hint: "the voter that answers is another one than the vote was given to"}
	}
	_ = conn.SetDeadline(time.Time{}) // the protocol sets its own
	if !v.hold(conn) {
		_ = conn.Close() // too many, or closing
		return nil, net.ErrClosed
	}
	return &heldConn{Conn: conn, voter: v, peer: region}, nil
}

// fieldBorn is what a refusal names when a region has two voters.
const fieldBorn = "voter"

// dismissal is another voter's word that this one has no vote.
type dismissal struct {
	after uint64 // the version that it had then
	given bool   // the region's vote was given to another voter
}

// noteDismissal keeps whether another voter says that this one has no vote. If its region's
// vote was given to a voter on another node, this one takes no connections any more: whoever
// calls the region must reach the other.
func (v *Voter) noteDismissal(region string, theirs hello, err error) {
	var e *api.Error
	denied := api.CodeOf(err) == api.PermissionDenied
	others := v.others()
	v.mu.Lock()
	switch {
	case denied:
		v.dismissals[region] = dismissal{theirs.After, errors.As(err, &e) && e.Field == fieldBorn}
	case err == nil:
		delete(v.dismissals, region)
	}
	replaced := !v.replaced && v.agree(others, func(d dismissal) bool { return d.given })
	v.replaced = v.replaced || replaced
	v.mu.Unlock()
	if replaced {
		v.cfg.Log.Error("this region's vote was given to a voter on another node; this one says nothing more", "dir", v.cfg.Dir)
		_ = v.cfg.Lines.Close() // it only stops
	}
}

// dismissed reports whether the vote of this voter is gone, by the word of those that had taken
// in more than this one has by now, which is at version mine. One that had taken in no more
// may not have heard yet that this voter was given its vote. v.mu is held.
func (v *Voter) dismissed(mine uint64, others []string) bool {
	return v.replaced || v.agree(others, func(d dismissal) bool { return d.after > mine })
}

// agree reports whether most of the other voters say that this one has no vote, and more than
// one of them: one alone may lie. v.mu is held.
func (v *Voter) agree(others []string, says func(dismissal) bool) bool {
	agree := 0
	for _, region := range others {
		if d, ok := v.dismissals[region]; ok && says(d) {
			agree++
		}
	}
	return agree > 1 && 2*agree > len(others)
}
