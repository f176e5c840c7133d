package mover

import (
	"context"
	"fmt"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// step looks at a log and does one thing for it. done: there is nothing left to do now.
func (m *Mover) step(ctx context.Context, id api.LogID) (done bool, err error) {
	placements, changed := m.cfg.Authority.Placements()
	l, ok := placements[id]
	if !ok {
		return true, nil
	}
	held, err := m.cfg.Logs.Held(ctx, id)
	if err != nil {
		m.note(id, &l, rest)
		return false, err
	}
	v := m.view(id, l, held)
	what := next(v)
	if err := m.named(id, &v); err != nil {
		m.note(id, &l, wait)
		return false, err
	}
	m.note(id, &l, what)
	switch what {
	case rest:
		return true, nil
	case wait:
		return m.wait(ctx, id, held.End, changed), nil
	case hold:
		return false, &api.Error{Code: api.StaleEpoch, Op: "move log", Topic: id.Topic, Region: m.cfg.Self, Field: "epoch", Value: l.Epoch.String(),
			Hint: fmt.Sprintf("the store goes by epoch %s already, so nothing is done until the authority's later word is heard here", held.Latest)}
	}
	if m.cfg.Before != nil {
		if err := m.cfg.Before(id, string(what)); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Pace.Of(actWithin))
	defer cancel()
	return false, m.do(ctx, id, what, &v)
}

// named refuses to give a log that is this region's own up to one that its manifest does not
// name, whatever the authority says.
func (m *Mover) named(id api.LogID, v *view) error {
	own := v.held.Role == regions.RoleHome || v.held.Home != api.Epoch{} // open, or not since the last start
	if m.cfg.Policy.Named == nil || !own || v.log.Home == m.cfg.Self {
		return nil
	}
	return m.cfg.Policy.Named(id, v.log.Home)
}

// view takes in what a decision depends on.
func (m *Mover) view(id api.LogID, l placement.Log, held Held) view {
	got, need := l.Approved()
	v := view{self: m.cfg.Self, log: l, held: held, copies: m.cfg.Logs.Copies(id),
		allowed: got >= need && (l.Op == nil || m.cfg.Policy.Approved == nil || m.cfg.Policy.Approved(id, l) == nil)}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.logs[id]
	v.learned = w.learned == l.Version
	op, now := "", m.cfg.Clock.Now()
	if l.Op != nil && (v.allowed || l.Op.Step != placement.Begun) { // approvals may run out halfway
		op = l.Op.ID
	}
	if w.op != op {
		w.op, w.since, w.proven = op, now, time.Time{}
	}
	if op != "" {
		v.studied = w.studied == op
		seen := now.Sub(w.since)
		if w.proven.IsZero() && l.Op.Step != placement.Begun {
			w.proven = now
		}
		from := w.since
		if l.Op.Kind == placement.Forced {
			from = w.proven
		}
		v.overdue = !from.IsZero() && now.Sub(from) >= m.cfg.Pace.Of(Deadline)
		v.fetched = !w.proven.IsZero() && now.Sub(w.proven) >= m.cfg.Pace.Of(FetchFor) || m.broughtAll(id, &l)
		v.alone = seen >= m.cfg.Pace.Of(HomeFirst) || m.cfg.Policy.Up != nil && !m.cfg.Policy.Up(l.Home)
	}
	return v
}

// broughtAll reports whether every other region that may have a copy, and can be reached,
// has given on what this region's copy lacks.
func (m *Mover) broughtAll(id api.LogID, l *placement.Log) bool {
	for _, region := range l.Terms.Allowed {
		if region == m.cfg.Self || region == l.Home || m.cfg.Policy.Up != nil && !m.cfg.Policy.Up(region) {
			continue
		}
		if !m.cfg.Logs.Brought(id, region) {
			return false
		}
	}
	return true
}

// note keeps what was decided, for who looks at the log next. While a move is under way
// the passing of time is a reason to look.
func (m *Mover) note(id api.LogID, l *placement.Log, what act) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.logs[id]
	w.seen, w.rested = l.Version, what == rest && l.Status != placement.Moving
	w.next = m.cfg.Clock.Now().Add(m.cfg.Pace.Of(lookEvery))
}

