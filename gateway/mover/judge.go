package mover

import (
	"context"

	"domicile/api"
	"domicile/regions/placement"
)

// judge asks this region's own policy about all that the log holds here, and may come to
// hold. ok: it has nothing against it. What it forbids is told to the authority: a new home
// leaves the log shut; a move that is not decided is taken back by its home, and by the
// target of a planned one, since the home goes on then.
func (m *Mover) judge(ctx context.Context, id api.LogID, v *view) (ok bool, err error) {
	l := &v.log
	log, open := m.cfg.Logs.Log(id)
	switch {
	case !open:
		return false, &api.Error{Code: api.NotReady, Op: "judge log", Topic: id.Topic, Region: m.cfg.Self, Hint: "the log is not open here yet"}
	case m.cfg.Policy.MayHold == nil:
		return true, nil
	}
	from, to := l.Home, m.cfg.Self
	switch {
	case l.Status == placement.Opening:
		from = v.origin().Home
	case l.Home == m.cfg.Self:
		to = l.Op.Target
	}
	err = m.cfg.Policy.MayHold(ctx, log, from, to)
	switch {
	case err == nil:
		return true, nil
	case api.CodeOf(err) != api.HomeOutsideBoundary:
		return false, err
	case l.Status == placement.Opening:
		return false, m.denied(ctx, l, err)
	case l.Home == m.cfg.Self, l.Op.Kind == placement.Planned:
		return false, m.takeBack(ctx, id, l, err, "the policy of "+m.cfg.Self+" does not let all of the log rest in "+to)
	}
	return false, err
}

// study judges the copy when a move begins. What is read for that is not read again later,
// when producers wait.
func (m *Mover) study(ctx context.Context, id api.LogID, v *view) error {
	if ok, err := m.judge(ctx, id, v); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[id].studied = v.log.Op.ID
	return nil
}

// compare holds the copy against what the home said of its records, and returns that if it
// has the same, "" if it can't be told. A copy that is another one does not become the home.
func (m *Mover) compare(ctx context.Context, id api.LogID, l *placement.Log) (sum string, ok bool, err error) {
	log, open := m.cfg.Logs.Log(id)
	if !open {
		return "", false, &api.Error{Code: api.NotReady, Op: "compare log", Topic: id.Topic, Region: m.cfg.Self, Hint: "the log is not open here yet"}
	}
	compared, err := m.cfg.Logs.Same(ctx, log, l.Op.Proof.Sum)
	switch {
	case err == nil && compared:
		return l.Op.Proof.Sum, true, nil
	case err == nil:
		return "", true, nil
	case api.CodeOf(err) == api.StorageFailed:
		return "", false, m.takeBack(ctx, id, l, err, "the copy in "+m.cfg.Self+" does not hold the records that its home has")
	}
	return "", false, err
}

// takeBack ends a move that is not decided yet, and with it the epoch.
func (m *Mover) takeBack(ctx context.Context, id api.LogID, l *placement.Log, why error, reason string) error {
	m.cfg.Logger.Error("a move is taken back", "log", id.String(), "to", l.Op.Target, "err", why)
	c := m.command(placement.Abort, l)
	c.ID += "/" + string(api.CodeOf(why))
	c.Reason = reason
	return m.submit(ctx, c)
}

func (m *Mover) denied(ctx context.Context, l *placement.Log, why error) error {
	code := api.CodeOf(why)
	if l.Refused == code {
		return why
	}
	c := m.command(placement.Denied, l)
	c.ID += "/" + string(code)
	c.Denial, c.Reason = code, "the policy of the new home does not let all of the log rest there"
	return m.submit(ctx, c)
}
