package mirror_test

import (
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

// opened is a stream to us-east's copy, as eu-west opens it; what is sent on it may be anything.
func (r *rig) opened(change func(*regions.MirrorOpen)) (apply func(regions.MirrorBatch) regions.MirrorReply, reply regions.MirrorReply) {
	r.t.Helper()
	o := regions.MirrorOpen{Log: orders, Incarnation: "inc-1", Epoch: api.StaticEpoch("eu-west"), Head: 100, Digest: r.fed.TopicDigest("orders")}
	if change != nil {
		change(&o)
	}
	sink, reply := r.target.OpenMirror(r.t.Context(), "eu-west", o)
	if sink == nil {
		return nil, reply
	}
	return func(b regions.MirrorBatch) regions.MirrorReply {
		r.t.Helper()
		defer sink.Close()
		return sink.Apply(r.t.Context(), b)
	}, reply
}

// refusedFor is how often something of eu-west's was refused in us-east for a reason.
func (r *rig) refusedFor(why regions.Refusal) (n int64) {
	for _, t := range r.refused.Totals() {
		if t.Peer == "eu-west" && t.Reason == why {
			n += int64(t.Count)
		}
	}
	return n
}

// order is an item as eu-west stores it.
func order(sequence uint64) regions.Item {
	return regions.Item{Sequence: sequence, Epoch: api.StaticEpoch("eu-west"), Term: 1, Time: start, Revision: "1-a", Record: api.Record{ID: "id", Topic: "orders",
		Body: []byte("b"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "global"}}, Headers: []api.Header{{Name: "x", Value: "v"}}}}
}

func hole(from, to uint64) regions.Item {
	return regions.Item{Sequence: to, Epoch: api.StaticEpoch("eu-west"), Term: 1, Time: start,
		Gap: &regions.Gap{Kind: regions.Withheld, From: from, To: to, Code: api.ResidencyDenied, Side: "egress", Revision: "1-a"}}
}

const injected = "x: 1\r\nNats-Trace-Dest: o.orders__us-east\r\nDomicile-H-y"

