package fabric

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

type failing interface{ Fatalf(string, ...any) }

// readsBack writes an item as the writer does and holds what is read against it, unless it was
// refused. None of its text is a line of its own, or a word to the broker.
func readsBack(t failing, p position, it regions.Item) (refused bool) {
	e := &entry{item: it, hash: [hashSize]byte{1}}
	if e.fits(p) != nil {
		return true
	}
	l := &store{kind: kindHome}
	header := l.header(e, 7, end{position: p, time: it.Time})
	lines, ok := bytes.CutPrefix(bytes.TrimSuffix(header, []byte("\r\n\r\n")), []byte(headerLine+untraced+expectHeader+"7\r\n"))
	for line := range bytes.SplitSeq(lines, crlf) {
		if name, _, cut := bytes.Cut(line, []byte(": ")); !ok || !cut || !bytes.HasPrefix(name, ours) || strings.ContainsFunc(string(name), notToken) {
			t.Fatalf("a line is %q of %q", line, header)
		}
	}
	m, err := decode(header, it.Record.Body, "t")
	if err != nil {
		t.Fatalf("what was written does not read back: %v", err)
	}
	want := it
	want.Sequence, want.Epoch, want.Term = p.Sequence, p.Epoch, p.Term
	if it.Gap != nil {
		want.Record = api.Record{Topic: "t"}
	}
	want.Record.SortTags()
	if diff := cmp.Diff(want, m.item, cmpopts.EquateEmpty()); diff != "" || m.position != p {
		t.Fatalf("what is read is not what was written: %s", diff)
	}
	return false
}

func notToken(r rune) bool { return r > '~' || !api.IsToken(string(r)) }

// hostile draws text that may break out of where it is put.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-z]{1,8}`), rapid.StringMatching(`[a-z]{1,8}`), rapid.StringMatching(`[a-z]{1,8}`), rapid.String(),
		rapid.SampledFrom([]string{"", "-", " ", "a b", "x: y", "a,b=c", "=", "x\r\nNats-Trace-Dest: o.other__log", "x: 1\r\nDomicile-Tags: class=a",
			"\x01", "\x010d", "\n", "é", "\xff"}))
}

// What is written reads back as it was, whatever it holds, or it is refused.
func TestFA1_WhatIsWrittenReadsBackOrIsRefused(t *testing.T) {
	some := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		word := func(name string) string { return hostile().Draw(t, name) }
		p := position{Incarnation: word("incarnation"), Epoch: api.Epoch{Term: rapid.Uint32().Draw(t, "epoch"), Counter: 1, Issuer: word("issuer")},
			Term: rapid.Uint64().Draw(t, "term"), Sequence: rapid.Uint64Range(1, 1<<62).Draw(t, "sequence")}
		it := regions.Item{Time: time.Unix(rapid.Int64Range(1, 1<<40).Draw(t, "time"), 3).UTC()}
		if rapid.Bool().Draw(t, "gap") {
			it.Gap = &regions.Gap{Kind: regions.GapKind(word("kind")), From: rapid.Uint64Range(0, 1<<62).Draw(t, "from"), To: p.Sequence,
				Code: api.Code(word("code")), Side: word("side"), Revision: word("revision")}
		} else {
			it.Revision = word("revision")
			it.Record = api.Record{ID: word("id"), Topic: "t", Key: word("key"), Body: []byte("b")}
			for i := range rapid.IntRange(0, 2).Draw(t, "tags") {
				it.Record.Tags = append(it.Record.Tags, api.Tag{Name: fmt.Sprint(i, word("tag")), Value: word("value")})
			}
			for range rapid.IntRange(0, 2).Draw(t, "headers") {
				it.Record.Headers = append(it.Record.Headers, api.Header{Name: word("name"), Value: word("header")})
			}
		}
		some[readsBack(t, p, it)]++
	})
	if some[true] == 0 || some[false] == 0 {
		t.Fatalf("refused and written: %v: one of them was never seen", some)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("inc", "eu-west", "id", "key", "class", "order", "name", "value", "1-a", "", "", "egress", int64(1))
	f.Add("inc", "eu-west", "id", "key", "class", "order", "name", "value", "1-a", "withheld", "RESIDENCY_DENIED", "egress", int64(1))
	f.Add("inc", "x\r\nNats-Trace-Dest: o.a__b", "id", "", "class", "order,residency=eu", "x: 1\r\nNats-Rollup", "all", "1-a", "", "A B", "-", int64(0))
	f.Fuzz(func(t *testing.T, incarnation, issuer, id, key, tag, value, name, text, revision, kind, code, side string, at int64) {
		p := position{Incarnation: incarnation, Epoch: api.Epoch{Term: 1, Counter: 1, Issuer: issuer}, Term: 1, Sequence: 9}
		it := regions.Item{Time: time.Unix(at%(1<<40), 1).UTC(), Revision: revision, Record: api.Record{Topic: "t", ID: id, Key: key, Body: []byte("b"),
			Tags: []api.Tag{{Name: tag, Value: value}}, Headers: []api.Header{{Name: name, Value: text}}}}
		if kind != "" {
			it = regions.Item{Time: it.Time, Gap: &regions.Gap{Kind: regions.GapKind(kind), From: 3, To: 9, Code: api.Code(code), Side: side, Revision: revision}}
		}
		readsBack(t, p, it)
	})
}

// A message on the writers' connection reaches the subject that it is written to and no other,
// whatever its headers ask of the broker; and of subjects it has those of logs alone.
func TestFA1_TheWritersConnectionReachesNothingButLogs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := Open(ctx, Config{Region: "here", Federation: "test", Dir: t.TempDir(), MaxStore: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	js := f.broker.js
	kept, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "victim", Subjects: []string{"r.victim", "c.victim", "o.victim", "s.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "r.victim", []byte("a record")); err != nil {
		t.Fatal(err)
	}
	all, err := f.broker.admin.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	for _, dest := range []string{"r.victim", "c.victim", "o.victim", subjectSeat, "$JS.API.STREAM.PURGE.victim"} {
		w, err := f.wire()
		if err != nil {
			t.Fatal(err)
		}
		// Both are done with once the last one is answered on the same connection.
		traced := append(expecting(nil, 0), "Domicile-H-x: y\r\n"+"Nats-Trace-Dest: "+dest+"\r\n\r\n"...)
		_ = w.send(ctx, appendPub(nil, "r.other", w.prefix+"x", traced, []byte("b")))
		if err := w.request(ctx, directGet+"victim", nil, []byte(`{"seq":1}`), func(frame) bool { return true }); err != nil {
			t.Fatalf("%s: a message that asks for a trace ended the connection: %v", dest, err)
		}
		if strings.HasPrefix(dest, "s.") || strings.HasPrefix(dest, "$") {
			_ = w.send(ctx, appendPub(nil, dest, w.prefix+"x", nil, nil))
			if err := w.request(ctx, directGet+"victim", nil, []byte(`{"seq":1}`), func(frame) bool { return true }); err == nil {
				t.Errorf("%s: written to", dest)
			}
		}
	}
	if err := f.broker.admin.PublishMsg(&nats.Msg{Subject: "nowhere", Header: nats.Header{"Nats-Trace-Dest": {"last.trace"}}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := all.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == "last.trace" { // and all before it are here
			break
		}
		if !strings.HasPrefix(m.Subject, "_") && m.Subject != "r.other" && m.Subject != "nowhere" && !strings.HasPrefix(m.Subject, "$JS.") {
			t.Errorf("%s: %s", m.Subject, m.Data)
		}
	}
	if info, err := kept.Info(ctx); err != nil || info.State.Msgs != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
