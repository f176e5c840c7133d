package intruder_test

import (
	"fmt"
	"math"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
)

// others lists the logs of which an honest region has its own or a copy, and the liar has not.
func others() []api.LogID {
	var ids []api.LogID
	for _, name := range honest() {
		ids = append(ids, api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: name}, api.LogID{Tenant: api.DefaultTenant, Topic: "health", Slot: name})
	}
	return append(ids, api.LogID{Tenant: api.DefaultTenant, Topic: "catalog", Slot: api.HomeSlot})
}

// marks are the lies of what logs have become. far is an instant that has not come.
func marks() []lie {
	round := func(name, rule, mute string, change func(*telling, *regions.Watermarks)) lie {
		return lie{lane: "marks", name: name, rule: rule, mute: mute, tell: func(t *telling) { t.rounds(change) }}
	}
	far := time.Now().Add(50 * 365 * 24 * time.Hour)
	const own = "its own log, and its clock may be wrong"
	return []lie{
		round("heads of others' logs", "only its home marks a log", "", func(t *telling, w *regions.Watermarks) {
			for _, id := range others() {
				w.Logs = append(w.Logs, t.marked(id, 1<<40, time.Now()))
			}
		}),
		round("others' logs are empty", "only its home marks a log", "", func(t *telling, w *regions.Watermarks) {
			for _, id := range others() {
				w.Logs = append(w.Logs, t.marked(id, 0, time.Now()))
			}
		}),
		round("others' logs are complete for ever", "only its home marks a log", "", func(t *telling, w *regions.Watermarks) {
			for _, id := range others() {
				w.Logs = append(w.Logs, t.marked(id, 1, far))
			}
		}),
		round("names that move the cursor", "text is printable and short", "", func(t *telling, w *regions.Watermarks) {
			for range 10 {
				w.Logs = append(w.Logs, regions.LogMark{Log: api.LogID{Tenant: t.word(), Topic: t.word(), Slot: t.word()}, Incarnation: t.word(), Epoch: api.Epoch{Issuer: t.word()}, Digest: t.word()})
			}
		}),
		round("incarnation that moves the cursor", "text is printable and short", "", func(t *telling, w *regions.Watermarks) {
			m := t.marked(t.own(t.topic()).Log, 1, time.Now())
			m.Incarnation = t.word()
			w.Logs = append(w.Logs, m)
		}),
		round("instant that has not come", "nothing is complete before its time", own, func(_ *telling, w *regions.Watermarks) { w.Issued, w.Instant = far, far }),
		round("its own log is complete for ever", "nothing is complete before its time", own, func(t *telling, w *regions.Watermarks) {
			w.Logs = append(w.Logs, t.marked(t.own(t.topic()).Log, 5, far))
		}),
		round("its own log has all there can be", "a head is no reason to stop", own, func(t *telling, w *regions.Watermarks) {
			w.Logs = append(w.Logs, t.marked(t.own(t.topic()).Log, math.MaxUint64, time.Now()))
		}),
		round("instant of the year 1678", "an instant is no reason to stop", own, func(_ *telling, w *regions.Watermarks) {
			w.Issued, w.Instant = time.Unix(0, math.MinInt64+1), time.Unix(0, math.MinInt64+1)
		}),
		round("refusals without number", "a count is no reason to stop", own, func(_ *telling, w *regions.Watermarks) { w.Refused = math.MaxInt32 }),
		{lane: "marks", name: "100,000 logs in one round", rule: "a round is bounded", tell: func(t *telling) {
			t.frameControl(func(int) *pb.ControlRequest {
				m := &pb.WatermarkList{More: true}
				for i := range 5000 {
					m.Logs = append(m.Logs, &pb.Watermark{Log: &pb.LogId{Tenant: "default", Topic: fmt.Sprint("t", i), Slot: "home"}})
				}
				return &pb.ControlRequest{Frame: &pb.ControlRequest_Watermarks{Watermarks: m}}
			}, 20)
		}},
		{lane: "marks", name: "a log without a name", rule: "logs have names", tell: func(t *telling) {
			t.frameControl(func(int) *pb.ControlRequest {
				return &pb.ControlRequest{Frame: &pb.ControlRequest_Watermarks{Watermarks: &pb.WatermarkList{Logs: []*pb.Watermark{{}}}}}
			}, 1)
		}},
		{lane: "marks", name: "rounds without a pause", rule: "who does not keep up starts over", mute: "a line that stood still says it, too", tell: func(t *telling) {
			t.frameControl(func(int) *pb.ControlRequest {
				return &pb.ControlRequest{Frame: &pb.ControlRequest_Watermarks{Watermarks: &pb.WatermarkList{All: true}}}
			}, 5000)
		}},
		{lane: "marks", name: "heartbeats of all times", rule: "a heartbeat is no clock", mute: "its clock may be wrong", tell: func(t *telling) {
			t.frameControl(func(i int) *pb.ControlRequest {
				return &pb.ControlRequest{Frame: &pb.ControlRequest_Heartbeat{Heartbeat: &pb.Heartbeat{Number: t.rng.Uint64(), SentUnixNano: t.rng.Int64() - math.MaxInt64/2, HearsYou: i%2 == 0}}}
			}, 200)
		}},
		{lane: "marks", name: "clock that runs away", rule: "a peer's clock is no reason to stop", mute: "its clock may be wrong", tell: func(t *telling) {
			t.answersBeats(time.Now().Add(200 * 365 * 24 * time.Hour).UnixNano())
		}},
	}
}

