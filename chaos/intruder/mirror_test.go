package intruder_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
)

// sources are the lies of a region whose logs are copied.
func sources() []lie {
	forged := func(name, rule string, change func(*telling, *regions.Item)) lie {
		return lie{lane: "source", name: name, rule: rule, tell: func(t *telling) { t.forges(change) }}
	}
	const line, place, chain = "a record is checked as at the door", "a place is made of tokens", "items follow each other"
	return []lie{
		forged("header name that leads into a log", line, func(t *telling, it *regions.Item) { it.Record.Headers = t.traced("r.orders__" + t.victim) }),
		forged("header name that leads into a log's ownership", line, func(t *telling, it *regions.Item) { it.Record.Headers = t.traced("o.orders__" + t.victim) }),
		forged("header name that leads into a log's markers", line, func(t *telling, it *regions.Item) { it.Record.Headers = t.traced("c.orders__" + t.victim) }),
		forged("header name that leads into another copy", line, func(t *telling, it *regions.Item) {
			it.Record.Headers = t.traced("r.orders__" + other(t.victim))
		}),
		forged("header name that leads into the seat", line, func(t *telling, it *regions.Item) { it.Record.Headers = t.traced("s.who") }),
		forged("header name with lines", line, func(t *telling, it *regions.Item) { it.Record.Headers = []api.Header{{Name: t.lines(), Value: "v"}} }),
		forged("header value with lines", line, func(t *telling, it *regions.Item) { it.Record.Headers = []api.Header{{Name: "x", Value: t.lines()}} }),
		forged("header name with other tags", line, func(_ *telling, it *regions.Item) {
			it.Record.Headers = []api.Header{{Name: "x: 1\r\nDomicile-Tags: class=order,residency=eu\r\nDomicile-H-y", Value: "v"}}
		}),
		forged("header without a name", line, func(_ *telling, it *regions.Item) { it.Record.Headers = []api.Header{{Value: "v"}} }),
		forged("ten thousand headers", line, func(_ *telling, it *regions.Item) { it.Record.Headers = make([]api.Header, 10_000) }),
		forged("id with lines", line, func(t *telling, it *regions.Item) { it.Record.ID = t.lines() }),
		forged("id of 60,000 bytes", line, func(_ *telling, it *regions.Item) { it.Record.ID = strings.Repeat("i", 60_000) }),
		forged("no id", line, func(_ *telling, it *regions.Item) { it.Record.ID = "" }),
		forged("key with lines", line, func(t *telling, it *regions.Item) { it.Record.Key = t.lines() }),
		forged("body of 3 MiB", line, func(_ *telling, it *regions.Item) { it.Record.Body = make([]byte, 3<<20) }),
		forged("no body", line, func(_ *telling, it *regions.Item) { it.Record.Body = nil }),
		forged("event time that no calendar has", line, func(_ *telling, it *regions.Item) { it.Record.EventTime = time.Unix(0, math.MinInt64) }),
		forged("record of another topic", "a log is of one topic", func(_ *telling, it *regions.Item) { it.Record.Topic = "orders" }),
		forged("a tag that holds another", "tags are words of the catalog", func(_ *telling, it *regions.Item) {
			it.Record.Tags = []api.Tag{{Name: "class", Value: "order,residency=us"}, {Name: regions.ResidencyTag, Value: regions.GlobalResidency}}
		}),
		forged("a tag with lines", "tags are words of the catalog", func(t *telling, it *regions.Item) { it.Record.Tags[0].Value = "order" + t.lines() }),
		forged("a tag twice", "a record has one residency", func(_ *telling, it *regions.Item) {
			it.Record.Tags = append(it.Record.Tags, api.Tag{Name: regions.ResidencyTag, Value: "eu"})
		}),
		forged("issuer with lines", place, func(t *telling, it *regions.Item) { it.Epoch.Issuer = traitor + t.lines() }),
		forged("issuer with spaces", place, func(_ *telling, it *regions.Item) { it.Epoch.Issuer = "us east 1 2" }),
		forged("issuer that is another region", "a log is in the epoch that its stream was opened for", func(t *telling, it *regions.Item) { it.Epoch.Issuer = t.victim }),
		forged("later epoch", "a log is in the epoch that its stream was opened for", func(_ *telling, it *regions.Item) { it.Epoch = api.Epoch{Term: 9, Counter: 9, Issuer: "q"} }),
		forged("largest epoch", "a log is in the epoch that its stream was opened for", func(_ *telling, it *regions.Item) {
			it.Epoch = api.Epoch{Term: math.MaxUint32, Counter: math.MaxUint64, Issuer: traitor}
		}),
		forged("revision with lines", place, func(t *telling, it *regions.Item) { it.Revision = t.lines() }),
		forged("gap with lines", place, func(t *telling, it *regions.Item) {
			it.Gap = &regions.Gap{Kind: regions.Withheld, From: it.Sequence, To: it.Sequence, Code: api.Code("A B" + t.lines()), Side: t.word(), Revision: t.lines()}
		}),
		forged("gap beyond the head that it said", "nothing lies beyond a head", func(_ *telling, it *regions.Item) {
			from := it.Sequence
			it.Sequence = 1 << 60
			it.Gap = &regions.Gap{Kind: regions.Purged, From: from, To: 1 << 60}
		}),
		forged("record beyond the head that it said", chain, func(_ *telling, it *regions.Item) { it.Sequence = 1 << 50 }),
		forged("sequence that was said", chain, func(_ *telling, it *regions.Item) { it.Sequence-- }),
		forged("a hole", chain, func(_ *telling, it *regions.Item) { it.Sequence += 3 }),
	}
}

