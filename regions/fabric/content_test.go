package fabric_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// whole waits until the broker has done all that was asked of it before, and holds what a log's
// stream has against the records that were published to it.
func whole(t *testing.T, f *fabric.Fabric, log string, records uint64) {
	t.Helper()
	id, err := api.ParseLogID(log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := f.JetStream().Conn()
	heard, err := conn.SubscribeSync("traced.here")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heard.Unsubscribe() }()
	// The broker's own words go out one after the other: once this one is here, all before are out.
	if err := conn.PublishMsg(&nats.Msg{Subject: "nowhere", Header: nats.Header{"Nats-Trace-Dest": {"traced.here"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := heard.NextMsgWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := f.JetStream().Stream(ctx, fabric.StreamName(id))
	if err != nil {
		t.Fatal(err)
	}
	// And this one is answered after whatever came to the stream before it.
	if _, err := f.JetStream().PublishMsg(ctx, &nats.Msg{Subject: "r." + fabric.StreamName(id)}, jetstream.WithExpectLastSequence(1<<40)); err == nil {
		t.Fatal("a place that is not there was expected, and the message was taken")
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	if n := info.State.Msgs; n != records {
		t.Errorf("%s holds %d messages, %d were published: %v", log, n, records, info.State.Subjects)
	}
}

// A copy takes no item that would not read back as what was judged, nor one that speaks to the
// broker: it is refused, other logs have nothing of it, and the copy goes on.
func TestFA1_ACopyTakesNothingThatBreaksOutOfItsPlace(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	victim := fabrictest.Home(t, f, "orders@here")
	if s := fabrictest.Append(t, victim, record(1)); s.Err != nil {
		t.Fatal(s.Err)
	}
	l := fabrictest.Copy(t, f, "orders@there")
	item := func(change func(*regions.Item)) regions.Item {
		it := copied(1)
		change(&it)
		return it
	}
	header := func(name string) regions.Item {
		return item(func(it *regions.Item) { it.Record.Headers = []api.Header{{Name: name, Value: "v"}} })
	}
	for name, c := range map[string]struct {
		incarnation string
		item        regions.Item
	}{
		"a header that publishes to another log":          {"inc-1", header("x: 1\r\nNats-Trace-Dest: r.orders__here\r\nDomicile-H-y")},
		"a header that publishes to another log's marks":  {"inc-1", header("x: 1\r\nNats-Trace-Dest: c.orders__here\r\nDomicile-H-y")},
		"a header that publishes to another log's owners": {"inc-1", header("x: 1\r\nNats-Trace-Dest: o.orders__here\r\nDomicile-H-y")},
		"a header that changes the tags":                  {"inc-1", header("x: 1\r\nDomicile-Tags: class=order,residency=in\r\nDomicile-H-y")},
		"a header that changes the position":              {"inc-1", header("x: 1\r\nDomicile-Position: inc-1 9.9.q 9 1099511627776\r\nDomicile-H-y")},
		"a header without a name":                         {"inc-1", header("")},
		"a header's name with a colon":                    {"inc-1", header("a: b")},
		"an incarnation of two lines":                     {"x\r\nNats-Trace-Dest: r.orders__here\r\nDomicile-H-z: y", copied(1)},
		"an incarnation of two words":                     {"inc 1", copied(1)},
		"no incarnation":                                  {"", copied(1)},
		"an issuer of two lines": {"inc-1", item(func(it *regions.Item) {
			it.Epoch.Issuer = "x\r\nNats-Trace-Dest: r.orders__here\r\nDomicile-H-z: y"
		})},
		"no issuer":              {"inc-1", item(func(it *regions.Item) { it.Epoch = api.Epoch{} })},
		"a tag that holds a tag": {"inc-1", item(func(it *regions.Item) { it.Record.Tags = []api.Tag{{Name: "class", Value: "order,residency=us"}} })},
		"no time":                {"inc-1", item(func(it *regions.Item) { it.Time = time.Time{} })},
		"a gap's code of two words": {"inc-1", func() regions.Item {
			g := gap(regions.Withheld, 1, 3)
			g.Gap.Code = "A B"
			return g
		}()},
		"a gap's side of two words": {"inc-1", func() regions.Item {
			g := gap(regions.Withheld, 1, 3)
			g.Gap.Side = "egress 1"
			return g
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Apply(t.Context(), c.incarnation, []regions.Item{c.item})
			if code := api.CodeOf(err); code != api.BadRequest {
				t.Errorf("%v", err)
			}
			whole(t, f, "orders@here", 1)
			whole(t, f, "orders@there", 0)
		})
	}
	apply(t, l, copied(1), gap(regions.Withheld, 2, 3), copied(4))
	f = reopen(t, f, dir)
	if got := fabrictest.ReadAll(t, fabrictest.Home(t, f, "orders@here"), 0); len(got) != 1 {
		t.Errorf("%d records are in the other log", len(got))
	}
	if c := apply(t, fabrictest.Copy(t, f, "orders@there"), copied(5)); c.Ledger != (regions.Ledger{Mirrored: 3, Withheld: 2}) {
		t.Errorf("cursor %+v", c)
	}
}
