package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Sink applies one flow's batches to this region's copy. One goroutine at a time may
// call Apply.
type Sink struct {
	copied      *copied
	incarnation string   // of the log, as the open said
	broken      api.Code // a batch was refused with it
	lender      string   // the region whose copy is given on; "": the records come from their home
	next        uint64   // the sequence that follows what was said on this stream
}

// OpenMirror answers an origin that asks where this region's copy of a log ends. The
// sink is nil when the flow is refused; the reply says why and, if it is known, where
// the copy ends. A second open of a log takes over from the first.
func (t *Target) OpenMirror(ctx context.Context, peer string, o regions.MirrorOpen) (*Sink, regions.MirrorReply) {
	c := t.copyOf(o.Log)
	if t.lends(o.Log, peer, c) {
		return t.openRelay(ctx, peer, o, c)
	}
	if reply := t.checkOpen(peer, o, c); reply.Refused != "" {
		if reply.Refused == api.PermissionDenied {
			t.claims(peer, regions.LaneMirror, o.Log, o.Epoch)
		}
		if c != nil { // else a peer would choose the names that are counted by
			t.cfg.Metrics.Refused(o.Log, peer, reply.Refused)
		}
		return nil, reply
	}
	if err := c.enter(ctx); err != nil {
		return nil, c.failed(err)
	}
	defer func() { <-c.apply }()
	if err := c.open(ctx); err != nil {
		return nil, c.failed(err)
	}
	return c.admit(o)
}

func refuse(code api.Code, field, hint string) regions.MirrorReply {
	return regions.MirrorReply{Refused: code, Field: field, Hint: hint}
}

// checkOpen is what can be said without the copy.
func (t *Target) checkOpen(peer string, o regions.MirrorOpen, c *copied) regions.MirrorReply {
	ours := t.cfg.Federation.TopicDigest(o.Log.Topic)
	switch {
	case ours == "":
		return refuse(api.ManifestMismatch, "topic", "the topic is not in "+t.cfg.Self+"'s manifest")
	case ours != o.Digest:
		return refuse(api.ManifestMismatch, "digest", "the topic is declared differently in "+t.cfg.Self)
	case c == nil:
		return refuse(api.PermissionDenied, "log", "by the manifest "+t.cfg.Self+" has no copy of this log")
	case c.home != peer && t.moves(o.Log):
		return refuse(api.NotReady, "home", "as far as "+t.cfg.Self+" knows the home of this log is "+c.home)
	case c.epoch != o.Epoch && t.moves(o.Log):
		return refuse(api.NotReady, "epoch", "as far as "+t.cfg.Self+" knows the log is in epoch "+c.epoch.String())
	case c.home != peer:
		return refuse(api.PermissionDenied, "home", "the home of this log is "+c.home)
	case c.epoch != o.Epoch:
		return refuse(api.PermissionDenied, "epoch", "the log is in epoch "+c.epoch.String())
	}
	if e := checkLog(o.Incarnation, o.Epoch, o.Head); e != nil {
		return c.distrust(peer, regions.LaneMirror, e)
	}
	return regions.MirrorReply{}
}

// moves reports whether a log's home may be another one: what the two sides know of it
// may then differ for a while.
func (t *Target) moves(log api.LogID) bool {
	topic, ok := t.cfg.Federation.Topic(log.Topic)
	return ok && topic.Movable()
}

