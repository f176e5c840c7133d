package gateway

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// track is a stream's place in one log.
type track struct {
	id          api.LogID
	home        string
	log         regions.Log
	reader      regions.Reader // nil until there is something to read
	incarnation string         // "" while the copy has none
	epoch       api.Epoch
	cursor      uint64 // last sequence that was read
	until       uint64 // where a stream that does not follow ends
	follows     bool
	waiting     bool // on_home_loss says wait
	away        bool // the log is not open here just now
	unreadable  uint64
	expired     uint64
	diverged    uint64 // given, and void by now
}

// open starts a log where the request says.
func (s *stream) open(ctx context.Context, l regions.Log, latest bool) (*track, error) {
	head := l.Head()
	home, _, ok := s.gateway.Placement.Home(l.ID())
	if !ok {
		return nil, &api.Error{Code: api.UnknownTopic, Op: "read", Topic: s.topic.Name, Field: "log", Value: l.ID().String(),
			Hint: "the federation no longer has this log"}
	}
	if head.Unsure {
		return nil, &api.Error{Code: api.NotReady, Op: "read", Topic: s.topic.Name, Region: s.gateway.Self, Field: "log", Value: l.ID().String(), RetryAfter: time.Second,
			Hint: "how far the log is on the disks of its whole sync set is not known here yet; read again, from the same position, once its regions have heard each other, or name the slot of another of the topic's logs to read that one now"}
	}
	t := &track{id: l.ID(), home: home, log: l, incarnation: head.Incarnation, epoch: head.Epoch, until: head.Sequence, follows: s.request.Follow}
	var err error
	switch c, named := s.from[t.id]; {
	case named:
		err = s.resume(t, c, head)
	case !s.request.Time.IsZero():
		t.cursor, err = l.After(ctx, s.request.Time)
	case latest:
		t.cursor = head.Sequence
	case head.First > 0:
		t.cursor = head.First - 1
	}
	if err != nil {
		return nil, s.unread(err)
	}
	return t, nil
}

// unread gives an error without a code the one that says to read on later: a read
// that failed leaves nothing in doubt.
func (s *stream) unread(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.NotReady, Op: "read", Topic: s.topic.Name, Region: s.gateway.Self, Err: err, Hint: "read on from the last position"}
}

// next reads on. The reader is opened with the first record that there is to read: a
// copy may be behind the position it is read from.
func (t *track) next(ctx context.Context, limit regions.ReadLimit) ([]regions.Item, error) {
	if t.reader == nil {
		var err error
		if t.reader, err = t.log.Reader(ctx, t.cursor); err != nil {
			return nil, err
		}
	}
	return t.reader.Next(ctx, limit)
}

func (t *track) close() {
	if t.reader != nil {
		t.reader.Close()
	}
}

// resume checks a cursor against the log. A copy may be behind the cursor; the home
// may not.
func (s *stream) resume(t *track, c api.Cursor, head regions.Head) error {
	t.cursor = c.Sequence
	if head.Incarnation == "" {
		t.incarnation, t.epoch = c.Incarnation, c.Epoch
		return nil
	}
	if c.Incarnation != head.Incarnation {
		return t.recreated()
	}
	t.epoch = c.Epoch
	if s.goBack(t); t.cursor != c.Sequence {
		return nil
	}
	if t.home == s.gateway.Self && c.Sequence > head.Sequence {
		return &api.Error{Code: api.CursorAhead, Op: "read", Topic: t.id.Topic, Region: t.home, Field: "position",
			Hint: "the position is beyond what the log's home has on disk: ask its operator before reading on"}
	}
	return nil
}

func (t *track) recreated() error {
	return &api.Error{Code: api.PositionInvalid, Op: "read", Topic: t.id.Topic, Region: t.home, Field: "position",
		Hint: "the log was created anew since the position was given; start from a time or from the oldest record"}
}

// follow takes over a copy's incarnation once it has one, and refuses another.
func (t *track) follow() error {
	head := t.log.Head()
	switch {
	case t.incarnation == "":
		t.incarnation, t.epoch = head.Incarnation, head.Epoch
	case head.Incarnation != "" && head.Incarnation != t.incarnation:
		return t.recreated()
	}
	return nil
}

func (t *track) atEnd() bool {
	return t.cursor >= t.log.Head().Sequence || !t.follows && t.cursor >= t.until
}

// admit appends the records that the reader may have to out, and counts the others.
// It changes nothing of the track: the same items may be judged again.
func (t *track) admit(pass *policy.Pass, who regions.Principal, items []regions.Item, out *[]ReadRecord) (kept uint64, err error) {
	for i := range items {
		if items[i].Gap != nil {
			continue
		}
		err := pass.Consume(&items[i].Record, who, t.home)
		switch api.CodeOf(err) {
		case "":
			*out = append(*out, ReadRecord{Log: t.id, Item: items[i]})
		case api.PolicyUnavailable, api.PolicyError:
			return 0, err // says nothing about the record: the stream ends rather than skips
		default:
			kept++
		}
	}
	return kept, nil
}

func (t *track) advance(items []regions.Item, kept uint64) {
	t.unreadable += kept
	for i := range items {
		if g := items[i].Gap; g != nil && g.Kind == regions.Expired {
			t.expired += g.Count()
		}
	}
	last := &items[len(items)-1]
	t.cursor, t.epoch = last.Sequence, last.Epoch
}

// obey applies the topic's on_home_loss to a copy whose home is unreachable.
func (s *stream) obey(t *track) (readable bool, err error) {
	g := s.gateway
	if t.home == g.Self {
		return true, nil
	}
	status, _ := g.Links.Status(t.home)
	if status.Up {
		return true, nil
	}
	rule := s.topic.OnHomeLoss
	if rule == nil {
		return false, s.lost(t, status, "the topic does not say what readers get")
	}
	switch rule.Consumers.Mode {
	case "wait":
		if s.request.Follow {
			return false, nil
		}
		e := s.lost(t, status, "readers wait for the home")
		e.Code, e.RetryAfter = api.HomeUnreachable, time.Second
		return false, e
	case "read_copy":
		lag := g.lagHere(t.id, t.home)
		if lag.StalenessKnown && lag.Staleness <= rule.Consumers.MaxStaleness {
			return true, nil
		}
		stale := "nobody can say how old the copy is"
		if lag.StalenessKnown {
			stale = "the copy is " + lag.Staleness.Round(time.Second).String() + " old, at most " + rule.Consumers.MaxStaleness.String() + " may be read"
		}
		return false, s.lost(t, status, stale)
	}
	return false, s.lost(t, status, "readers stop while the home is unreachable")
}

// lost is the error of a reader whose log has lost its home, with the words that the
// topic's owner wrote for this case.
func (s *stream) lost(t *track, status regions.LinkStatus, what string) *api.Error {
	e := &api.Error{Code: api.HomeLost, Op: "read", Topic: t.id.Topic, Region: t.home, Field: "slot", Value: t.id.Slot, Hint: what}
	if !status.Since.IsZero() {
		e.For = s.gateway.Clock.Now().Sub(status.Since)
	}
	if o := s.topic.OnHomeLoss; o != nil {
		e.Hint += "; " + o.Owner + " says: " + o.Text
	}
	return e
}
