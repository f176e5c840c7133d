package intruder_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/regions"
)

// abroad is how long it takes until both honest regions have handed something to the liar.
const abroad = 30 * every

// speaks puts a lie into whatever the liar's mesh says.
func (t *telling) speaks(change func(m any)) {
	t.now(func(s *script) { s.sent = func(m proto.Message) { change(m) } })
	t.after(func() { t.now(func(s *script) { s.sent = nil }) })
}

// forwards are the lies of who hands records in.
func forwards() []lie {
	hand := func(name, rule, mute string, change func(*telling, *regions.Forward)) lie {
		return lie{lane: "forward", name: name, rule: rule, mute: mute, tell: func(t *telling) { t.hands(change) }}
	}
	const place, line, log = "a region speaks for clients of its own", "a record is checked as at the door", "a record goes to its own log"
	const skew = "a policy that differs sends it there, too"
	return []lie{
		hand("client of the home", place, "", func(t *telling, f *regions.Forward) { f.Principal.Place = t.victim }),
		hand("client of a third region", place, "", func(t *telling, f *regions.Forward) { f.Principal.Place = other(t.victim) }),
		hand("operator", place, "", func(_ *telling, f *regions.Forward) { f.Principal.Kind = "operator" }),
		hand("region", place, "", func(_ *telling, f *regions.Forward) { f.Principal.Kind = "region" }),
		hand("nobody", place, "", func(_ *telling, f *regions.Forward) { f.Principal = regions.Principal{} }),
		hand("class that does not exist", place, skew, func(t *telling, f *regions.Forward) { f.Principal.Class = t.word() }),
		hand("order that rests elsewhere", log, skew, func(_ *telling, f *regions.Forward) { f.Record.Tags[1].Value = "us" }),
		hand("health record that may not pass through", "what may not pass through is not taken", skew, func(t *telling, f *regions.Forward) {
			f.Record.Topic, f.Log.Topic, f.Record.Tags[0].Value = "health", "health", "health"
		}),
		hand("log of another", log, skew, func(t *telling, f *regions.Forward) { f.Log.Slot = other(t.victim) }),
		hand("log of its own", log, skew, func(_ *telling, f *regions.Forward) { f.Log.Slot = traitor }),
		hand("log that nobody has", log, skew, func(t *telling, f *regions.Forward) { f.Log.Slot, f.Log.Tenant = ">", t.word() }),
		hand("topic that nobody has", log, skew, func(t *telling, f *regions.Forward) { f.Record.Topic, f.Log.Topic = t.word(), t.word() }),
		hand("two residencies", line, "", func(_ *telling, f *regions.Forward) {
			f.Record.Tags = append(f.Record.Tags, api.Tag{Name: regions.ResidencyTag, Value: "us"})
		}),
		hand("header name with lines", line, "", func(t *telling, f *regions.Forward) { f.Record.Headers = []api.Header{{Name: t.lines(), Value: "v"}} }),
		hand("header value with lines", line, "", func(t *telling, f *regions.Forward) { f.Record.Headers = []api.Header{{Name: "x", Value: t.lines()}} }),
		hand("id with lines", line, "", func(t *telling, f *regions.Forward) { f.Record.ID = t.lines() }),
		hand("no id", line, "", func(_ *telling, f *regions.Forward) { f.Record.ID = "" }),
		hand("body of 2 MiB", line, "", func(_ *telling, f *regions.Forward) { f.Record.Body = make([]byte, 2<<20) }),
		hand("ten thousand tags", line, "", func(_ *telling, f *regions.Forward) {
			for i := range 10_000 {
				f.Record.Tags = append(f.Record.Tags, api.Tag{Name: fmt.Sprint("t", i), Value: "x"})
			}
		}),
		hand("id of an honest record", "an id is one record's", "a client does it, too", func(t *telling, f *regions.Forward) { f.Record.ID = t.victim + "-0" }),
		hand("old policy", "what an older policy let through is judged anew", skew, func(t *telling, f *regions.Forward) { f.Serial, f.Revision, f.Log.Slot = -1, t.word(), traitor }),
		hand("retry that names another's log", log, skew, func(t *telling, f *regions.Forward) {
			f.Record.Retry = api.Retry{Again: true, Log: api.LogID{Tenant: "default", Topic: "orders", Slot: other(t.victim)}}
			f.Log.Slot = other(t.victim)
		}),
		{lane: "forward", name: "ten thousand at once", rule: "what is under way is bounded", mute: "each of them may be handed in", tell: func(t *telling) {
			t.speaks(func(m any) {
				if f, ok := m.(*pb.ForwardRequest); ok && f.GetRecord() != nil {
					f.Log.Slot = traitor // refused at the home, so that nobody has stored it
				}
			})
			answers := make(chan error, 10_000)
			for i := range 10_000 {
				t.mesh.Forward(t.victim, t.order(fmt.Sprint("many-", t.rng.Uint64(), "-", i)), func(_ api.Ack, err error) { answers <- err })
			}
			for range 10_000 {
				if err := <-answers; err == nil {
					t.takes("a record into a log that is not there")
				}
			}
		}},
	}
}