// What no region may send is refused whole and counted for the region that sent it; nothing of
// it is written, and the copy goes on with what its home sends next.
func TestFA1_WhatNoRegionMaySendIsRefusedWhole(t *testing.T) {
	record := func(change func(*api.Record)) func(*regions.Item) {
		return func(it *regions.Item) { change(&it.Record) }
	}
	tags := func(tags ...api.Tag) func(*regions.Item) {
		return record(func(r *api.Record) { r.Tags = tags })
	}
	gap := func(change func(*regions.Gap)) func(*regions.Item) {
		return func(it *regions.Item) {
			*it = hole(it.Sequence, it.Sequence)
			change(it.Gap)
		}
	}
	for name, spoil := range map[string]func(*regions.Item){
		"a header's name of two lines":       record(func(r *api.Record) { r.Headers[0].Name = injected }),
		"a header's value of two lines":      record(func(r *api.Record) { r.Headers[0].Value = "v\r\nNats-Rollup: all" }),
		"more headers than a record has":     record(func(r *api.Record) { r.Headers = make([]api.Header, api.MaxHeaders+1) }),
		"an id of two lines":                 record(func(r *api.Record) { r.ID = "a\nb" }),
		"a long id":                          record(func(r *api.Record) { r.ID = strings.Repeat("i", 60000) }),
		"no id":                              record(func(r *api.Record) { r.ID = "" }),
		"a key that can't be printed":        record(func(r *api.Record) { r.Key = "\x1b[2J" }),
		"no body":                            record(func(r *api.Record) { r.Body = nil }),
		"a large body":                       record(func(r *api.Record) { r.Body = make([]byte, api.MaxBody+1) }),
		"an event of another age":            record(func(r *api.Record) { r.EventTime = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"another topic":                      record(func(r *api.Record) { r.Topic = "catalog" }),
		"two residencies":                    tags(api.Tag{Name: "residency", Value: "global"}, api.Tag{Name: "residency", Value: "us"}),
		"a tag in a tag":                     tags(api.Tag{Name: "class", Value: "order,residency=us"}, api.Tag{Name: "residency", Value: "global"}),
		"tags that are not sorted":           tags(api.Tag{Name: "residency", Value: "global"}, api.Tag{Name: "class", Value: "order"}),
		"a tag of two lines":                 tags(api.Tag{Name: "class\r\nNats-Rollup", Value: "all"}),
		"a tag without a name":               tags(api.Tag{Value: "order"}),
		"no time":                            func(it *regions.Item) { it.Time = time.Time{} },
		"a time in fifty years":              func(it *regions.Item) { it.Time = start.AddDate(50, 0, 0) },
		"a place that no log comes near":     func(it *regions.Item) { *it = hole(it.Sequence, 1<<60) },
		"a term that no log comes near":      func(it *regions.Item) { it.Term = 1 << 63 },
		"a later epoch":                      func(it *regions.Item) { it.Epoch = api.Epoch{Term: 9, Counter: 9, Issuer: "q"} },
		"another issuer":                     func(it *regions.Item) { it.Epoch.Issuer = "q" },
		"an issuer of two lines":             func(it *regions.Item) { it.Epoch.Issuer = injected },
		"no epoch":                           func(it *regions.Item) { it.Epoch = api.Epoch{} },
		"a revision of two lines":            func(it *regions.Item) { it.Revision = "1-a\nlevel=ERROR" },
		"a hole between items":               func(it *regions.Item) { it.Sequence++ },
		"a gap of another kind":              gap(func(g *regions.Gap) { g.Kind = "lost" }),
		"a gap's code of two words":          gap(func(g *regions.Gap) { g.Code = "A B\r\nX: y" }),
		"a gap's side of another kind":       gap(func(g *regions.Gap) { g.Side = "<script>" }),
		"a gap's revision that is no word":   gap(func(g *regions.Gap) { g.Revision = "r\x1b[31m" }),
		"a gap that does not end where told": gap(func(g *regions.Gap) { g.To++ }),
		"a gap that begins at nothing":       gap(func(g *regions.Gap) { g.From = 0 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			apply, _ := r.opened(nil)
			bad := order(2)
			spoil(&bad)
			reply := apply(regions.MirrorBatch{Incarnation: "inc-1", Serial: 1, Revision: "1-a", Items: []regions.Item{order(1), bad}})
			if reply.Refused != api.BadRequest || reply.Field == "" || r.refusedFor(regions.Malformed) != 1 {
				t.Errorf("%+v, counted %d", reply, r.refusedFor(regions.Malformed))
			}
			r.goesOn()
		})
	}
}

// goesOn publishes, and waits until the copy has that and nothing else.
func (r *rig) goesOn() {
	r.t.Helper()
	if at := r.copy.Cursor().Sequence; at != 0 {
		r.t.Errorf("the copy ends at %d", at)
	}
	r.publish(3, "global")
	r.mirrored()
	if ids, gaps := r.copy.contents(); len(ids) != 3 || len(gaps) != 0 {
		r.t.Errorf("records %v, gaps %v", ids, gaps)
	}
}

// So with what opens a stream, and with a batch's own words.
func TestFA1_WhatNoRegionMaySayOfABatch(t *testing.T) {
	for name, spoil := range map[string]func(*regions.MirrorOpen){
		"an incarnation of two lines": func(o *regions.MirrorOpen) { o.Incarnation = injected },
		"no incarnation":              func(o *regions.MirrorOpen) { o.Incarnation = "" },
		"a long incarnation":          func(o *regions.MirrorOpen) { o.Incarnation = strings.Repeat("i", 60000) },
		"a head that no log has":      func(o *regions.MirrorOpen) { o.Head = 1 << 60 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if apply, reply := r.opened(spoil); apply != nil || reply.Refused != api.BadRequest || r.refusedFor(regions.Malformed) != 1 {
				t.Errorf("%+v", reply)
			}
			r.goesOn()
		})
	}
	for name, m := range map[string]regions.LogMark{
		"a mark's incarnation of two lines": {Incarnation: injected, Head: 5},
		"a mark's head that no log has":     {Incarnation: "inc-1", Head: 1 << 60},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m.Log, m.Epoch, m.Term, m.Digest = orders, api.StaticEpoch("eu-west"), 1, r.fed.TopicDigest("orders")
			r.target.Watermarks("eu-west", regions.Watermarks{Issued: start, Instant: start, All: true, Logs: []regions.LogMark{m}})
			r.target.HearTail("eu-west", regions.TailList{Log: orders, Epoch: m.Epoch, Incarnation: m.Incarnation, Head: m.Head})
			if known := r.tails.Beyond(orders, 0); r.refusedFor(regions.Malformed) != 2 || known.Incarnation != "" {
				t.Errorf("counted %d, kept %+v", r.refusedFor(regions.Malformed), known)
			}
			r.goesOn()
		})
	}
	for name, b := range map[string]regions.MirrorBatch{
		"a revision of two lines":   {Serial: 1, Revision: "1-a\nlevel=ERROR", Items: []regions.Item{order(1)}},
		"a serial below zero":       {Serial: -1, Items: []regions.Item{order(1)}},
		"nothing":                   {Serial: 1},
		"more than is sent at once": {Serial: 1, Items: make([]regions.Item, regions.MaxBatchRecords+1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			apply, _ := r.opened(nil)
			b.Incarnation = "inc-1"
			if reply := apply(b); reply.Refused != api.BadRequest || r.refusedFor(regions.Malformed) != 1 {
				t.Errorf("%+v", reply)
			}
			r.goesOn()
		})
	}
}

