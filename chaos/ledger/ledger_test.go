package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"domicile/api"
	"domicile/chaos/ledger"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// world is a sound history: two EU orders (one forwarded), a global one, a refusal,
// two unknown outcomes of which one is stored.
func world() ([]ledger.Entry, []ledger.Item) {
	all := []string{"ap-south", "eu-west", "us-east"}
	entry := func(id, asked, region string, sequence uint64, rests []string, ms int) ledger.Entry {
		return ledger.Entry{
			ID: id, Hash: "h-" + id, Key: "k", Topic: "orders", Size: 100, Asked: asked, Rests: rests, Outcome: ledger.Acked,
			Log: "orders@" + region, Region: region, Sequence: sequence, Forwarded: asked != region, Started: at(ms), Ended: at(ms + 5),
		}
	}
	eu := []string{"eu-west"}
	entries := []ledger.Entry{
		entry("a", "us-east", "eu-west", 1, eu, 0), entry("b", "eu-west", "eu-west", 2, eu, 10),
		entry("g", "us-east", "us-east", 1, all, 20),
		{ID: "r", Hash: "h-r", Key: "k", Topic: "orders", Asked: "us-east", Rests: eu, Outcome: ledger.Refused, Code: api.HomeUnreachable},
		{ID: "u", Hash: "h-u", Key: "k", Topic: "orders", Asked: "us-east", Rests: eu, Outcome: ledger.Unknown, Code: api.OutcomeUnknown},
		{ID: "v", Hash: "h-v", Key: "k", Topic: "orders", Asked: "us-east", Rests: eu, Outcome: ledger.Unknown, Code: api.OutcomeUnknown},
	}
	repeat := entries[0]
	repeat.Duplicate = true
	entries = append(entries, repeat)
	item := func(region, log string, sequence uint64, id string) ledger.Item {
		return ledger.Item{Region: region, Log: log, Sequence: sequence, ID: id, Key: "k", Hash: "h-" + id, Size: 100}
	}
	items := []ledger.Item{
		item("eu-west", "orders@eu-west", 1, "a"), item("eu-west", "orders@eu-west", 2, "b"), item("eu-west", "orders@eu-west", 3, "v"),
		item("us-east", "orders@us-east", 1, "g"), item("eu-west", "orders@us-east", 1, "g"), item("ap-south", "orders@us-east", 1, "g"),
	}
	return entries, items
}

func TestRA5_SoundHistoryHolds(t *testing.T) {
	sum := ledger.Check(world())
	want := &ledger.Sum{
		Records: 6, Acked: 3, Forwarded: 1, Refused: 1, Unknown: 2, UnknownIn: 1, Repeats: 1, Mirrored: 2,
		ByCode: map[api.Code]int{api.HomeUnreachable: 1, api.OutcomeUnknown: 2},
		Rest:   map[string]int{"eu-west": 4, "us-east": 1, "ap-south": 1},
	}
	if d := cmp.Diff(want, sum); d != "" || !sum.Holds() {
		t.Error(d)
	}
}

func TestRA1_EachBrokenPromiseIsRed(t *testing.T) {
	type history struct {
		entries []ledger.Entry
		items   []ledger.Item
	}
	drop := func(h *history, i int) { h.items = slices.Delete(h.items, i, i+1) }
	again := func(h *history, i int, change func(*ledger.Item)) {
		item := h.items[i]
		change(&item)
		h.items = append(h.items, item)
	}
	cases := []struct {
		name  string
		spoil func(*history)
		want  ledger.Fault
		check func(*ledger.Sum) bool
	}{
		{"acked record is gone", func(h *history) { drop(h, 1) }, ledger.Lost, func(s *ledger.Sum) bool { return s.Lost == 1 }},
		{"acked record left only its copies", func(h *history) { drop(h, 3) }, ledger.Lost, func(s *ledger.Sum) bool { return s.Lost == 1 && s.Count(ledger.Missing) == 0 }},
		{"a copy is missing", func(h *history) { drop(h, 5) }, ledger.Missing, nil},
		{"resident record abroad", func(h *history) {
			again(h, 0, func(i *ledger.Item) { i.Region = "us-east" })
		}, ledger.Outside, func(s *ledger.Sum) bool { return s.Outside == 100 }},
		{"unknown one stored twice", func(h *history) { again(h, 2, func(i *ledger.Item) { i.Sequence = 4 }) }, ledger.Twice, func(s *ledger.Sum) bool { return s.Twice == 1 }},
		{"refused and stored", func(h *history) { again(h, 0, func(i *ledger.Item) { i.ID, i.Hash, i.Sequence = "r", "h-r", 4 }) }, ledger.Ghost, nil},
		{"another body", func(h *history) { h.items[4].Hash = "other" }, ledger.Altered, nil},
		{"another key", func(h *history) { h.items[0].Key = "other" }, ledger.Altered, nil},
		{"another sequence than acked", func(h *history) { h.items[1].Sequence = 9 }, ledger.Moved, nil},
		{"copy at another sequence", func(h *history) { h.items[5].Sequence = 9 }, ledger.Moved, nil},
		{"never published", func(h *history) { again(h, 0, func(i *ledger.Item) { i.ID = "x" }) }, ledger.Unasked, nil},
		{"no answer", func(h *history) { h.entries[0].Outcome = "" }, ledger.NoOutcome, nil},
		{"order of a key", func(h *history) {
			h.entries[0].Sequence, h.entries[1].Sequence, h.entries[6].Sequence = 2, 1, 2
			h.items[0].Sequence, h.items[1].Sequence = 2, 1
		}, ledger.Disorder, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var h history
			h.entries, h.items = world()
			c.spoil(&h)
			sum := ledger.Check(h.entries, h.items)
			if sum.Holds() || sum.Count(c.want) == 0 {
				t.Fatalf("want %s, got %v", c.want, sum.Broken)
			}
			if c.check != nil && !c.check(sum) {
				t.Errorf("sum %+v", sum)
			}
			for _, b := range sum.Broken {
				if strings.Contains(b.String(), "h-") {
					t.Errorf("%s repeats content", b)
				}
			}
		})
	}
}

