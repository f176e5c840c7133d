package gateway

import (
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// rejoin takes a track to the log as it is open now: another one than before if its home
// has moved. While it is opened anew a stream that follows waits.
func (s *stream) rejoin(t *track, logs []regions.Log) error {
	i := slices.IndexFunc(logs, func(l regions.Log) bool { return l.ID() == t.id })
	if i >= 0 && logs[i] == t.log {
		t.away = false
		return nil
	}
	home, _, known := s.gateway.Placement.Home(t.id)
	switch {
	case i >= 0:
		t.close()
		t.home, t.log, t.reader, t.away = home, logs[i], nil, false
		s.goBack(t)
		return nil
	case known && s.topic.Movable() && s.request.Follow:
		t.away = true
		return nil
	case known && s.topic.Movable():
		return &api.Error{Code: api.NotReady, Op: "read", Topic: t.id.Topic, Region: s.gateway.Self, Field: "log", Value: t.id.String(), RetryAfter: time.Second,
			Hint: "the log's home moves; read on from the last position"}
	}
	return &api.Error{Code: api.UnknownTopic, Op: "read", Topic: t.id.Topic, Region: s.gateway.Self, Field: "log", Value: t.id.String(),
		Hint: "this region does not serve the log any more: its declaration changed, or it was deleted"}
}

// goBack takes a reader that was given records beyond the end of an epoch to where that
// ended: the log goes on from there, also where the epoch lost a contest and counts only
// as far as both sides had the same. What it had too much is counted.
func (s *stream) goBack(t *track) {
	end, ok := s.gateway.EpochEnd(t.id, t.epoch)
	if !ok || t.cursor <= end {
		return
	}
	t.diverged += t.cursor - end
	t.cursor = end
	t.close()
	t.reader = nil
}

// moves reports whether a read may have failed because the log's home moves: the stream
// goes on with what is open then.
func (s *stream) moves(t *track) bool {
	if !s.topic.Movable() || !s.request.Follow {
		return false
	}
	before := t.cursor
	if s.goBack(t); t.cursor != before {
		return true
	}
	if slices.Contains(s.gateway.Logs(t.id.Topic), t.log) {
		return false
	}
	t.close()
	t.reader, t.away, t.waiting = nil, true, true
	return true
}