// wait waits a while for records. It reports whether none came.
func (m *Mover) wait(ctx context.Context, id api.LogID, after uint64, changed <-chan struct{}) bool {
	log, ok := m.cfg.Logs.Log(id)
	if !ok {
		return true
	}
	timer := time.NewTimer(m.cfg.Pace.Of(lookEvery))
	defer timer.Stop()
	select {
	case <-log.Changed(after):
		return false
	case <-changed:
		return false
	case <-ctx.Done():
	case <-timer.C:
	}
	return true
}

func (m *Mover) do(ctx context.Context, id api.LogID, what act, v *view) error {
	l, logs := &v.log, m.cfg.Logs
	switch what {
	case study:
		return m.study(ctx, id, v)
	case fence:
		return m.fence(ctx, id, v)
	case prove:
		return m.prove(ctx, id, v)
	case attest, diverge:
		c := m.command(placement.Prove, l)
		c.Proof = &placement.Proof{Kind: placement.Diverges}
		if what == attest { // what they signed is the plan, by this region's own look at it
			c.Proof = &placement.Proof{Kind: placement.Attested, Statement: l.Op.Plan}
		}
		return m.submit(ctx, c)
	case learn:
		return m.learn(ctx, id, l)
	case freeze:
		_, err := logs.Freeze(ctx, id, v.opID())
		return err
	case cut, caughtUp, frozen:
		return m.stand(ctx, id, what, v)
	case lend:
		logs.Lend(id, v.lendsTo())
		return nil
	case flip:
		if ok, err := m.judge(ctx, id, v); !ok {
			return err
		}
		return m.submit(ctx, m.command(placement.Flip, l))
	case become:
		return m.become(ctx, id, v)
	case opened:
		return m.opened(ctx, id, v)
	case follow, mirrorIt:
		return logs.Follow(ctx, id, whole(l.Epochs()))
	case report:
		return m.report(ctx, v)
	case giveUp:
		c := m.command(placement.Abort, l)
		c.Reason = v.whyGivenUp()
		return m.submit(ctx, c)
	}
	return nil
}

func (v *view) whyGivenUp() string {
	if err := v.tooMuch(); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the move did not come to its end within %s", Deadline)
}

// opID names the move for the store's markers.
func (v *view) opID() string {
	if v.log.Op != nil {
		return v.log.Op.ID
	}
	return "epoch " + v.log.Epoch.String()
}

// whole is a row of epochs that a copy can go by: one that reaches the present.
func whole(row regions.History) regions.History {
	if n := len(row); n < 2 || !row[n-1].Open {
		return nil
	}
	return row
}

// command is what this region says of a log's present epoch. Its id follows from what it
// says, so that it is said once however often it is sent.
func (m *Mover) command(verb placement.Verb, l *placement.Log) placement.Command {
	c := placement.Command{Verb: verb, Log: l.Incarnation, Expect: l.Epoch, Region: m.cfg.Self,
		Actor: "region:" + m.cfg.Self, Reason: "a step of the move"}
	about := l.Epoch.String()
	if l.Op != nil {
		c.Op, c.Reason, about = l.Op.ID, l.Op.Reason, l.Op.ID
	}
	c.ID = fmt.Sprintf("%s/%s/%s/%s", about, l.Incarnation, verb, m.cfg.Self)
	return c
}

