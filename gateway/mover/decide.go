package mover

import (
	"slices"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// Held is how this region's store holds a log now.
type Held struct {
	Role    regions.Role    // RoleNone: the log is not open here
	Home    api.Epoch       // of a log that is not open: the one in which the store holds it as a home; zero: it does not
	Epoch   api.Epoch       // of a home: the one it is open under; of a copy: of its last item, zero while it has none
	Stopped bool            // the home is fenced, the copy is frozen
	End     uint64          // the last sequence
	From    api.Epoch       // of a copy: the one that it is mirrored in; zero: it is not
	Latest  api.Epoch       // that the store's own markers and items tell of
	Lent    string          // the region that the copy is given on to; "": none
	Row     regions.History // that the copy goes by; nil: none
	// Void is what lies here beyond an epoch's end and was not settled, as it is reported.
	Void []placement.Divergence
}

// act is the next thing that a region does for a log.
type act string

const (
	rest     act = "rest"     // nothing, until something changes
	wait     act = "wait"     // for the copy to reach the cut
	study    act = "study"    // judge the copy while the home still writes, so that little is left to judge later
	fence    act = "fence"    // end the home's epoch
	prove    act = "prove"    // say where the home's epoch ended
	attest   act = "attest"   // people have signed that the home is stopped: say so
	diverge  act = "diverge"  // the home may go on: what it writes from now on will be void
	learn    act = "learn"    // give the copy the row of epochs
	freeze   act = "freeze"   // the copy takes nothing more
	cut      act = "cut"      // say where the old epoch ends
	caughtUp act = "caughtup" // the copy has all of it
	frozen   act = "frozen"   // the copy has what it has
	flip     act = "flip"
	become   act = "become"  // a home, under the placement's epoch
	opened   act = "opened"  // say that it is one
	follow   act = "follow"  // be a copy again
	report   act = "report"  // what is void here
	mirrorIt act = "mirror"  // open the copy
	lend     act = "lend"    // give the copy on, or no more
	hold     act = "hold"    // nothing: the store goes by a later word of the authority than this one
	giveUp   act = "give up" // a move that takes too long, or leaves more behind than was accepted
)

// view is all that a decision depends on.
type view struct {
	self    string
	log     placement.Log
	held    Held
	copies  bool // the manifest has this region keep a copy of the log
	learned bool // the copy was given the row of this version of the placement
	allowed bool // the move has its approvals, by this region's own look at them
	studied bool // the copy was judged for this move, and may become the home
	overdue bool // the move was seen here for as long as one may take: a planned one since it was allowed, a forced one since its home stopped
	fetched bool // what other regions have beyond the copy was brought, or did not come in time
	alone   bool // the home had its chance to end its epoch itself
}

// next decides. It is pure: the same view has the same answer, before and after a crash.
func next(v view) act {
	switch l := &v.log; {
	case v.abandoned():
		return giveUp // the authority refuses an older word; where it is behind itself, this is the way on
	case v.older():
		return hold
	case l.Home == v.self:
		return v.atHome()
	case v.held.Role == regions.RoleHome:
		return v.superseded()
	case v.held.Role == regions.RoleCopy:
		return v.atCopy()
	case v.copies:
		return mirrorIt
	}
	return rest
}

// older: the store goes by a later word of the authority than this one is. A region whose
// process died hears again what was decided before its death, one decision after the other.
func (v *view) older() bool {
	latest := v.log.Epoch
	if r := v.log.Rival; r != nil && latest.Compare(r.Epoch) < 0 {
		latest = r.Epoch
	}
	return latest.Compare(v.held.Latest) < 0
}

// abandoned: a move that does not come to its end, though its home is there, is taken back
// by whoever is left of the two, since the log takes no records meanwhile.
func (v *view) abandoned() bool {
	op := v.log.Op
	if !v.overdue || v.log.Status != placement.Moving || v.log.Home != v.self && op.Target != v.self {
		return false
	}
	return op.Kind == placement.Planned || op.Proof != nil && op.Proof.Kind == placement.Marker
}

func (v *view) atHome() act {
	l, h := &v.log, &v.held
	writes := h.Role == regions.RoleHome && h.Epoch == l.Epoch && !h.Stopped
	switch l.Status {
	case placement.Active:
		if writes {
			return rest
		}
		return v.reopen()
	case placement.Opening:
		if writes {
			return opened
		}
		return v.reopen()
	case placement.Contested:
		if writes {
			return fence
		}
		return rest
	}
	switch {
	case h.Role == regions.RoleNone && v.fromElsewhere() && !v.wasHome():
		return rest // it never opened here: nothing is to be ended, and nothing was judged
	case h.Role == regions.RoleNone:
		return become // so that its epoch can be ended
	case !v.allowed:
		return rest
	case writes:
		return fence
	case l.Op.Step == placement.Begun:
		return prove
	}
	return rest
}

// reopen brings the log to where it can be opened as a home: a copy has to be frozen first.
func (v *view) reopen() act {
	switch h := &v.held; {
	case v.unjudged() && h.Role == regions.RoleNone:
		return mirrorIt // it is judged before it is opened as a home
	case h.Role == regions.RoleCopy && !h.Stopped && h.Epoch != v.log.Epoch:
		return freeze
	}
	return become
}

// unjudged: the log came from another region, and was not opened here as a home yet.
func (v *view) unjudged() bool {
	return v.log.Status == placement.Opening && v.fromElsewhere() && !v.wasHome()
}

// origin is the last epoch that another region was the log's home in; nil: there was none.
// Epochs of this region behind it may have been given up before they were opened.
func (v *view) origin() *placement.Ended {
	for i := len(v.log.History) - 1; i >= 0; i-- {
		if e := &v.log.History[i]; e.Home != v.self {
			return e
		}
	}
	return nil
}

func (v *view) fromElsewhere() bool { return v.origin() != nil }

// wasHome: this region's store opened the log as a home after it came from elsewhere.
func (v *view) wasHome() bool {
	epoch := v.held.Home
	if v.held.Role == regions.RoleHome {
		epoch = v.held.Epoch
	}
	from := v.origin()
	return from == nil || epoch.Compare(from.Epoch) > 0
}

// superseded is a home whose log lives elsewhere by now.
func (v *view) superseded() act {
	switch h := &v.held; {
	case v.log.Epochs().Judge(h.Epoch, ^uint64(0)) == regions.Beyond:
		return follow
	case !h.Stopped:
		return fence
	}
	return follow // it is fenced, which is enough to be opened as a copy
}

func (v *view) atCopy() act {
	l := &v.log
	switch {
	case v.behind():
		return learn
	case v.unreported() >= 0:
		return report
	case v.lendsTo() != v.held.Lent:
		return lend
	case l.Status == placement.Moving && l.Op.Target == v.self && v.allowed:
		return v.atTarget()
	}
	return rest
}

// behind: the authority knows more of the log's epochs than the copy goes by, or the copy is
// mirrored by an older word than the store goes by, as after a start. A copy that is frozen in
// the present epoch stays so, and a log that never moved needs no row.
func (v *view) behind() bool {
	row := v.log.Epochs()
	n := len(row)
	if v.learned || n == 0 || !row[n-1].Open || n == 1 && len(v.held.Row) == 0 {
		return false
	}
	if v.held.Stopped && v.held.Epoch == v.log.Epoch {
		return false
	}
	known := v.held.Row
	return v.copies && v.held.From != v.log.Epoch || len(known) == 0 || !slices.Equal(known, row.From(known[0].Epoch, len(known))) || known[len(known)-1] != row[n-1]
}

// unreported is the index of the first void range that the authority can be told of and
// does not know; -1: there is none.
func (v *view) unreported() int {
	return slices.IndexFunc(v.held.Void, func(d placement.Divergence) bool {
		_, err := v.log.EpochEnd(d.Epoch)
		return err == nil && !slices.ContainsFunc(v.log.Divergences, func(known placement.Divergence) bool {
			return known.Epoch == d.Epoch && known.Region == v.self
		})
	})
}

// lendsTo is the region that this region's copy is given on to: the target of a forced
// move, from when the home is known to have stopped until the cut, or until the target has
// come to it where the home's marker is the cut. "": none.
func (v *view) lendsTo() string {
	l := &v.log
	if l.Status != placement.Moving || !v.allowed || l.Op.Target == v.self || !l.Op.Lends() {
		return ""
	}
	return l.Op.Target
}

// tooMuch is why a move whose loss is fixed is never to be decided; nil: it may be.
func (v *view) tooMuch() error {
	if op := v.log.Op; op.Step == placement.Ready && op.Lost != nil {
		return op.Unaccepted()
	}
	return nil
}

func (v *view) atTarget() act {
	l, h := &v.log, &v.held
	marked := l.Op.Proof != nil && l.Op.Proof.Kind == placement.Marker
	switch l.Op.Step {
	case placement.Begun:
		switch {
		case !v.studied:
			return study
		case l.Op.Attested:
			return attest
		case l.Op.Divergent && v.alone:
			return diverge
		}
	case placement.Proven:
		switch {
		case marked, h.Stopped:
			return cut
		case !v.fetched:
			return wait
		}
		return freeze
	case placement.Cut:
		switch {
		case h.End < l.Op.Cut:
			return wait
		case !h.Stopped:
			return freeze
		case marked:
			return caughtUp
		}
		return frozen
	case placement.Ready:
		if v.tooMuch() != nil {
			return giveUp // the log takes no records meanwhile
		}
		return flip
	}
	return rest
}
