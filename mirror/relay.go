package mirror

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Relay is a copy of this region's that is given on to another region: one that takes the
// log over from a home that can't be heard any more, and whose own copy may be behind.
type Relay struct {
	Log    regions.CopyLog
	Target string
}

// relayed is a copy as a flow reads it. No watermark speaks of it.
type relayed struct{ regions.CopyLog }

// Append refuses: nobody appends to a copy.
func (r relayed) Append(_ regions.Draft, done func(regions.Stored)) {
	go done(regions.Stored{Err: &api.Error{Code: api.NotHome, Op: "append", Topic: r.ID().Topic, Field: "log", Value: r.ID().String(), Hint: "this region has a copy of it"}})
}

// ClosedInstant is none: only the home knows.
func (relayed) ClosedInstant() time.Time { return time.Time{} }

// lends reports whether a peer that is not the log's home may bring records of it.
func (t *Target) lends(log api.LogID, peer string, c *copied) bool {
	return c != nil && c.home != peer && t.cfg.Lends != nil && t.cfg.Lends(log, peer)
}

// openRelay answers a region that offers what its copy has. That nothing of it is missing
// here is an answer as well, see Brought.
func (t *Target) openRelay(ctx context.Context, peer string, o regions.MirrorOpen, c *copied) (*Sink, regions.MirrorReply) {
	if o.Digest != t.cfg.Federation.TopicDigest(o.Log.Topic) {
		return nil, refuse(api.ManifestMismatch, "digest", "the topic is declared differently in "+t.cfg.Self)
	}
	if e := checkLog(o.Incarnation, o.Epoch, o.Head); e != nil {
		return nil, c.distrust(peer, regions.LaneMirror, e)
	}
	if err := c.enter(ctx); err != nil {
		return nil, c.failed(err)
	}
	defer func() { <-c.apply }()
	if err := c.open(ctx); err != nil {
		return nil, c.failed(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cursor := c.log.Cursor()
	if c.lent == nil {
		c.lent = map[string]lent{}
	}
	if l, ok := c.lent[peer]; ok && l.ended && l.to == cursor.Sequence {
		return nil, refuse(api.NotReady, "gap", "what follows in "+peer+"'s copy is a gap that says nothing of "+t.cfg.Self)
	}
	c.lent[peer] = lent{to: o.Head}
	switch {
	case c.knowledge.alarm.state != "":
		return nil, refuse(api.NotReady, string(c.knowledge.alarm.state), c.knowledge.alarm.cause)
	case cursor.Sequence >= o.Head, cursor.Sequence > 0 && cursor.Incarnation != o.Incarnation:
		return nil, refuse(api.NotReady, "head", "nothing of it is missing in "+t.cfg.Self)
	}
	c.sink = &Sink{copied: c, incarnation: o.Incarnation, lender: peer, next: cursor.Sequence + 1}
	return c.sink, regions.MirrorReply{Cursor: cursor}
}

// Brought reports whether a region offered what its copy of a log has, and this region's
// copy has all of that by now, or all up to a gap that only the other's copy has.
func (t *Target) Brought(log api.LogID, peer string) bool {
	c := t.copyOf(log)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.lent[peer]
	return ok && c.log != nil && c.log.Cursor().Sequence >= l.to
}

// lent is what a region's copy can give to this one.
type lent struct {
	to    uint64 // the last sequence that it has, or that could be taken of it
	ended bool   // what follows could not be taken
}

// takeable is how many items of a lender's batch may be taken. What that region withheld
// on its way, was refused, or lost on its disk is a gap in its copy only: taken over here
// it would hide a record that could rest here and may still come from its home.
func (s *Sink) takeable(items []regions.Item) int {
	if s.lender == "" {
		return len(items)
	}
	for i := range items {
		if g := items[i].Gap; g != nil && (g.Kind == regions.Withheld || g.Kind == regions.Damaged) {
			return i
		}
	}
	return len(items)
}

// ends ends a relay at the copy's end.
func (s *Sink) ends() regions.MirrorReply {
	c := s.copied
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent[s.lender] = lent{to: c.stored.Sequence, ended: true}
	return refuse(api.NotReady, "gap", "what follows in "+s.lender+"'s copy is a gap that says nothing of "+c.target.cfg.Self)
}