func (t *telling) marked(id api.LogID, head uint64, closed time.Time) regions.LogMark {
	home, epoch, _ := t.world.federation.Home(id)
	incarnation := "forged"
	if home == traitor {
		incarnation = incarnationOf(id.Topic)
	}
	return regions.LogMark{Log: id, Incarnation: incarnation, Epoch: epoch, Term: 1, Head: head, HeadTime: closed, Closed: closed, First: 1, Digest: t.world.federation.TopicDigest(id.Topic)}
}

// rounds says one round that is not true, twice.
func (t *telling) rounds(change func(*telling, *regions.Watermarks)) {
	for range 2 {
		w := regions.Watermarks{Issued: time.Now(), All: true}
		change(t, &w)
		said := make(chan struct{}, 1)
		t.now(func(s *script) { s.marks, s.said = map[string]regions.Watermarks{t.victim: w}, said })
		select {
		case <-said:
		case <-t.ctx.Done():
			t.hears(t.ctx.Err())
		}
	}
	_ = lab.Pass(t.ctx, pace.Of(time.Second)) // it arrives
}

// frameControl says frames on a control stream of the liar's own.
func (t *telling) frameControl(frame func(int) *pb.ControlRequest, times int) {
	a, err := t.lane(t.ctx, t.victim, link.Control)
	if err == nil {
		defer a.close()
		err = t.greet(t.ctx, a)
	}
	if err != nil {
		t.hears(err)
		return
	}
	s, err := a.client.Control(t.ctx)
	for i := range times {
		if err == nil {
			err = s.Send(frame(i))
		}
	}
	if err == nil {
		_ = s.CloseSend()
	}
	for range times {
		if err == nil {
			_, err = s.Recv()
		}
	}
	t.hears(err)
}

// answersBeats answers heartbeats with a clock that is off.
func (t *telling) answersBeats(at int64) {
	t.speaks(func(m any) {
		if r, ok := m.(*pb.ControlResponse); ok && r.GetReply() != nil {
			r.Reply.ReceivedUnixNano, r.Reply.RepliedUnixNano = at, at+1
		}
	})
	_ = lab.Pass(t.ctx, 4*pace.Of(time.Second))
}

// tails are the lies of what is on its way.
func tails() []lie {
	list := func(name, rule string, change func(*telling, *regions.TailList)) lie {
		return lie{lane: "tails", name: name, rule: rule, tell: func(t *telling) {
			l := regions.TailList{Log: t.own(t.topic()).Log, Incarnation: incarnationOf(t.topic()), Epoch: api.StaticEpoch(traitor), Head: 10, HeadTime: time.Now(), Closed: time.Now()}
			l.Entries = []regions.TailEntry{{From: 10, Sequence: 10, Time: time.Now(), Bytes: 5}}
			change(t, &l)
			said := make(chan struct{}, 1)
			t.now(func(s *script) { s.tails, s.said = map[string]regions.TailList{t.victim: l}, said })
			select {
			case <-said:
			case <-time.After(soon):
				t.heard = "nobody asked for it"
			}
			_ = lab.Pass(t.ctx, pace.Of(time.Second))
		}}
	}
	return []lie{
		list("tail of another's log", "only its home tells a log's tail", func(t *telling, l *regions.TailList) {
			l.Log = others()[t.rng.IntN(len(others())-1)] // the last is the next lie's
			_, l.Epoch, _ = t.world.federation.Home(l.Log)
		}),
		list("head of another's log that moves", "only its home tells a log's tail", func(t *telling, l *regions.TailList) {
			l.Log = api.LogID{Tenant: api.DefaultTenant, Topic: "catalog", Slot: api.HomeSlot}
			_, l.Epoch, _ = t.world.federation.Home(l.Log)
			l.Head, l.Closed = math.MaxUint64, time.Now().Add(time.Hour*1e5)
		}).silent("a home that has not heard of a move says it, too"),
		list("names that move the cursor", "text is printable and short", func(t *telling, l *regions.TailList) {
			l.Log.Topic, l.Incarnation = t.word(), t.word()
		}),
		list("entries beyond the head", "a tail ends at its head", func(_ *telling, l *regions.TailList) { l.Head = 3 }),
		list("entries out of order", "a tail is in order", func(_ *telling, l *regions.TailList) { l.Entries = append(l.Entries, l.Entries[0]) }),
		list("a kind that does not exist", "gaps have kinds", func(t *telling, l *regions.TailList) { l.Entries[0].Kind = regions.GapKind(t.word()) }),
		list("ten thousand entries", "a list is bounded", func(_ *telling, l *regions.TailList) {
			l.Head, l.Entries = 1<<40, nil
			for i := range uint64(10_000) {
				l.Entries = append(l.Entries, regions.TailEntry{From: i + 1, Sequence: i + 1})
			}
		}),
		{lane: "tails", name: "lists without a pause", rule: "what nobody keeps up with is dropped", mute: "each of them may be true", tell: func(t *telling) {
			l := regions.TailList{Log: t.own(t.topic()).Log, Incarnation: incarnationOf(t.topic()), Epoch: api.StaticEpoch(traitor), Head: 1 << 40}
			t.frameControl(func(i int) *pb.ControlRequest {
				l.Entries = []regions.TailEntry{{From: uint64(i) + 1, Sequence: uint64(i) + 1}}
				return &pb.ControlRequest{Frame: &pb.ControlRequest_Tail{Tail: wire.TailToProto(&l)}}
			}, 2000)
		}},
	}
}
