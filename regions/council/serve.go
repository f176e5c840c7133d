package council

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

const (
	maxConns     = 256
	greetTimeout = 5 * time.Second
	askTimeout   = 30 * time.Second // the longest that a request may take
	pulse        = 5 * time.Second  // a follower hears something at least this often
	aloneFor     = 4 * time.Second  // after this time without a leader a follower is sent to another voter
)

// serve takes connections until the lines are closed.
func (v *Voter) serve() {
	for {
		conn, peer, err := v.cfg.Lines.Accept()
		if err != nil {
			return
		}
		if !v.hold(conn) {
			_ = conn.Close() // too many, or closing
			continue
		}
		v.wg.Go(func() {
			if !v.greet(conn, peer) {
				v.letGo(conn)
			}
		})
	}
}

func (v *Voter) hold(c net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || v.silent || len(v.conns) >= maxConns {
		return false
	}
	v.conns[c] = true
	return true
}

func (v *Voter) letGo(c net.Conn) {
	v.mu.Lock()
	delete(v.conns, c)
	v.mu.Unlock()
	_ = c.Close() // whatever it says, it is over
}

// heldConn is a connection of the voters' protocol, let go when that closes it.
type heldConn struct {
	net.Conn
	voter *Voter
	peer  string
	heard atomic.Int64 // bytes, since something was last said
}

// Read gives up on a peer that says more without an answer than there is to say: the library
// would hold all of it.
func (h *heldConn) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if h.heard.Add(int64(n)) > maxUnanswered {
		h.voter.misread(h.peer, errTooLarge)
		return 0, errTooLarge
	}
	return n, err
}

// Write answers.
func (h *heldConn) Write(b []byte) (int, error) {
	h.heard.Store(0)
	return h.Conn.Write(b)
}

// Close lets the connection go.
func (h *heldConn) Close() error { h.voter.letGo(h.Conn); return nil }

func (v *Voter) greeting() hello {
	h := hello{Authority: v.mark.Authority, Born: v.mark.Born, Roll: strings.Join(v.mark.Roll, ","), Led: v.leader() != "", Reads: v.cfg.reads}
	v.machine.read(func(s *placement.State) { h.Generation, h.After = s.Generation(), s.Version() })
	return h
}

// hello is the greeting with all that others may need to believe it.
func (v *Voter) hello(what purpose) hello {
	h := v.greeting()
	h.For, h.Founding = what, v.founded()
	return h
}

// greet reads what a connection is for and serves it. It reports whether the connection
// was given away.
func (v *Voter) greet(conn net.Conn, peer string) (given bool) {
	_ = conn.SetDeadline(time.Now().Add(greetTimeout)) // a connection without deadlines fails at its first read
	var h hello
	if err := readFrame(conn, &h, maxHello); err != nil {
		v.misread(peer, err)
		return false
	}
	if err := h.check(); err != nil {
		v.misread(peer, err)
		return false
	}
	answer := v.hello("")
	refusal := v.refuseHello(h, peer)
	answer.Refused = faultOf(refusal)
	if err := writeFrame(conn, answer, maxHello); err != nil || refusal != nil {
		return false
	}
	switch h.For {
	case voting:
		_ = conn.SetDeadline(time.Time{})
		v.ballots.offer(&heldConn{Conn: conn, voter: v, peer: peer})
		return true
	case follow:
		v.feed(conn, h)
	case asking:
		v.answer(conn, peer, h.Generation)
	}
	return false
}

func (v *Voter) refuseHello(h hello, peer string) error {
	switch h.For {
	case voting:
		if !slices.Contains(v.electors(), peer) {
			return &api.Error{Code: api.PermissionDenied, Op: "vote", Region: peer, Hint: "the region has no vote"}
		}
		v.heard(peer, h)
		if h.Authority != v.mark.Authority {
			return &api.Error{Code: api.Contested, Op: "vote", Field: "authority", Hint: "this voter belongs to another founding" + v.rolls(h.Roll)}
		}
		return v.refuseBorn(h, peer)
	case greet:
		if slices.Contains(v.electors(), peer) || slices.Contains(v.mark.Others, peer) {
			v.heard(peer, h)
		}
		return nil
	case follow:
		return nil
	case asking:
		mine := v.greeting()
		if h.Generation > mine.Generation && mine.Generation > 0 || h.Generation == mine.Generation && h.Authority != "" && h.Authority != mine.Authority {
			return &api.Error{Code: api.Contested, Op: "place log", Field: "authority", Hint: "the asker follows another authority; ask one of its voters"}
		}
		return v.contested()
	}
	return &api.Error{Code: api.BadRequest, Op: "greet", Field: "for", Hint: "the caller is of another version"}
}

// refuseBorn tells a voter that its region's vote was given to another one since. What a
// voter that has heard less than the caller knows of that may be old.
func (v *Voter) refuseBorn(h hello, peer string) error {
	born, votes := v.born(peer)
	if !votes || h.Born == born || h.After > v.greeting().After {
		return nil
	}
	return &api.Error{Code: api.PermissionDenied, Op: "vote", Region: peer, Field: fieldBorn, Hint: "the region's vote was given to another voter"}
}

// rolls says by which voters two foundings were made, where they differ.
func (v *Voter) rolls(theirs string) string {
	ours := strings.Join(v.mark.Roll, ",")
	if theirs == "" || ours == "" || theirs == ours {
		return ""
	}
	return ": its federation.yaml had " + ours + " vote, the caller's " + theirs
}

// electors are the regions whose word this voter takes: who votes, or, before it was told
// that, those that it was created to join.
func (v *Voter) electors() []string {
	if voters := v.voters(); len(voters) > 0 {
		return voters
	}
	return v.mark.Join
}

