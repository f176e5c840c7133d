package node

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
)

// Pauses between tries to open a turn while the seat is held, at pace 1.
const (
	firstRetry   = 250 * time.Millisecond
	longestRetry = 15 * time.Second
	trioRetry    = 2 * time.Second // in a region of three: its leaders are on the move
)

// firstTurn opens the turn of a node that holds its seat from the start. In a region of
// one node its failure ends the start: what is wrong is most likely in a file, unless the
// disk is full, and then the store comes back by itself.
func (n *Node) firstTurn(ctx context.Context) (*turn, error) {
	n.onClose("turn", n.leave)
	seat, _ := n.seats()
	if !seat.Mine {
		return nil, nil
	}
	t, err := n.openTurn(ctx, seat)
	if err != nil && (n.out != nil || n.fabric.Health().Passes) {
		n.logger.Warn("the seat is here, but its turn did not open at once; trying again", "err", err)
		n.vacate(ctx)
		return nil, nil // its leaders may be on the move, or its quorum away
	}
	return t, err
}

// follow opens a turn whenever this node gets the region's seat and closes it when the
// seat is lost, until leave.
func (n *Node) follow(first *turn) {
	var ctx context.Context
	ctx, n.unfollow = context.WithCancel(n.life)
	if n.out != nil {
		n.following.Go(func() { n.followHolder(ctx) })
	}
	n.following.Go(func() {
		for ctx.Err() == nil {
			if first != nil {
				n.hold(ctx, first.seat, first)
				first = nil
				continue
			}
			seat, changed := n.seats()
			if seat.Mine {
				n.hold(ctx, seat, nil)
				continue
			}
			n.stand(ctx, changed)
		}
	})
}

// stand waits until this node holds the seat, or ctx ends. Meanwhile it takes its part in
// the placement authority.
func (n *Node) stand(ctx context.Context, changed <-chan struct{}) {
	leave := n.attend(ctx)
	defer leave()
	for mine := false; !mine; {
		select {
		case <-changed:
			var seat fabric.Seat
			seat, changed = n.seats()
			mine = seat.Mine
		case <-ctx.Done():
			return
		}
	}
}

// leave ends following and closes the turn that is open. The logs are the fabric's to
// close.
func (n *Node) leave(ctx context.Context) error {
	var err error
	if n.unfollow != nil {
		n.unfollow()
		err = awaited(n.logger, "following of the seat", func() error { n.following.Wait(); return nil })
	}
	if t := n.turn.Load(); t != nil {
		err = errors.Join(err, t.close(ctx))
	}
	return err
}

// hold keeps a turn open, t or one that it opens, for as long as this node holds the
// seat. When ctx ends first, the turn stays for leave.
func (n *Node) hold(ctx context.Context, seat fabric.Seat, t *turn) {
	held, letGo := n.held(ctx, seat)
	defer letGo()
	longest := longestRetry
	if n.out != nil {
		longest = trioRetry
	}
	for wait := firstRetry; t == nil; wait = min(2*wait, longest) {
		var err error
		if t, err = n.openTurn(held, seat); err == nil {
			break
		}
		n.unopened.Store(&err)
		n.vacate(ctx)
		if held.Err() == nil {
			n.logger.Error("the seat is here, but its turn does not open; trying again", "term", seat.Term, "err", err)
		}
		if !pause(held, n.seams.Pace.Of(wait)) {
			return
		}
	}
	n.unopened.Store(nil)
	n.logger.Info("this node writes the region's logs", "term", seat.Term)
	<-held.Done()
	if ctx.Err() != nil {
		return
	}
	n.logger.Warn("the seat is lost: no record is taken here until it is back", "term", seat.Term)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), n.seams.Pace.Of(drainTurn))
	defer done()
	if err := t.close(closing); err != nil {
		n.logger.Warn("a turn did not end in time", "term", seat.Term, "err", err)
	}
	n.vacate(ctx)
}

// vacate has the fabric forget the logs of a turn that is over.
func (n *Node) vacate(ctx context.Context) {
	if err := n.fabric.Vacate(context.WithoutCancel(ctx)); err != nil { // it has a deadline of its own
		n.logger.Warn("the seat was left with appends undecided", "err", err)
	}
}

// held is a context that ends when this node no longer holds the seat under its term.
func (n *Node) held(ctx context.Context, seat fabric.Seat) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	n.following.Go(func() {
		defer cancel()
		for {
			now, changed := n.seats()
			if !now.Mine || now.Term != seat.Term {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, cancel
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// notHere says why this node has no turn, to whoever wants to publish or read.
func (n *Node) notHere(op string) error {
	why, _ := n.absence()
	e := &api.Error{Code: api.NotReady, Op: op, Region: n.cfg.Region, RetryAfter: n.seams.Pace.Of(time.Second), Hint: why + "; send it again with the same id"}
	if op == "read" {
		e.Hint = why + "; read on from the last position"
	}
	return e
}

// absence is why this node has no turn now, in words for everybody, and the error
// behind it for operators, if there is one.
func (n *Node) absence() (why string, err error) {
	seat, _ := n.seats()
	switch unopened := n.unopened.Load(); {
	case seat.Mine && unopened != nil:
		return "the region's logs do not open", *unopened
	case seat.Mine:
		return "the region's logs are being opened", nil
	case n.out != nil && seat.Node != "" && seat.Node != n.cfg.Node:
		return "gateway " + seat.Node + " holds the region's seat", nil
	case seat.Reason != "":
		return seat.Reason, nil
	}
	return "no gateway holds the region's seat", nil
}