// admit compares where the copy ends with what the origin has, and makes the sink.
// The caller has entered.
func (c *copied) admit(o regions.MirrorOpen) (*Sink, regions.MirrorReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cursor := c.log.Cursor()
	if cursor.Sequence != c.stored.Sequence {
		c.take(cursor) // an append that failed was stored after all
	}
	c.moved = c.target.cfg.Clock.Now()
	switch {
	case c.knowledge.alarm.state != "":
	case cursor.Sequence > 0 && cursor.Incarnation != o.Incarnation:
		c.alarm(trouble{regions.LagIncarnation, "the copy is of incarnation " + cursor.Incarnation + ", the log is " + o.Incarnation})
	case cursor.Sequence > o.Head && cursor.Epoch.Compare(o.Epoch) < 0 && c.target.moves(c.id):
		// What it holds beyond the end of its epoch is void, which it has not been told yet.
		return nil, refuse(api.NotReady, "epoch", "the copy has yet to learn where its epoch "+cursor.Epoch.String()+" ended")
	case cursor.Sequence > o.Head:
		c.alarm(trouble{regions.LagCursorAhead, fmt.Sprintf("the copy has %d, the log ends at %d", cursor.Sequence, o.Head)})
	}
	if a := c.knowledge.alarm; a.state != "" {
		reply := refuse(api.CursorAhead, string(a.state), a.cause)
		reply.Cursor = cursor
		return nil, reply
	}
	c.sink = &Sink{copied: c, incarnation: o.Incarnation, next: cursor.Sequence + 1}
	return c.sink, regions.MirrorReply{Cursor: cursor}
}

// alarm is for a person; nothing the origin says is believed from here on. c.mu is
// held.
func (c *copied) alarm(t trouble) {
	c.knowledge.alarm = t
	c.target.cfg.Logger.Error("a copy does not fit its origin: nothing is applied until a person decides",
		"log", c.id.String(), "origin", c.home, "state", t.state, "cause", t.cause)
}

// Apply judges a batch on arrival and appends it: all of it, once and in order, or
// nothing. After a refusal every later batch of the flow is refused too; the origin
// opens anew and asks where the copy ends.
func (s *Sink) Apply(ctx context.Context, b regions.MirrorBatch) regions.MirrorReply {
	c := s.copied
	if s.broken != "" {
		return refuse(s.broken, "stream", "an earlier batch of this stream was refused")
	}
	// A stream that ends does not end its last append: the pass is held, and the next
	// open waits, until the outcome is known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.target.cfg.Pace.Of(watchdogAfter))
	defer cancel()
	var reply regions.MirrorReply
	if e := s.check(&b); e != nil {
		reply = c.distrust(s.from(), regions.LaneMirror, e)
	} else {
		reply = c.applyBatch(ctx, s, b)
	}
	if reply.Refused != "" {
		s.broken = reply.Refused
		c.target.cfg.Metrics.Refused(c.id, c.home, reply.Refused)
	}
	return reply
}

// Close ends the flow. The copy stays open.
func (s *Sink) Close() {
	c := s.copied
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sink == s {
		c.sink = nil
	}
}

func (c *copied) applyBatch(ctx context.Context, s *Sink, b regions.MirrorBatch) regions.MirrorReply {
	if err := c.enter(ctx); err != nil {
		return c.failed(err)
	}
	defer func() { <-c.apply }()
	c.mu.Lock()
	current, alarm := c.sink == s, c.knowledge.alarm
	before, stamped := c.stored.Sequence, c.stored.Time
	c.mu.Unlock()
	switch {
	case !current:
		return refuse(api.NotReady, "stream", "another stream of this log was opened later")
	case alarm.state != "":
		return refuse(api.CursorAhead, string(alarm.state), alarm.cause)
	case b.Incarnation != s.incarnation:
		return refuse(api.NotReady, "incarnation", "the batch is of another incarnation than the stream was opened for")
	case s.lender != "" && c.later(b.Items):
		return refuse(api.NotReady, "epoch", "as far as "+c.target.cfg.Self+" knows the log is in epoch "+c.epoch.String())
	case first(&b.Items[0]) != before+1:
		return refuse(api.NotReady, "sequence", "the batch does not follow the copy's last record")
	}
	n := s.takeable(b.Items)
	if n == 0 {
		return s.ends()
	}
	partly := n < len(b.Items)
	b.Items = b.Items[:n]
	for {
		pass := c.target.cfg.Enter()
		in := judged{pass: pass, from: s.from(), revision: pass.Revision(), since: c.target.since(pass.Revision()), stamped: stamped}
		refused := c.judge(&in, b)
		if pass.Stale() {
			pass.Leave()
			continue
		}
		if refused.Refused != "" {
			pass.Leave()
			return refused
		}
		cursor, err := c.log.Apply(ctx, b.Incarnation, in.items)
		// The pass ends only now: what was judged under it is on disk.
		pass.Leave()
		if err != nil {
			return c.failed(err)
		}
		reply := c.applied(cursor, &in)
		if partly && reply.Refused == "" {
			return s.ends()
		}
		return reply
	}
}