// submit brings a command to the authority, and gives what came of it a while to be heard
// here: until then the next look would only say the same again.
func (m *Mover) submit(ctx context.Context, c placement.Command) error {
	_, changed := m.cfg.Authority.Placements()
	if _, err := m.cfg.Authority.Submit(ctx, c); err != nil {
		return err
	}
	timer := time.NewTimer(m.cfg.Pace.Of(lookEvery))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// fence ends the home's epoch. For a move its policy is asked first, while producers still
// write; what they store meanwhile it is asked about once the epoch has ended.
func (m *Mover) fence(ctx context.Context, id api.LogID, v *view) error {
	if op := v.log.Op; op != nil && v.log.Status == placement.Moving && op.Step == placement.Begun && v.log.Home == m.cfg.Self {
		if ok, err := m.judge(ctx, id, v); !ok {
			return err
		}
	}
	_, err := m.cfg.Logs.Fence(ctx, id, v.held.Epoch, v.opID())
	return err
}

func (m *Mover) prove(ctx context.Context, id api.LogID, v *view) error {
	l := &v.log
	ended, err := m.cfg.Logs.Fence(ctx, id, l.Epoch, l.Op.ID)
	if err != nil {
		return err
	}
	if ok, err := m.judge(ctx, id, v); !ok {
		return err
	}
	c := m.command(placement.Prove, l)
	c.Proof = &placement.Proof{Kind: placement.Marker, End: ended.End}
	if log, ok := m.cfg.Logs.Log(id); ok { // it is, it was judged
		if c.Proof.Sum, err = m.cfg.Logs.Sum(ctx, log); err != nil {
			return err
		}
	}
	c.Point = &placement.Point{End: ended.End, SafeTime: ended.Closed}
	return m.submit(ctx, c)
}

func (m *Mover) learn(ctx context.Context, id api.LogID, l *placement.Log) error {
	if err := m.cfg.Logs.Learn(ctx, id, l.Epochs()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[id].learned = l.Version
	return nil
}

// stand reports where the target's copy stands: where the old epoch ends, and that the
// copy has come to there.
func (m *Mover) stand(ctx context.Context, id api.LogID, what act, v *view) error {
	l := &v.log
	reach := m.cfg.Logs.Reach(id)
	verb := map[act]placement.Verb{cut: placement.FixCut, caughtUp: placement.CaughtUp, frozen: placement.Frozen}[what]
	c := m.command(verb, l)
	c.Point = &placement.Point{SafeTime: reach.Safe}
	if p := l.Op.Proof; what == cut && p.Kind == placement.Marker {
		c.Point.End = p.End
		return m.submit(ctx, c)
	}
	at, err := m.cfg.Logs.Freeze(ctx, id, l.Op.ID)
	if err != nil {
		return err
	}
	c.Point.End = at.Sequence
	switch what {
	case caughtUp:
		sum, ok, err := m.compare(ctx, id, l)
		if !ok {
			return err
		}
		c.Point.SafeTime, c.Point.Sum = l.Op.SafeTime, sum
	case frozen:
		c.Lost = &placement.Loss{Span: reach.Lost}
		if reach.All {
			*c.Lost = placement.None()
		}
	}
	return m.submit(ctx, c)
}

// become opens the log as a home. What came from another region is judged first, by the
// policy that is in force now; a denial is reported, and leaves the log shut.
func (m *Mover) become(ctx context.Context, id api.LogID, v *view) error {
	l := &v.log
	o := Opening{Epoch: l.Epoch, Incarnation: l.Incarnation}
	if l.Status == placement.Moving { // it is opened for its epoch to end
		err := m.cfg.Logs.Become(ctx, id, o)
		if api.CodeOf(err) == api.StaleEpoch { // it ended before a start
			o.Sealed = true
			return m.cfg.Logs.Become(ctx, id, o)
		}
		return err
	}
	if v.unjudged() {
		before := v.origin()
		if v.held.Role == regions.RoleCopy && before.EndKnown && v.held.End != before.End {
			return &api.Error{Code: api.StorageFailed, Op: "open log", Topic: id.Topic, Region: m.cfg.Self, Field: "end", Value: fmt.Sprint(v.held.End),
				Hint: fmt.Sprintf("the epoch before ended at %d and this region's copy does not: move the log to a region that has it", before.End)}
		}
		if ok, err := m.judge(ctx, id, v); !ok {
			return err
		}
		o.NotBefore = m.cfg.Logs.Reach(id).Now
		if before.SafeTime.After(o.NotBefore) {
			o.NotBefore = before.SafeTime
		}
	}
	return m.cfg.Logs.Become(ctx, id, o)
}

// opened reports where the present epoch began. The log takes no records before the
// authority has agreed, so it still ends there. What came from another region is judged
// once more: another policy may have come into force while it was opened, or over a start.
func (m *Mover) opened(ctx context.Context, id api.LogID, v *view) error {
	l := &v.log
	if v.fromElsewhere() {
		if ok, err := m.judge(ctx, id, v); !ok {
			return err
		}
	}
	held, err := m.cfg.Logs.Held(ctx, id)
	if err != nil {
		return err
	}
	c := m.command(placement.Opened, l)
	c.Point = &placement.Point{End: held.End}
	return m.submit(ctx, c)
}

func (m *Mover) report(ctx context.Context, v *view) error {
	d := v.held.Void[v.unreported()]
	c := m.command(placement.Diverged, &v.log)
	c.ID = fmt.Sprintf("%s/%s/%s/%s/%s", v.log.Incarnation, d.Epoch, placement.Diverged, m.cfg.Self, d.Root)
	c.Op, c.Reason, c.Divergence = "", "records beyond the end of an epoch", &d
	return m.submit(ctx, c)
}