// Records in flight at the same time may be stored in either order.
func TestRD3_ConcurrentRecordsHaveNoOrder(t *testing.T) {
	entries, items := world()
	entries[1].Started = at(2)
	entries[0].Sequence, entries[1].Sequence, entries[6].Sequence = 2, 1, 2
	items[0].Sequence, items[1].Sequence = 2, 1
	if sum := ledger.Check(entries, items); !sum.Holds() {
		t.Error(sum.Broken)
	}
}

func TestRA5_AnswersBecomeOutcomes(t *testing.T) {
	cases := []struct {
		err  error
		want ledger.Outcome
	}{
		{nil, ledger.Acked}, {&api.Error{Code: api.ResidencyDenied}, ledger.Refused},
		{&api.Error{Code: api.OutcomeUnknown}, ledger.Unknown}, {fmt.Errorf("the wire broke"), ledger.Unknown},
		{&api.Error{Code: "FROM_A_NEWER_VERSION"}, ledger.Unknown},
	}
	for _, c := range cases {
		var e ledger.Entry
		e.Answer(api.Ack{Log: api.LogID{Topic: "orders", Slot: "eu-west"}, Sequence: 7}, c.err, start)
		if e.Outcome != c.want || e.Ended != start || (c.err == nil) != (e.Sequence == 7) {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}

// Any schedule of a sound store holds, and taking any one acked item away is red.
func TestRA1_AnyLossIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []ledger.Entry
		var items []ledger.Item
		heads := map[string]uint64{}
		for n := range rapid.IntRange(1, 30).Draw(t, "records") {
			home := rapid.SampledFrom([]string{"eu-west", "us-east"}).Draw(t, "home")
			rests := []string{home}
			if rapid.Bool().Draw(t, "global") {
				rests = []string{"eu-west", "us-east"}
			}
			heads[home]++
			id := fmt.Sprint("id", n)
			outcome := rapid.SampledFrom([]ledger.Outcome{ledger.Acked, ledger.Unknown}).Draw(t, "outcome")
			e := ledger.Entry{ID: id, Hash: id, Key: "k", Rests: rests, Outcome: outcome, Started: at(n), Ended: at(n)}
			if outcome == ledger.Acked {
				e.Log, e.Region, e.Sequence = "orders@"+home, home, heads[home]
			}
			entries = append(entries, e)
			for _, region := range rests {
				items = append(items, ledger.Item{Region: region, Log: "orders@" + home, Sequence: heads[home], ID: id, Key: "k", Hash: id})
			}
		}
		if sum := ledger.Check(entries, items); !sum.Holds() {
			t.Fatal(sum.Broken)
		}
		gone := rapid.IntRange(0, len(items)-1).Draw(t, "gone")
		id, region := items[gone].ID, items[gone].Region
		at := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.ID == id })
		missed := entries[at].Outcome == ledger.Acked || len(entries[at].Rests) > 1
		sum := ledger.Check(entries, slices.Delete(slices.Clone(items), gone, gone+1))
		if sum.Holds() == missed {
			t.Fatalf("%s gone from %s: %v", id, region, sum.Broken)
		}
	})
}