// feed sends the state, and then what changes, to a follower, for as long as this voter hears
// a leader. A slow one gets fewer and larger deltas; nothing is kept for it.
func (v *Voter) feed(conn net.Conn, h hello) {
	ticker, alone := time.NewTicker(v.cfg.Pace.Of(pulse)), time.NewTicker(v.cfg.Pace.Of(aloneFor))
	defer ticker.Stop()
	defer alone.Stop()
	version, authority, led := h.After, h.Authority, true
	for {
		d, changed := v.machine.since(version, authority)
		if d.Generation > 0 {
			_ = conn.SetDeadline(time.Now().Add(lineTimeout)) // fails at the write, if it fails
			if err := writeFrame(conn, d, maxAnswer); err != nil {
				return
			}
			version, authority = d.Version, d.Authority
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-alone.C:
			before := led
			if led = v.leader() != ""; !led && !before {
				return // another voter may hear one
			}
		case <-v.ctx.Done():
			return
		}
	}
}

// request is what a region asks of a voter.
type request struct {
	Command   []byte        `json:",omitempty"` // encoded
	Proof     *proof        `json:",omitempty"` // of who sent the command; none from programs before it was asked for
	Renew     string        `json:",omitempty"` // region
	Change    *VoterChange  `json:",omitempty"`
	Members   bool          `json:",omitempty"` // who votes, by the leader
	Forwarded bool          `json:",omitempty"` // by a voter, which has checked on whose behalf
	Left      time.Duration // until the caller stops waiting
}

// reply is the answer.
type reply struct {
	Result placement.Result `json:",omitzero"`
	Grant  placement.Grant  `json:",omitzero"`
	Voters []string         `json:",omitempty"`
	Fault  *fault           `json:",omitempty"`
}

func (v *Voter) answer(conn net.Conn, peer string, generation uint32) {
	var q request
	if err := readFrame(conn, &q, maxRequest); err != nil {
		v.misread(peer, err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(askTimeout + greetTimeout)) // fails at the write, if it fails
	ctx, cancel := context.WithTimeout(v.ctx, min(max(q.Left, 0), askTimeout))
	defer cancel()
	var r reply
	var err error
	if q.Forwarded && !slices.Contains(v.voters(), peer) {
		err = &api.Error{Code: api.PermissionDenied, Op: "place log", Region: peer, Hint: "only voters speak for other regions"}
	} else if !q.Forwarded && q.Change == nil && v.leader() == "" {
		err = noLeader() // at once: the caller knows other voters, and one of them may hear a leader
	} else if !q.Forwarded && q.Renew != "" && generation < v.greeting().Generation {
		err = &api.Error{Code: api.NotReady, Op: "renew", Region: peer, Field: "generation", Hint: "the asker has not heard of this authority yet, and might still go by an older one"}
	} else if q.Members {
		r.Voters, err = v.Members(ctx)
	} else if q.Change != nil {
		err = v.changeFor(ctx, q, peer)
	} else if q.Renew != "" {
		r.Grant, err = v.renewFor(ctx, q, peer)
	} else {
		r.Result, err = v.submitFor(ctx, q, peer)
	}
	r.Fault = faultOf(err)
	_ = writeFrame(conn, r, maxAnswer) // the caller asks again if it does not arrive
}

func (v *Voter) renewFor(ctx context.Context, q request, peer string) (placement.Grant, error) {
	if !q.Forwarded && q.Renew != peer {
		return placement.Grant{}, v.refuse(peer, regions.NotTheirs, foreign(q.Renew, peer))
	}
	if q.Forwarded {
		return v.renewHere(ctx, q.Renew)
	}
	return v.renew(ctx, q.Renew)
}

// changeFor changes who votes on behalf of a voter.
func (v *Voter) changeFor(ctx context.Context, q request, peer string) error {
	if !q.Forwarded && q.Change.Region != peer {
		return v.refuse(peer, regions.NotTheirs, foreign(q.Change.Region, peer))
	}
	if q.Forwarded {
		_, err := v.changeHere(ctx, *q.Change)
		return err
	}
	return v.ChangeVoters(ctx, *q.Change)
}

// submitFor brings a region's command further, or judges it, if this voter leads. What a
// voter forwards it has verified, so it answers for whatever is wrong with that.
func (v *Voter) submitFor(ctx context.Context, q request, peer string) (r placement.Result, err error) {
	c, err := placement.DecodeCommand(q.Command, v.cfg.reads)
	switch {
	case api.CodeOf(err) == api.BadRequest:
		return r, v.refuse(peer, regions.Malformed, err)
	case err != nil:
		var e *api.Error
		if errors.As(err, &e) {
			e.Region = v.mark.Region // the caller asks on behalf of another
		}
		return r, err
	}
	if err := submittable(c); err != nil {
		return r, v.refuse(peer, regions.NotAllowed, err)
	}
	if !q.Forwarded && c.Region != peer {
		return r, v.refuse(peer, regions.NotTheirs, foreign(c.Region, peer))
	}
	if err := v.verify(&c, q.Command, q.Proof, peer); err != nil {
		return r, err
	}
	if q.Forwarded {
		r, _, err = v.offer(ctx, &c, q.Command, q.Proof)
		return r, err
	}
	return v.submit(ctx, &c, q.Command, func() (*proof, error) { return q.Proof, nil })
}

func foreign(said, is string) error {
	return &api.Error{Code: api.PermissionDenied, Op: "place log", Region: is, Field: "region", Value: said,
		Hint: "the certificate is another region's"}
}
