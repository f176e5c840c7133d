package gateway

import (
	"context"
	"reflect"
	"slices"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// holdWithin bounds how long a batch that is not taken holds its generation.
const holdWithin = 5 * time.Second

// stream is one reader's place in the union of a topic's local logs. One goroutine
// uses it.
type stream struct {
	gateway *Gateway
	request ReadRequest
	who     regions.Principal
	topic   *regions.Topic
	from    map[api.LogID]api.Cursor // of the requested position
	tracks  []*track
	turn    int // which log is read first in the next round
}

func (g *Gateway) openStream(ctx context.Context, q ReadRequest, who regions.Principal) (*stream, error) {
	t, err := g.topic(q.Topic)
	if err != nil {
		return nil, err
	}
	s := &stream{gateway: g, request: q, who: who, topic: t, from: map[api.LogID]api.Cursor{}}
	if err := s.checkRequest(); err != nil {
		return nil, err
	}
	if err := s.refresh(ctx, q.Latest); err != nil {
		s.close()
		return nil, err
	}
	if len(s.tracks) == 0 {
		// One that follows may wait for a copy that is only not open yet.
		if err := g.nothingHere(t, q.Slot); err.Code != api.NotReady || !q.Follow {
			return nil, err
		}
	}
	return s, nil
}

// refresh opens the local logs that are not open in this stream yet. A copy may come
// into being while the stream runs.
func (s *stream) refresh(ctx context.Context, latest bool) error {
	topic, err := s.gateway.topic(s.topic.Name)
	if err != nil {
		return err
	}
	s.topic = topic
	logs := s.gateway.Logs(topic.Name)
	for _, t := range s.tracks {
		if err := s.rejoin(t, logs); err != nil {
			return err
		}
	}
	for _, l := range logs {
		id := l.ID()
		if s.request.Slot != "" && id.Slot != s.request.Slot {
			continue
		}
		if slices.ContainsFunc(s.tracks, func(t *track) bool { return t.id == id }) {
			continue
		}
		t, err := s.open(ctx, l, latest)
		if err != nil {
			return err
		}
		s.tracks = append(s.tracks, t)
	}
	return nil
}

func (s *stream) close() {
	for _, t := range s.tracks {
		t.close()
	}
}

// round reads what is there, judges it and sends it. moved is true if anything was
// read: there may be more at once. Nothing is sent when nothing moved, unless a
// batch is due.
func (s *stream) round(ctx context.Context, send func(Batch) error, due bool) (moved bool, err error) {
	steps, err := s.fetch(ctx)
	if err != nil || len(steps) == 0 && !due {
		return false, err
	}
	b, pass, err := s.judge(steps)
	if err != nil {
		return false, err
	}
	defer pass.Leave()
	// The pass is held until the batch is on its way, but not for ever: a reader
	// that does not read must not keep a new policy from being reported active.
	limit := time.AfterFunc(s.gateway.Pace.Of(holdWithin), pass.Leave)
	defer limit.Stop()
	return len(steps) > 0, send(b)
}

// step is what one log gave in a round.
type step struct {
	track *track
	items []regions.Item
}

// fetch reads the logs in turn until the batch is full.
func (s *stream) fetch(ctx context.Context) ([]step, error) {
	var steps []step
	left := regions.ReadLimit{Records: s.request.Records, Bytes: s.request.Bytes}
	first := s.turn
	for i := range s.tracks {
		t := s.tracks[(first+i)%len(s.tracks)]
		readable, err := s.obey(t)
		if err != nil {
			return nil, err
		}
		if err := t.follow(); err != nil {
			return nil, err
		}
		s.goBack(t)
		if t.waiting = !readable || t.away; t.waiting || t.atEnd() || left.Records <= 0 || left.Bytes <= 0 {
			continue
		}
		items, err := t.next(ctx, left)
		if err != nil {
			if s.moves(t) {
				continue
			}
			return nil, s.unread(err)
		}
		if len(items) == 0 {
			continue
		}
		s.turn = first + i + 1
		left.Records -= len(items)
		for j := range items {
			left.Bytes -= items[j].Size()
		}
		steps = append(steps, step{t, items})
	}
	return steps, nil
}

// judge asks, record by record, whether the reader may have it, all under one
// generation, which it returns pinned.
func (s *stream) judge(steps []step) (Batch, *policy.Pass, error) {
	for {
		pass := s.gateway.Gate.Enter()
		var records []ReadRecord
		withheld := make([]uint64, len(steps))
		err := func() error {
			for i, st := range steps {
				kept, err := st.track.admit(pass, s.who, st.items, &records)
				if err != nil {
					return err
				}
				withheld[i] = kept
			}
			return nil
		}()
		if pass.Stale() {
			pass.Leave()
			continue
		}
		if err != nil {
			pass.Leave()
			return Batch{}, nil, err
		}
		total := 0
		for i, st := range steps {
			st.track.advance(st.items, withheld[i])
			total += int(withheld[i])
		}
		s.gateway.Counters.Read(s.topic.Name, len(records), total)
		return s.batch(records), pass, nil
	}
}

// batch adds the states of the logs and the position to records.
func (s *stream) batch(records []ReadRecord) Batch {
	b := Batch{Records: records, Logs: make([]LogState, len(s.tracks))}
	place := map[api.LogID]api.Cursor{}
	for id, c := range s.from {
		place[id] = c // also of logs that are not here: the position stays valid elsewhere
	}
	for i, t := range s.tracks {
		b.Logs[i] = LogState{Lag: s.gateway.lagHere(t.id, t.home), Unreadable: t.unreadable, Expired: t.expired, Diverged: t.diverged, Cursor: t.cursor}
		if t.incarnation != "" {
			place[t.id] = api.Cursor{Log: t.id, Incarnation: t.incarnation, Epoch: t.epoch, Sequence: t.cursor}
		}
	}
	cursors := make([]api.Cursor, 0, len(place))
	for _, c := range place {
		cursors = append(cursors, c)
	}
	b.Position = api.EncodePosition(cursors)
	return b
}

func (g *Gateway) lagHere(id api.LogID, home string) regions.Lag {
	if home == g.Self {
		return regions.Lag{Log: id, Home: home, Target: g.Self, State: regions.LagHome, StalenessKnown: true, SecondsTrusted: true}
	}
	return g.Lags.Lag(id)
}

// wait returns when a log has moved, or with due when the tick came.
func (s *stream) wait(ctx context.Context, tick <-chan time.Time) (due bool, err error) {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(tick)},
	}
	for _, t := range s.tracks {
		if !t.waiting {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.log.Changed(t.cursor))})
		}
	}
	switch chosen, _, _ := reflect.Select(cases); chosen {
	case 0:
		return false, ctx.Err()
	case 1:
		return true, nil
	}
	return false, nil
}