// A record that lay where it may not lie is kept out as a gap, the copy goes on, and it counts
// against the region that it came from. One that may have come there lawfully, before what is in
// force here, is kept out as well and says nothing of the region.
func TestFA5_WhatLayWhereItMayNotIsKeptOutAndCounted(t *testing.T) {
	r := newRig(t)
	r.publish(2, "global")
	r.mirrored()
	r.clock.Advance(time.Minute)
	r.usPolicy.now.Store(&edition{serial: 2, revision: "2-b", lawless: "us"})
	r.euPolicy.now.Store(&edition{serial: 2, revision: "2-b"})
	send := func(what string, impossible, withheld int64, its ...regions.Item) {
		t.Helper()
		apply, reply := r.opened(nil)
		if apply == nil {
			t.Fatalf("%s: %+v", what, reply)
		}
		at := reply.Cursor.Sequence
		for i := range its {
			its[i].Sequence = at + 1 + uint64(i)
			its[i].Record.Tags = []api.Tag{{Name: "residency", Value: "us"}}
		}
		reply = apply(regions.MirrorBatch{Incarnation: "inc-1", Serial: 2, Revision: "2-b", Items: its})
		if reply.Refused != "" || reply.Cursor.Sequence != at+uint64(len(its)) {
			t.Errorf("%s: %+v", what, reply)
		}
		if _, gaps := r.copy.contents(); len(gaps) == 0 || gaps[len(gaps)-1].Code != api.HomeOutsideBoundary || gaps[len(gaps)-1].Side != "ingress" {
			t.Errorf("%s: gaps %+v", what, gaps)
		}
		if a, b := r.refusedFor(regions.Impossible), r.counts.ingress.Load(); a != impossible || b != withheld {
			t.Errorf("%s: %d impossible, %d withheld, want %d and %d", what, a, b, impossible, withheld)
		}
	}
	at := func(revision string, stamped time.Time) regions.Item {
		it := order(0)
		it.Revision, it.Time = revision, stamped
		return it
	}
	lawful := at("1-a", start.Add(time.Second))
	send("before what is in force", 0, 1, lawful)
	send("under the policy that is in force", 1, 2, at("2-b", start.Add(2*time.Second)))
	send("after it came into force", 2, 3, at("1-a", start.Add(2*time.Minute)))
	send("before what the copy has", 3, 4, at("1-a", start.Add(3*time.Second)))
	if ids, _ := r.copy.contents(); len(ids) != 2 {
		t.Errorf("the copy holds %v", ids)
	}
	// As long as the two go by different manifests, nothing can be said of it.
	r.wire.mu.Lock()
	r.wire.hello = &regions.Hello{ManifestDigest: "another"}
	r.wire.mu.Unlock()
	apply, reply := r.opened(nil)
	it := at("2-b", start.Add(3*time.Minute))
	it.Sequence, it.Record.Tags = reply.Cursor.Sequence+1, []api.Tag{{Name: "residency", Value: "us"}}
	if reply := apply(regions.MirrorBatch{Incarnation: "inc-1", Serial: 2, Revision: "2-b", Items: []regions.Item{it}}); reply.Refused != api.ManifestMismatch {
		t.Errorf("%+v", reply)
	}
}

