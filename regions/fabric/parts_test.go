package fabric

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

// B36: names are one-to-one, also on a disk that does not tell upper from lower case,
// and can be neither a path nor a wildcard.
func TestB36_StreamNamesAreOneToOne(t *testing.T) {
	name := rapid.OneOf(rapid.StringMatching(`[a-cA-C._-]{1,6}`), rapid.StringMatching(`[A-Za-z0-9._-]{100,128}`), rapid.StringN(1, 20, 128))
	rapid.Check(t, func(t *rapid.T) {
		a := api.LogID{Topic: name.Draw(t, "topic a"), Slot: name.Draw(t, "slot a")}
		b := api.LogID{Topic: name.Draw(t, "topic b"), Slot: name.Draw(t, "slot b")}
		na, err := streamName(a)
		if err != nil {
			t.Fatal(err)
		}
		nb, _ := streamName(b)
		if strings.EqualFold(na, nb) != (a == b) {
			t.Fatalf("%v and %v are %s and %s", a, b, na, nb)
		}
		if na != strings.ToLower(na) || strings.ContainsAny(na, ". */>\\ \t") || len(na) > maxStreamName {
			t.Fatalf("%v is %q", a, na)
		}
	})
}

func TestB36_NamesAreFixed(t *testing.T) {
	for log, want := range map[string]string{"orders@eu-west": "orders__eu-west", "Orders.EU_1@home": "_4frders_2e_45_55_5f1__home"} {
		id, err := api.ParseLogID(log)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := streamName(id); got != want {
			t.Errorf("%s is %s, want %s: stored data would not be found", log, got, want)
		}
	}
}

func anyText() *rapid.Generator[string] { return rapid.String() }

func TestHeadersRoundTrip(t *testing.T) {
	token := rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		it := regions.Item{Sequence: rapid.Uint64Range(1, math.MaxUint64).Draw(t, "seq"), Epoch: api.StaticEpoch("eu-west"),
			Term: rapid.Uint64().Draw(t, "term"), Time: time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "time"), 5).UTC(),
			Revision: token.Draw(t, "rev")}
		it.Record = api.Record{ID: anyText().Draw(t, "id"), Topic: "t", Key: anyText().Draw(t, "key"), Body: []byte("b"),
			EventTime: time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "event"), 0).UTC()}
		for range rapid.IntRange(0, 4).Draw(t, "tags") {
			it.Record.Tags = append(it.Record.Tags, api.Tag{Name: token.Draw(t, "tag"), Value: token.Draw(t, "value")})
		}
		it.Record.SortTags()
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			it.Record.Headers = append(it.Record.Headers, api.Header{Name: token.Draw(t, "name"), Value: anyText().Draw(t, "value")})
		}
		p := position{Incarnation: "abc", Epoch: it.Epoch, Term: it.Term, Sequence: it.Sequence}
		hash := [hashSize]byte{1, 2, 3}
		block := append(encodeRecord(expecting(nil, 7), p, &it, hash), "\r\n"...)
		if bytes.Count(block, []byte("\r\n\r\n")) != 1 {
			t.Fatal("a value broke out of its line")
		}
		m, err := decode(block, it.Record.Body, "t")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(it, m.item); diff != "" || m.hash != hash || m.position != p {
			t.Fatal(diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	it := regions.Item{Sequence: 1, Time: time.Unix(1, 2), Record: api.Record{ID: "x", Key: "k"}}
	p := position{Incarnation: "i", Epoch: api.StaticEpoch("r"), Term: 1, Sequence: 1}
	f.Add(encodeRecord(expecting(nil, 0), p, &it, [hashSize]byte{}), []byte("body"))
	g := regions.Gap{Kind: regions.Withheld, From: 1, To: 5}
	f.Add(appendLedger(appendEnd(appendGap(appendHeader(expecting(nil, 0), headerControl, controlGap), &g),
		end{position: p, time: time.Unix(3, 0)}), regions.Ledger{Withheld: 5}), []byte(nil))
	f.Fuzz(func(t *testing.T, header, body []byte) {
		m, err := decode(header, body, "t")
		if err != nil {
			return
		}
		if m.control == "" && (m.item.Time.IsZero() || !m.hasPos) {
			t.Fatal("a record without a place was accepted")
		}
		if g := m.item.Gap; g != nil && (g.From == 0 || g.To < g.From) {
			t.Fatalf("impossible gap %+v", g)
		}
	})
}

func FuzzParseAck(f *testing.F) {
	f.Add([]byte(nil), []byte(`{"stream":"s","seq":5,"batch":"1","count":2}`))
	f.Add([]byte("NATS/1.0 503\r\n\r\n"), []byte(nil))
	f.Fuzz(func(t *testing.T, header, body []byte) { parseAck(frame{header: header, body: body}) })
}

// The index against a plain model: what is young or recent enough is kept, the
// region's bound holds, and the answer is always the last entry of an id.
func TestRD1_IndexKeepsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := newIndexes()
		all.max = 3000
		logs := []*index{all.add(), all.add()}
		last := []map[byte]uint64{{}, {}}
		for n := range uint64(rapid.IntRange(1, 200).Draw(t, "n")) {
			at := rapid.IntRange(0, 1).Draw(t, "log")
			id := rapid.Byte().Draw(t, "id")
			logs[at].put(indexed{id: [hashSize]byte{id}, sequence: n + 1, at: int64(n)})
			last[at][id] = n + 1
		}
		for at, want := range last {
			for id, seq := range want {
				if e, ok := logs[at].get([hashSize]byte{id}); !ok || e.sequence != seq {
					t.Fatalf("id %d: %v %v, want %d", id, e.sequence, ok, seq)
				}
			}
		}
	})
}