// later reports whether one of the items is of a later epoch than this region knows of.
func (c *copied) later(items []regions.Item) bool {
	return slices.ContainsFunc(items, func(it regions.Item) bool { return it.Epoch != c.epoch && it.Epoch.Compare(c.epoch) >= 0 })
}

// judged is a batch after ingress.
type judged struct {
	pass           Pass
	from           string // the region that sends it
	revision       string
	items          []regions.Item
	records, bytes int
	oldest         *regions.Item
	withheld       map[api.Code]uint64
	since          time.Time // see Target.since
	stamped        time.Time // the latest stamp before the item that is judged
	lawless        [2]int    // records that lay where they may not; the second: see earlier
}

// judge asks this region's own policy about every record that comes from a region. If it says no only because
// the origin's policy is newer, the whole batch waits: a gap would be final. So does one
// that left under a policy which is not taken here any more.
func (c *copied) judge(in *judged, b regions.MirrorBatch) regions.MirrorReply {
	t := c.target
	if in.pass.TooOld(b.Serial) {
		return c.skew(in.pass, b) // the origin judges it anew from here, once it has this policy
	}
	in.items = make([]regions.Item, 0, len(b.Items))
	for i := range b.Items {
		item := &b.Items[i]
		if item.Gap != nil {
			in.items = appendItem(in.items, *item)
			continue
		}
		err := c.verdict(in.pass, &item.Record, in.from)
		if err == nil {
			in.stamped = item.Time
			in.items = append(in.items, *item)
			in.records++
			in.bytes += item.Size()
			if in.oldest == nil {
				in.oldest = item
			}
			continue
		}
		code, wait := denial(err)
		if wait || in.pass.Behind(b.Serial, b.Revision) {
			return c.skew(in.pass, b)
		}
		if err == error(errImpossible) {
			if t.otherMap(in.from) {
				return c.otherMap(in.from)
			}
			in.count(item)
		}
		in.stamped = item.Time
		if in.withheld == nil {
			in.withheld = map[api.Code]uint64{}
		}
		in.withheld[code]++
		in.items = appendItem(in.items, gapOf(item, code, sideIngress, in.revision))
	}
	return regions.MirrorReply{}
}

// count counts a record that lay where it may not lie.
func (in *judged) count(it *regions.Item) {
	if in.earlier(it) {
		in.lawless[1]++
	} else {
		in.lawless[0]++
	}
}

// otherMap waits until both sides have the same manifest.
func (c *copied) otherMap(from string) regions.MirrorReply {
	reply := refuse(api.ManifestMismatch, "boundaries", "by the manifest of "+c.target.cfg.Self+" a record of the batch may not lie in "+from+"; the two manifests differ")
	c.inTrouble(trouble{regions.LagManifestDiffers, reply.Hint})
	return reply
}

func (c *copied) skew(pass Pass, b regions.MirrorBatch) regions.MirrorReply {
	ours := pass.Revision()
	if ours == "" {
		ours = "none"
	}
	reply := refuse(api.PolicySkew, "policy", c.target.cfg.Self+" has policy "+ours+", "+c.home+" has "+b.Revision)
	reply.RetryAfter = c.target.cfg.Pace.Of(retrySkew)
	c.inTrouble(trouble{regions.LagPolicySkew, reply.Hint})
	return reply
}

