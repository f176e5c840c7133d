package mirror

import (
	"cmp"
	"context"
	"slices"

	"domicile/api"
	"domicile/regions"
)

// LogsChanged makes the flows those that the home logs and the manifest ask for now. A
// new flow begins at the end of the target's copy, which is the start of the log when
// there is none. A flow that is not asked for ends, and has ended when this returns.
// The others look at both sides' declarations again.
func (s *Source) LogsChanged() {
	for _, f := range s.renewFlows() {
		f.work.Wait()
	}
}

func (s *Source) renewFlows() (ended []*flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.closed {
		return nil
	}
	wanted := map[Flow]regions.HomeLog{}
	for _, log := range s.cfg.HomeLogs() {
		for _, target := range s.cfg.Targets(log.ID()) {
			wanted[Flow{log.ID(), target}] = s.seenBy(log, target)
		}
	}
	for _, r := range s.cfg.Relays() {
		wanted[Flow{r.Log.ID(), r.Target}] = relayed{r.Log}
	}
	for key, f := range s.flows {
		if wanted[key] != f.log {
			ended = append(ended, s.endLocked(key, f))
		}
	}
	for key, log := range wanted {
		topic, ok := s.cfg.Federation.Topic(key.Log.Topic)
		if !ok {
			continue
		}
		f := s.flows[key]
		if f == nil {
			f = &flow{source: s, log: log, id: key.Log, target: key.Target, kick: make(chan struct{}, 1),
				member: slices.Contains(s.cfg.Federation.SyncSet(key.Log), key.Target)}
			f.ctx, f.cancel = context.WithCancel(s.ctx)
			s.flows[key] = f
			s.byLog[key.Log] = append(s.byLog[key.Log], f)
		}
		f.topic.Store(topic)
		f.attempt.Store(0)
		s.kickLocked(f)
	}
	if len(ended) > 0 {
		s.marks.forget() // the next round lists all that is left
	}
	return ended
}

// seenBy is a log as a target may have it: whole for a member of its sync set, else up to
// what is common.
func (s *Source) seenBy(log regions.HomeLog, target string) regions.HomeLog {
	if slices.Contains(s.cfg.Federation.SyncSet(log.ID()), target) {
		return log
	}
	return s.cfg.Shown(log)
}

// endLocked takes a flow out. s.mu is held.
func (s *Source) endLocked(key Flow, f *flow) *flow {
	f.ended = true
	f.cancel()
	stopAfter(f.timer)
	delete(s.flows, key)
	left := slices.DeleteFunc(s.byLog[key.Log], func(x *flow) bool { return x == f })
	if s.byLog[key.Log] = left; len(left) == 0 {
		delete(s.byLog, key.Log)
	}
	s.watch.remove(f.log) // it may be another log object from now on
	for _, other := range left {
		s.kickLocked(other) // whoever waited by that watch looks for itself
	}
	return f
}

// forget makes the next round of every peer a complete one.
func (m *marker) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers = nil
}

// Uncopied is what one target has not confirmed of a log.
type Uncopied struct {
	Target  string
	Known   bool   // where the target's copy ends was heard in this run
	Records uint64 // not there yet
	Exact   bool   // else at most Records: what policy withholds may be among them
}

// Uncopied says, for each target, how many records of a log up to and with sequence to
// its copy has not confirmed. Targets that have them all are not listed.
func (s *Source) Uncopied(log api.LogID, to uint64) []Uncopied {
	var out []Uncopied
	for _, target := range s.cfg.Targets(log) {
		s.mu.Lock()
		f := s.flows[Flow{log, target}]
		s.mu.Unlock()
		u := Uncopied{Target: target}
		if f != nil {
			u = f.uncopied(to)
		}
		if !u.Known || u.Records > 0 {
			out = append(out, u)
		}
	}
	return out
}

// UncopiedFlows is Uncopied by the flows there are, whatever the manifest says by now.
func (s *Source) UncopiedFlows(log api.LogID, to uint64) []Uncopied {
	s.mu.Lock()
	flows := slices.Clone(s.byLog[log])
	s.mu.Unlock()
	var out []Uncopied
	for _, f := range flows {
		if u := f.uncopied(to); !u.Known || u.Records > 0 {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Uncopied) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

func (f *flow) uncopied(to uint64) Uncopied {
	head := f.log.Head().Sequence
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Uncopied{Target: f.target, Known: f.met}
	to = min(to, head)
	if !f.met || f.cursor.Sequence >= to {
		return u
	}
	u.Records = to - f.cursor.Sequence
	if records, _, exact := f.tally.pending(head); exact && (to == head || records == 0) {
		u.Records, u.Exact = records, true
	}
	return u
}

// ManifestChanged makes the copies those that the manifest asks for now: new ones are
// opened, those that it does not name take nothing any more when this returns. ctx
// bounds the opening; a copy that could not be opened is tried again when its origin
// opens a stream.
func (t *Target) ManifestChanged(ctx context.Context) {
	wanted := t.wanted()
	t.mu.Lock()
	var gone []*copied
	for id, c := range t.copies {
		if wanted[id] == nil {
			gone = append(gone, c)
			delete(t.copies, id)
		}
	}
	for id, c := range wanted {
		if t.copies[id] == nil {
			t.copies[id] = c
		}
	}
	t.mu.Unlock()
	for _, c := range gone {
		c.leave(ctx)
	}
	t.Start(ctx)
}

// Forget drops a copy that was deleted or closed, so that the next open of its origin
// makes it anew. It takes nothing any more when this returns.
func (t *Target) Forget(ctx context.Context, log api.LogID) {
	t.mu.Lock()
	known := t.copies[log] != nil
	t.mu.Unlock()
	if known {
		t.renew(ctx, log)
	}
}

// Rehomed makes a copy anew whose log's home or epoch is another, or whose own end went
// back: it takes nothing of the former home any more when this returns, and is opened for
// the present one. A log that this region keeps no copy of any more is dropped, one that
// it keeps a copy of from now on is taken in. ctx bounds the opening, see Start.
func (t *Target) Rehomed(ctx context.Context, log api.LogID) {
	if fresh := t.renew(ctx, log); fresh != nil {
		fresh.start(ctx)
	}
}

// Epoch is the one in which a log's copy takes records; zero: in none, there is no copy.
func (t *Target) Epoch(log api.LogID) (e api.Epoch) {
	if c := t.copyOf(log); c != nil {
		e = c.epoch
	}
	return e
}

// renew puts an unopened copy, or none, in the place of the one there is.
func (t *Target) renew(ctx context.Context, log api.LogID) *copied {
	fresh := t.want(log, t.cfg.Federation.Snapshot())
	t.mu.Lock()
	c := t.copies[log]
	if fresh != nil {
		t.copies[log] = fresh
	} else {
		delete(t.copies, log)
	}
	t.mu.Unlock()
	if c != nil {
		c.leave(ctx)
	}
	return fresh
}

// leave ends whoever applies to the copy, and waits for what is under way.
func (c *copied) leave(ctx context.Context) {
	c.mu.Lock()
	c.sink = nil
	c.mu.Unlock()
	if c.enter(ctx) == nil {
		<-c.apply
	}
}

// all lists the copies.
func (t *Target) all() []*copied {
	t.mu.Lock()
	defer t.mu.Unlock()
	copies := make([]*copied, 0, len(t.copies))
	for _, c := range t.copies {
		copies = append(copies, c)
	}
	return copies
}

func (t *Target) copyOf(log api.LogID) *copied {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copies[log]
}