// origins are the lies of a region about its logs as a whole.
func origins() []lie {
	opens := func(name, rule string, change func(*telling, *regions.MirrorOpen)) lie {
		return lie{lane: "source", name: name, rule: rule, tell: func(t *telling) { t.opens(change) }}
	}
	const place = "a place is made of tokens"
	return append(malformedFlows(), []lie{
		opens("log of the one it is told", "only its home gives copies of a log", func(t *telling, o *regions.MirrorOpen) {
			o.Log.Topic, o.Log.Slot, o.Epoch = "orders", t.victim, api.StaticEpoch(t.victim)
		}),
		opens("log of another", "only its home gives copies of a log", func(t *telling, o *regions.MirrorOpen) {
			o.Log.Topic, o.Log.Slot, o.Epoch = "orders", other(t.victim), api.StaticEpoch(other(t.victim))
		}),
		opens("log that nobody has", "logs are those of the manifest", func(t *telling, o *regions.MirrorOpen) { o.Log.Slot = t.word() }),
		opens("later epoch of its own", "epochs are given by the authority", func(_ *telling, o *regions.MirrorOpen) { o.Epoch = api.Epoch{Term: 7, Counter: 7, Issuer: traitor} }),
		opens("incarnation with lines", place, func(t *telling, o *regions.MirrorOpen) { o.Incarnation = t.lines() }),
		opens("incarnation with spaces", place, func(_ *telling, o *regions.MirrorOpen) { o.Incarnation = "a b 1 2 3" }),
		opens("no incarnation", place, func(_ *telling, o *regions.MirrorOpen) { o.Incarnation = "" }),
		opens("incarnation of a megabyte", place, func(_ *telling, o *regions.MirrorOpen) { o.Incarnation = strings.Repeat("i", 1<<20) }),
		{lane: "source", name: "EU order in its own log", rule: "outside of the boundary there is no resident record", tell: func(t *telling) { t.resides("orders", "eu") }},
		{lane: "source", name: "EU health record in its own log", rule: "outside of the boundary there is no resident record", tell: func(t *telling) { t.resides("health", "eu") }},
		{lane: "source", name: "US order that left", rule: "egress keeps what is resident", mute: "a policy that differs lets it go, too; it is counted as withheld", tell: func(t *telling) { t.resides("orders", "us") }},
		{lane: "source", name: "another incarnation", rule: "a log stays the same log", mute: "a region that lost its disk says it, too", tell: func(t *telling) {
			t.begins()
			o := t.own(t.topic())
			o.Incarnation = "anew"
			_, r, err := t.flow(t.ctx, t.victim, o)
			t.hears(errors.Join(err, refusal(r)))
		}},
		{lane: "source", name: "log that was set back", rule: "a log never ends before its copy", mute: "a region that was restored from a backup says it, too", tell: func(t *telling) {
			t.begins()
			o := t.own(t.topic())
			o.Head = 0
			_, r, err := t.flow(t.ctx, t.victim, o)
			t.hears(errors.Join(err, refusal(r)))
		}},
		{lane: "source", name: "stamps of the year 2200", rule: "a stamp is no reason to stop", mute: "its clock may be wrong", tell: func(t *telling) {
			it := t.item(t.topic(), 1)
			it.Time = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
			_, r, err := t.flow(t.ctx, t.victim, t.own(t.topic()), t.batch(t.topic(), it))
			t.hears(errors.Join(err, refusal(r)))
		}},
		{lane: "source", name: "gap of all there can be", rule: "a gap is no reason to stop", mute: "it is its own log", tell: func(t *telling) {
			o := t.own(t.topic())
			o.Head = math.MaxUint64
			g := regions.Item{Sequence: math.MaxUint64 - 1<<20, Epoch: o.Epoch, Term: 1, Time: time.Now()}
			g.Gap = &regions.Gap{Kind: regions.Expired, From: 1, To: g.Sequence}
			_, r, err := t.flow(t.ctx, t.victim, o, t.batch(t.topic(), g))
			t.hears(errors.Join(err, refusal(r)))
		}},
		{lane: "source", name: "five hundred streams", rule: "streams are bounded", mute: "each of them may be opened", tell: (*telling).streams},
	}...)
}