// What is sent on one stream is a chain, whatever became of the copy meanwhile: what does not follow
// is no region's that is whole.
func TestFA_WhatDoesNotFollowOnItsStreamCounts(t *testing.T) {
	for name, second := range map[string]uint64{"again": 1, "a hole": 4, "far beyond": 1 << 49} {
		r := newRig(t)
		sink, _ := r.target.OpenMirror(t.Context(), "eu-west", regions.MirrorOpen{Log: orders, Incarnation: "inc-1", Epoch: api.StaticEpoch("eu-west"), Head: 100, Digest: r.fed.TopicDigest("orders")})
		batch := func(sequence uint64) regions.MirrorBatch {
			return regions.MirrorBatch{Incarnation: "inc-1", Serial: 1, Revision: "1-a", Items: []regions.Item{order(sequence)}}
		}
		if reply := sink.Apply(t.Context(), batch(1)); reply.Refused != "" || r.refusedFor(regions.Malformed) != 0 {
			t.Errorf("%s: the first: %+v", name, reply)
		}
		if reply := sink.Apply(t.Context(), batch(second)); reply.Refused != api.BadRequest || r.refusedFor(regions.Malformed) != 1 {
			t.Errorf("%s: %+v, counted %d", name, reply, r.refusedFor(regions.Malformed))
		}
		if reply := sink.Apply(t.Context(), batch(2)); reply.Refused == "" || r.refusedFor(regions.Malformed) != 1 {
			t.Errorf("%s: what was on its way behind it: %+v, counted %d", name, reply, r.refusedFor(regions.Malformed))
		}
		sink.Close()
	}
}

// Only its home speaks of a log that does not move; under another manifest it may be right.
func TestFA_WhoSpeaksOfAnothersLogCounts(t *testing.T) {
	theirs := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "us-east"}
	for name, c := range map[string]struct {
		log   api.LogID
		epoch string
		lie   bool
	}{
		"its own":               {orders, "eu-west", false},
		"its own, other epoch":  {orders, "us-east", true},
		"another's":             {theirs, "us-east", true},
		"one that is not there": {api.LogID{Tenant: api.DefaultTenant, Topic: "nothing", Slot: "x"}, "x", false},
	} {
		r := newRig(t)
		says := func() {
			epoch := api.StaticEpoch(c.epoch)
			r.target.Watermarks("eu-west", regions.Watermarks{Issued: start, Instant: start, All: true, Logs: []regions.LogMark{
				{Log: c.log, Incarnation: "inc-1", Epoch: epoch, Term: 1, Digest: r.fed.TopicDigest("orders")}}})
			r.target.HearTail("eu-west", regions.TailList{Log: c.log, Incarnation: "inc-1", Epoch: epoch})
			if sink, _ := r.target.OpenMirror(t.Context(), "eu-west", regions.MirrorOpen{Log: c.log, Incarnation: "inc-1", Epoch: epoch, Digest: r.fed.TopicDigest("orders")}); sink != nil {
				sink.Close()
			}
		}
		says()
		want := int64(0)
		if c.lie {
			want = 3
		}
		if got := r.refusedFor(regions.NotTheirs); got != want {
			t.Errorf("%s: counted %d, want %d", name, got, want)
		}
		r.wire.hello = &regions.Hello{ManifestDigest: "another"}
		if says(); r.refusedFor(regions.NotTheirs) != want {
			t.Errorf("%s: counted %d under another manifest, want %d", name, r.refusedFor(regions.NotTheirs), want)
		}
	}
}