func TestRD1_IndexBounds(t *testing.T) {
	all := newIndexes()
	all.max = 3 * indexStep
	big, small := all.add(), all.add()
	put := func(i *index, n int) {
		i.put(indexed{id: [hashSize]byte{byte(n), byte(n >> 8), byte(n >> 16)}, sequence: uint64(n)})
	}
	for n := range 2 * indexStep {
		put(big, n)
	}
	for n := range 2 * indexStep {
		put(small, n)
	}
	if all.count() > all.max || big.size()+small.size() != all.count() {
		t.Fatalf("%d entries, bound %d, sizes %d and %d", all.count(), all.max, big.size(), small.size())
	}
	if _, ok := big.get([hashSize]byte{0}); ok {
		t.Error("the oldest of the largest log was kept")
	}
	if e, ok := small.get([hashSize]byte{255, 7}); !ok || e.sequence != 2047 {
		t.Errorf("the youngest is gone: %v", e)
	}
}

// However many rows of damage there are, the count is never lower than what is damaged,
// every damaged sequence lies in a row, and no more rows are kept than may be.
func TestRA1_DamageIsNeverUndercounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d damage
		lost := map[uint64]bool{}
		next := uint64(1)
		for range maxRanges + 50 { // apart from each other, to begin with
			next += rapid.Uint64Range(2, 9).Draw(t, "step")
			d.note(Range{next, next})
			lost[next] = true
		}
		for range rapid.IntRange(0, 30).Draw(t, "more") {
			from := rapid.Uint64Range(1, next+100).Draw(t, "from")
			r := Range{from, from + rapid.Uint64Range(0, 20).Draw(t, "length")}
			was := d.count
			if added := d.note(r); d.count != was+added {
				t.Fatalf("%d and %d are not %d", was, added, d.count)
			}
			for s := r.From; s <= r.To; s++ {
				lost[s] = true
			}
		}
		ranges, count := d.get()
		covered, last := uint64(0), uint64(0)
		for _, r := range ranges {
			if r.From <= last || r.To < r.From {
				t.Fatalf("%v follows %d", r, last)
			}
			for s := r.From; s <= r.To; s++ {
				delete(lost, s)
			}
			covered, last = covered+r.To-r.From+1, r.To
		}
		if len(lost) > 0 || covered != count || len(ranges) > maxRanges {
			t.Fatalf("%d sequences in no row, %d covered, %d counted, %d rows", len(lost), covered, count, len(ranges))
		}
	})
}