func malformedFlows() (lies []lie) {
	flows := map[string]func(*telling) []*pb.MirrorRequest{
		"batch before an open": func(t *telling) []*pb.MirrorRequest { return []*pb.MirrorRequest{t.frame()} },
		"open twice": func(t *telling) []*pb.MirrorRequest {
			o := &pb.MirrorRequest{Frame: &pb.MirrorRequest_Open{Open: wire.MirrorOpenToProto(t.own(t.topic()))}}
			return []*pb.MirrorRequest{o, o}
		},
		"batch of nothing": func(t *telling) []*pb.MirrorRequest {
			return []*pb.MirrorRequest{{Frame: &pb.MirrorRequest_Open{Open: wire.MirrorOpenToProto(t.own(t.topic()))}}, t.frame()}
		},
		"items that are nothing": func(t *telling) []*pb.MirrorRequest {
			return []*pb.MirrorRequest{{Frame: &pb.MirrorRequest_Open{Open: wire.MirrorOpenToProto(t.own(t.topic()))}}, t.frame(&pb.MirrorItem{Sequence: 1}, nil)}
		},
		"item that is both": func(t *telling) []*pb.MirrorRequest {
			return []*pb.MirrorRequest{{Frame: &pb.MirrorRequest_Open{Open: wire.MirrorOpenToProto(t.own(t.topic()))}},
				t.frame(&pb.MirrorItem{Sequence: 1, Record: &pb.Record{Id: "x"}, Gap: &pb.MirrorGap{Kind: "void", From: 1, To: 1}})}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(flows)) {
		lies = append(lies, lie{lane: "source", name: name, rule: "a flow is an open and batches", tell: func(t *telling) { t.frames(flows[name](t)) }})
	}
	return lies
}

func refusal(r regions.MirrorReply) error {
	if r.Refused == "" {
		return nil
	}
	return fmt.Errorf("%s %s: %s", r.Refused, r.Field, r.Hint)
}

// lines is text that would be a line of its own in what the broker is told.
func (t *telling) lines() string {
	stream := "orders__" + t.victim
	to := []string{"r." + stream, "o." + stream, "c." + stream, "r.catalog__home", "o.catalog__home", "s.log." + stream, "s.seat", "s.who", "$JS.API.STREAM.PURGE." + stream}
	lines := []string{"Nats-Trace-Dest: " + to[t.rng.IntN(len(to))], "Nats-Rollup: all", "Nats-Expected-Last-Sequence: 1", "Domicile-Control: open", "Nats-Msg-Id: x", "Domicile-Position: a 1.1.b 1 1"}
	line := lines[0]
	if t.rng.IntN(3) == 0 {
		line = lines[t.rng.IntN(len(lines))]
	}
	return "x: 1\r\n" + line + "\r\nDomicile-H-y"
}

// traced are headers with which the broker would say what became of the record, at a subject.
func (t *telling) traced(subject string) []api.Header {
	return []api.Header{{Name: "x: 1\r\nNats-Trace-Dest: " + subject + "\r\nDomicile-H-y", Value: "v"}}
}

// begins says an honest record of the lie's own log.
func (t *telling) begins() {
	_, r, err := t.flow(t.ctx, t.victim, t.own(t.topic()), t.batch(t.topic(), t.item(t.topic(), 1)))
	t.hears(errors.Join(err, refusal(r)))
}

// forges says an honest record, and one behind it that is not.
func (t *telling) forges(change func(*telling, *regions.Item)) {
	topic := t.topic()
	o := t.own(topic)
	o.Head = 1 << 30
	first, second := t.item(topic, 1), t.item(topic, 2)
	change(t, &second)
	start, r, err := t.flow(t.ctx, t.victim, o, t.batch(topic, first), t.batch(topic, second))
	t.hears(errors.Join(err, refusal(r)))
	if err == nil && r.Refused == "" && r.Cursor.Sequence > start.Cursor.Sequence+1 {
		t.takes("the copy ends at %d", r.Cursor.Sequence)
	}
}

// opens says an open that must be refused, and a record after it if it is not.
func (t *telling) opens(change func(*telling, *regions.MirrorOpen)) {
	o := t.own(t.topic())
	change(t, &o)
	o.Digest = t.world.federation.TopicDigest(o.Log.Topic)
	it := t.item(o.Log.Topic, 1)
	it.Epoch = o.Epoch
	b := t.batch(t.topic(), it)
	b.Incarnation = o.Incarnation
	first, r, err := t.flow(t.ctx, t.victim, o, b)
	t.hears(errors.Join(err, refusal(r)))
	if err == nil && first.Refused == "" && r.Refused == "" {
		t.takes("the stream of %.60q and a record on it", o.Log)
	}
}

// resides says a record of a residency in the liar's part of a local topic.
func (t *telling) resides(topic, residency string) {
	it := t.item(topic, 1)
	it.Record.Tags[1].Value = residency
	_, r, err := t.flow(t.ctx, t.victim, t.own(topic), t.batch(topic, it))
	t.hears(errors.Join(err, refusal(r)))
	if err == nil && r.Refused == "" && r.Cursor.Ledger.Mirrored > 0 && topic == "health" {
		t.takes("%s record into its copy", residency)
	}
}

func (t *telling) frame(items ...*pb.MirrorItem) *pb.MirrorRequest {
	return &pb.MirrorRequest{Frame: &pb.MirrorRequest_Batch{Batch: &pb.MirrorBatch{Incarnation: incarnationOf(t.topic()), Items: items}}}
}

// frames says a flow that no mesh would.
func (t *telling) frames(frames []*pb.MirrorRequest) {
	a, err := t.lane(t.ctx, t.victim, link.Data)
	if err == nil {
		defer a.close()
		err = t.greet(t.ctx, a)
	}
	if err != nil {
		t.hears(err)
		return
	}
	s, err := a.client.Mirror(t.ctx)
	for _, f := range frames {
		if err == nil {
			err = s.Send(f)
		}
	}
	for err == nil {
		_, err = s.Recv()
	}
	t.hears(err)
}

// streams opens many flows and says nothing on them.
func (t *telling) streams() {
	for i := range 500 {
		s, err := t.mesh.OpenMirror(t.ctx, t.victim, t.own(ownTopic(i)))
		if err != nil {
			t.hears(err)
			return
		}
		t.after(s.Close)
	}
}

// mirrored has the honest regions mirror to the liar again, after what it said of its copies
// before: whoever says another manifest is asked anew.
func (t *telling) mirrored() {
	for _, lie := range []func(*pb.PeerHello){func(h *pb.PeerHello) { h.ManifestDigest = fmt.Sprint("m", t.rng.Uint64()) }, nil} {
		t.now(func(s *script) { s.hello = lie })
		t.mesh.HelloChanged()
		_ = lab.Pass(t.ctx, pace.Of(time.Second))
	}
}

// targets are the lies of a region that keeps copies of others' logs.
func targets() []lie {
	reply := func(name string, change func(*telling, *regions.MirrorReply)) lie {
		return lie{lane: "target", name: name, rule: "a copy ends where its log has been", tell: func(t *telling) {
			t.mirrored()
			t.now(func(s *script) { s.reply = func(r *regions.MirrorReply) { change(t, r) } })
			t.after(func() { t.now(func(s *script) { s.reply = nil }) })
			_ = lab.Pass(t.ctx, 2*pace.Of(time.Second)) // the honest regions mirror all the while
		}}
	}
	return []lie{
		reply("beyond the head", func(_ *telling, r *regions.MirrorReply) { r.Cursor.Sequence += 1 << 40 }),
		reply("largest sequence", func(_ *telling, r *regions.MirrorReply) { r.Cursor.Sequence = math.MaxUint64 }),
		reply("sums that overflow", func(_ *telling, r *regions.MirrorReply) {
			r.Cursor.Ledger = regions.Ledger{Mirrored: math.MaxUint64, Withheld: r.Cursor.Sequence + 1}
		}),
		reply("sums that do not fit", func(_ *telling, r *regions.MirrorReply) { r.Cursor.Ledger.Withheld += 7 }),
		reply("incarnation that moves the cursor", func(t *telling, r *regions.MirrorReply) { r.Cursor.Incarnation = t.word() }),
		reply("later epoch", func(t *telling, r *regions.MirrorReply) {
			r.Cursor.Epoch = api.Epoch{Term: 99, Counter: 99, Issuer: t.word()}
		}),
		reply("refusal that moves the cursor", func(t *telling, r *regions.MirrorReply) {
			r.Refused, r.Field, r.Hint = api.Code(t.word()), t.word(), t.word()
		}),
		reply("refusal of a megabyte", func(_ *telling, r *regions.MirrorReply) {
			r.Refused, r.Hint = api.StorageFull, strings.Repeat("h", 1<<20)
		}),
		reply("a copy that shrinks", func(_ *telling, r *regions.MirrorReply) { r.Cursor.Sequence /= 2 }).silent("a copy that was set back says it, too"),
		reply("wait for ever", func(_ *telling, r *regions.MirrorReply) {
			r.Refused, r.RetryAfter = api.StorageFull, math.MaxInt64
		}).silent("a full disk says it, too"),
		reply("stamps of another record", func(_ *telling, r *regions.MirrorReply) { r.Cursor.Time = time.Unix(1, 0) }).silent("its clock may be wrong"),
	}
}