func (c *copied) inTrouble(t trouble) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != t {
		c.trouble = t
		c.target.cfg.Logger.Warn("mirror batch refused", "log", c.id.String(), "origin", c.home, "state", t.state, "cause", t.cause)
	}
}

// failed turns a failed append or open into a refusal.
func (c *copied) failed(err error) regions.MirrorReply {
	code := api.CodeOf(err)
	undecided := errors.Is(err, &api.Error{Code: api.OutcomeUnknown})
	switch {
	case undecided, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refuse(api.NotReady, "time", "the append was not decided in time: ask again where the copy ends")
	case errors.Is(err, regions.ErrOutOfOrder):
		return refuse(api.NotReady, "sequence", "the batch does not follow the copy's last record")
	case code == api.Fenced, code == api.StaleEpoch, code == api.HistoryNeeded:
		return refuse(api.NotReady, "epoch", "the log's home moves, and the copy in "+c.target.cfg.Self+" takes nothing of this epoch: "+string(code))
	case code == api.Overloaded, code == api.NotReady, code == api.ShuttingDown:
		return refuse(api.NotReady, "storage", "the copy in "+c.target.cfg.Self+" takes nothing just now: "+string(code))
	case errors.Is(err, regions.ErrIncarnation):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alarm(trouble{regions.LagIncarnation, "the copy is of another incarnation than the log"})
		return refuse(api.CursorAhead, string(regions.LagIncarnation), c.knowledge.alarm.cause)
	case code == api.StorageFull:
		reply := refuse(code, "storage", "the copy in "+c.target.cfg.Self+" has no room")
		reply.RetryAfter = c.target.cfg.Pace.Of(retrySkew)
		c.inTrouble(trouble{regions.LagTargetFull, reply.Hint})
		return reply
	}
	c.target.cfg.Logger.Error("a mirrored batch could not be stored", "log", c.id.String(), "err", err)
	reply := refuse(code, "storage", "the copy in "+c.target.cfg.Self+" could not be written")
	c.inTrouble(trouble{regions.LagStalled, "storage of the copy: " + string(code)})
	return reply
}

// applied takes in what is durable now and answers.
func (c *copied) applied(cursor regions.Cursor, in *judged) regions.MirrorReply {
	cfg := &c.target.cfg
	c.mu.Lock()
	c.take(cursor)
	c.trouble = trouble{}
	for _, n := range in.withheld {
		c.withheld += n
	}
	alarm := c.knowledge.alarm
	c.mu.Unlock()
	if in.records > 0 {
		cfg.Metrics.Applied(c.id, in.records, in.bytes)
		if link, _ := cfg.Link(c.home); link.OffsetOK { // else the clocks' difference would be the sample
			cfg.Metrics.Crossed(c.id, max(0, cfg.Clock.Now().Add(link.Offset).Sub(in.oldest.Time)))
		}
	}
	if in.lawless[0] > 0 {
		cfg.Refused.Add(in.from, regions.LaneMirror, regions.Impossible)
	}
	for i, n := range in.lawless {
		if n > 0 {
			cfg.Logger.Error("records lay in a region where they may not lie, and were kept out", "log", c.id.String(), "region", in.from,
				"earlier", i == 1, "records", n, "revision", in.revision)
		}
	}
	for code, n := range in.withheld {
		cfg.Metrics.Withheld(c.id, cfg.Self, sideIngress, code, n)
		cfg.Logger.Warn("ingress withheld records that egress let go", "log", c.id.String(), "origin", c.home,
			"code", code, "records", n, "revision", in.revision)
	}
	if alarm.state != "" {
		return refuse(api.CursorAhead, string(alarm.state), alarm.cause)
	}
	return regions.MirrorReply{Cursor: cursor}
}
