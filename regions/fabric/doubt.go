package fabric

import (
	"sync"
	"sync/atomic"
	"time"

	"domicile/regions"
	"domicile/regions/clock"
)

// The run mark holds what the clocks read when the store last ran, so that a node that is
// started with a wrong clock notices. While the clock is in doubt nothing goes by age, and
// stamps go on from there at the pace of the boot clock: whichever clock was wrong, they are
// in order. Over a boot nobody knows how long it took, and a clock that is ahead may be right:
// a solo store stamps by it.

// unsure are stamps that were given in doubt. They may be too early, by the length of a stop
// that nobody counted, but not later than Ended.
type unsure struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Ended time.Time `json:"ended,omitzero"` // when the clock was believed again; zero: not yet
}

const maxUnsure = 16 // beyond it the two oldest are taken for one

// belief is what the store makes of its node's clock.
type belief struct {
	boot  string            // within which up counts
	up    regions.BootClock //
	fresh bool              // the store held no record when it was opened
	off   atomic.Int64      // what stamps correct the clock by
	doubt atomic.Bool       //

	mu      sync.Mutex
	last    clock.Reading
	unsure  []unsure
	verdict clock.Verdict
}

// now is the node's clock as the store's stamps follow it.
func (f *Fabric) now() time.Time { return f.cfg.Clock.Now().Add(time.Duration(f.belief.off.Load())) }

// Latest is the node's clock, but not before where the last run has it: what had ended stays
// ended over a start on a clock that was set back.
func (f *Fabric) Latest() time.Time { return later(f.cfg.Clock.Now(), f.now()) }

// remember takes up what the last run left; read: its mark could be read.
func (f *Fabric) remember(last *run, read bool) error {
	b := &f.belief
	if b.boot, b.up = f.boot, f.cfg.Boot; b.up == nil { // a clock that tests set counts for itself
		began := f.cfg.Clock.Now()
		b.up = func() time.Duration { return f.cfg.Clock.Now().Sub(began) }
		var err error
		if b.boot, err = newID(); err != nil {
			return err
		}
	}
	b.unsure = last.Unsure
	b.fresh = len(f.known) == 0 || read && len(last.Ends) > 0
	for _, end := range last.Ends {
		b.fresh = b.fresh && end == 0
	}
	switch {
	case last.Clock != nil:
		b.last = *last.Clock
	case last.Closed != 0: // a mark that was written before readings were
		b.last.At = time.Unix(0, last.Closed)
	}
	f.Believe()
	return nil
}

// Believe weighs anew whether the node's clock is to be believed. The store does so every
// few seconds; whatever else acts by an instant may ask.
func (f *Fabric) Believe() clock.Verdict {
	var e clock.Evidence
	if ask := f.cfg.Evidence; ask != nil {
		e = ask()
	}
	b := &f.belief
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Now, e.Last, e.Fresh = clock.Reading{At: f.cfg.Clock.Now().Round(0).UTC(), Boot: b.boot, Up: b.up()}, b.last, b.fresh
	v := clock.Judge(&e)
	given := e.Now.At.Add(time.Duration(b.off.Load()) + time.Second) // no stamp so far is later
	e.Now.At, e.Now.Against = e.Now.At.Add(v.Off), v.Against
	e.Now.Guessed = v.Off < 0 && (b.last.Guessed || b.last.Boot != e.Now.Boot)
	switch {
	case !v.Doubt:
		b.end(given, e.Now.At)
		if f.cfg.Cluster == nil && time.Unix(0, f.floor.Load()).Sub(e.Now.At) > clock.Gap {
			f.floor.Store(e.Now.At.UnixNano()) // of a run whose clock was wrong
		}
	case v.Off != 0:
		b.extend(e.Now.At, given)
	}
	if !v.Doubt || !b.last.At.IsZero() {
		b.last = e.Now
	}
	if v.Doubt != b.verdict.Doubt {
		f.tell(v)
	}
	b.verdict = v
	if e.Now.Guessed && f.cfg.Cluster == nil {
		// A stamp that is too early has copies delete the record; of one that is too late the
		// next ones come back. In a region of three they can't, and the others' promises keep
		// them from being too early, unless all three stood still.
		v.Off = 0
	}
	b.off.Store(int64(v.Off))
	b.doubt.Store(v.Doubt)
	return v
}

func (f *Fabric) tell(v clock.Verdict) {
	if v.Doubt {
		f.cfg.Logger.Error("the clock is in doubt: no record goes by age", "why", v.Reason, "ends", v.Clears)
		return
	}
	f.cfg.Logger.Warn("the clock is believed again: records go by age")
}

// extend notes that stamps up to to were, or are about to be, given in doubt.
func (b *belief) extend(from, to time.Time) {
	n := len(b.unsure)
	if n == 0 || !b.unsure[n-1].Ended.IsZero() {
		b.unsure = append(b.unsure[:n:n], unsure{From: from})
		n++
	}
	b.unsure = append([]unsure(nil), b.unsure...) // the run mark may hold the old ones
	at := &b.unsure[n-1]
	at.To = later(at.To, to.Add(markAhead))
	if n > maxUnsure {
		b.unsure[1].From = b.unsure[0].From
		b.unsure = b.unsure[1:]
	}
}

// end notes that the clock is believed at now.
func (b *belief) end(given, now time.Time) {
	n := len(b.unsure)
	if n == 0 || !b.unsure[n-1].Ended.IsZero() {
		return
	}
	b.unsure = append([]unsure(nil), b.unsure...)
	at := &b.unsure[n-1]
	at.To, at.Ended = later(at.To, given), now
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Clock is what is made of the node's clock, as it was last weighed.
func (f *Fabric) Clock() clock.Verdict {
	b := &f.belief
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verdict
}

// mayGoBack: stamps may go back to the clock. In a region of three they are promised.
func (f *Fabric) mayGoBack() bool { return f.cfg.Cluster == nil && !f.belief.doubt.Load() }

// state is what the run mark holds of it.
func (b *belief) state() (*clock.Reading, []unsure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.last
	return &last, b.unsure
}

// ages judges how old records are, for one sweep.
type ages struct {
	now, old time.Time // what is stamped before old has reached its age
	bound    bool      // there is a bound by age
	doubt    bool
	unsure   []unsure
}

func (f *Fabric) ages(maxAge time.Duration) ages {
	now := f.cfg.Clock.Now()
	_, unsure := f.belief.state()
	return ages{now: now, old: now.Add(-maxAge), bound: maxAge > 0, doubt: f.belief.doubt.Load(), unsure: unsure}
}

// of tells whether a record's age is reached, or its stamp is ahead of the clock: the one that
// gave it was wrong, and the record is older than the next that is not. In doubt late is by how
// much the age is reached, if the clock is right.
func (a *ages) of(stamp time.Time) (aged, ahead bool, late time.Duration) {
	for _, u := range a.unsure {
		if !stamp.Before(u.From) && !stamp.After(u.To) {
			stamp = later(stamp, u.Ended)
		}
	}
	switch {
	case !a.bound || a.doubt && stamp.IsZero(): // a gap that says nothing of when
		return false, false, 0
	case a.doubt:
		return false, false, max(0, a.old.Sub(stamp))
	}
	return stamp.Before(a.old), stamp.After(a.now.Add(clock.Apart)), 0
}
