package mirror

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// ownClose is how far a log's closed instant may stay behind before it is listed on
// its own, so that one stuck append does not hold back what closes the idle logs.
const ownClose = time.Second

// marker remembers what each peer was told, to list only what moved.
type marker struct {
	mu    sync.Mutex
	peers map[string]*told
}

// told is what one peer knows since its last complete round.
type told struct {
	logs    map[api.LogID]regions.LogMark
	refused int  // logs without marks
	closed  bool // a listed log is gone: nothing may be closed link-wide any more
}

// Marks is this region's watermark message for a peer: logs that moved since the
// last one, and the instant that closes the others. all lists every log, as after a
// connect, when a message may have been lost. Messages to one peer must be sent in
// the order in which they were asked for.
func (s *Source) Marks(peer string, all bool) regions.Watermarks {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if s.marks.peers == nil {
		s.marks.peers = map[string]*told{}
	}
	t := s.marks.peers[peer]
	if t == nil || all {
		t = &told{logs: map[api.LogID]regions.LogMark{}}
		s.marks.peers[peer] = t
		all = true
	}
	now := s.cfg.Clock.Now()
	w := regions.Watermarks{Issued: now, All: all}
	instant := now
	seen := 0
	for _, log := range s.logsFor(peer) {
		m, sure := s.mark(s.cfg.Shown(log))
		if !sure {
			continue // nothing can be said of it yet
		}
		last, known := t.logs[m.Log]
		switch {
		case !known && len(t.logs) >= s.cfg.MaxMarks:
			w.Refused++
			continue
		case known && same(last, m) && now.Sub(m.Closed) <= s.cfg.Pace.Of(ownClose):
			instant = earlier(instant, m.Closed)
		default:
			w.Logs = append(w.Logs, m)
		}
		t.logs[m.Log] = m
		seen++
	}
	if w.Refused != t.refused {
		t.refused = w.Refused
		s.cfg.Logger.Warn("too many logs for one link: some have no watermarks, their lag grows", "peer", peer, "logs", w.Refused, "limit", s.cfg.MaxMarks)
	}
	t.closed = t.closed || seen < len(t.logs)
	if !t.closed && len(w.Logs) < seen {
		w.Instant = instant
	}
	return w
}

// mark reads a log's state. The closed instant is fixed before the head is read: an
// append between the two makes the mark cautious, never wrong.
func (s *Source) mark(log regions.HomeLog) (m regions.LogMark, sure bool) {
	closed := log.ClosedInstant()
	head := log.Head()
	id := log.ID()
	return regions.LogMark{
		Log: id, Incarnation: head.Incarnation, Epoch: head.Epoch, Term: head.Term,
		Head: head.Sequence, HeadTime: head.Time, Closed: closed, First: head.First,
		Digest: s.cfg.Federation.TopicDigest(id.Topic),
	}, !head.Unsure
}

// logsFor lists, in a fixed order, the home logs that peer gets copies of.
func (s *Source) logsFor(peer string) []regions.HomeLog {
	logs := slices.DeleteFunc(slices.Clone(s.cfg.HomeLogs()), func(l regions.HomeLog) bool {
		return !slices.Contains(s.cfg.Targets(l.ID()), peer)
	})
	slices.SortFunc(logs, func(a, b regions.HomeLog) int { return cmp.Compare(a.ID().String(), b.ID().String()) })
	return logs
}

// same reports whether a log is as it was listed last, but for time.
func same(a, b regions.LogMark) bool {
	a.Closed, b.Closed = time.Time{}, time.Time{}
	equal := a.HeadTime.Equal(b.HeadTime)
	a.HeadTime, b.HeadTime = time.Time{}, time.Time{}
	return equal && a == b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