// acks are the lies of who says that it has stored what was handed over.
func acks() []lie {
	ack := func(name string, change func(*telling, *api.Ack)) lie {
		return lie{lane: "ack", name: name, rule: "an ack fits what was handed over", tell: func(t *telling) {
			t.now(func(s *script) { s.ack = func(a *api.Ack) { change(t, a) } })
			_ = lab.Pass(t.ctx, abroad) // the honest regions forward all the while
			t.now(func(s *script) { s.ack = nil })
			_ = lab.Pass(t.ctx, abroad/2) // the last answer is there
		}}
	}
	return []lie{
		ack("of another id", func(*telling, *api.Ack) {}).with(func(t *telling) { // an honest ack has none
			t.answersForwards(func(r *pb.ForwardResponse) {
				if r.GetAck() != nil {
					r.GetAck().Id = "eu-west-1"
				}
			})
		}),
		ack("of another log", func(t *telling, a *api.Ack) { a.Log.Slot = t.victim }),
		ack("by another region", func(t *telling, a *api.Ack) { a.Region = t.victim }),
		ack("without a sequence", func(_ *telling, a *api.Ack) { a.Sequence = 0 }),
		ack("of a quorum that it has not", func(_ *telling, a *api.Ack) { a.Durability = api.Disk2of3 }),
		ack("with the position of another log", func(t *telling, a *api.Ack) {
			a.Position = api.EncodePosition([]api.Cursor{{Log: others()[0], Incarnation: "i", Epoch: api.StaticEpoch(west), Sequence: 1 << 40}})
		}),
		ack("with copies that nobody has", func(_ *telling, a *api.Ack) { a.Copies = honest() }),
		ack("with texts that move the cursor", func(t *telling, a *api.Ack) {
			a.Incarnation, a.PolicyRevision, a.Durability, a.Epoch.Issuer = t.word(), t.word(), api.Durability(t.word()), t.word()
		}),
		ack("of a megabyte", func(_ *telling, a *api.Ack) { a.Incarnation = strings.Repeat("i", 1<<20) }),
		ack("as an error that moves the cursor", func(*telling, *api.Ack) {}).with(func(t *telling) {
			t.answersForwards(func(r *pb.ForwardResponse) {
				r.Result = &pb.ForwardResponse_Error{Error: statusOf(api.Code(t.word()), t.word())}
			})
		}),
		ack("that nobody asked for", func(*telling, *api.Ack) {}).with(func(t *telling) {
			t.answersForwards(func(r *pb.ForwardResponse) { r.Number += 1 << 40 })
			t.now(func(s *script) { s.sent = nil })
			_ = lab.Pass(t.ctx, patience) // nobody waits for an answer any more
		}),
		ack("that says nothing", func(*telling, *api.Ack) {}).with(func(t *telling) {
			t.answersForwards(func(r *pb.ForwardResponse) { r.Result = nil })
		}),
		{lane: "ack", name: "receipts for what was never sent", rule: "receipts are for what was sent", mute: "a line in between says it, too", tell: func(t *telling) {
			t.speaks(func(m any) {
				if r, ok := m.(*pb.ForwardResponse); ok {
					r.Received = math.MaxInt64
				}
			})
			_ = lab.Pass(t.ctx, abroad)
		}},
	}
}

// with has a lie told in another way.
func (l lie) with(tell func(*telling)) lie {
	l.tell = tell
	return l
}

// silent says why a lie need not be counted.
func (l lie) silent(why string) lie {
	l.mute = why
	return l
}

// answersForwards changes the answers to what honest regions hand over.
func (t *telling) answersForwards(change func(*pb.ForwardResponse)) {
	t.speaks(func(m any) {
		if r, ok := m.(*pb.ForwardResponse); ok && r.GetNumber() != 0 {
			change(r)
		}
	})
	_ = lab.Pass(t.ctx, abroad)
}

// order is what an honest region would hand over: an EU order of one of its clients.
func (t *telling) order(id string) regions.Forward {
	h := t.theirs(t.victim)
	return regions.Forward{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: west}, Principal: regions.Principal{Name: "app", Kind: "client", Class: "app", Place: traitor},
		Deadline: time.Now().Add(3 * time.Second), Serial: h.PolicySerial, Revision: h.PolicyRevision,
		Record: api.Record{ID: id, Topic: "orders", Body: []byte("a book"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: regions.ResidencyTag, Value: "eu"}}}}
}

// hands hands in a record that must not be taken. EU orders have their log in eu-west.
func (t *telling) hands(change func(*telling, *regions.Forward)) {
	f := t.order(fmt.Sprint("forged-", t.rng.Uint64()))
	change(t, &f)
	type answer struct {
		ack api.Ack
		err error
	}
	answers := make(chan answer, 1)
	t.mesh.Forward(t.victim, f, func(a api.Ack, err error) { answers <- answer{a, err} })
	a := <-answers
	if t.hears(a.err); a.err == nil {
		t.takes("a record at %d of %s", a.ack.Sequence, a.ack.Log)
	}
}
