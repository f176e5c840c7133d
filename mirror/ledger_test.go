package mirror_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

// Whatever a peer sends, the copy's ledger sums to its cursor, what is stored is
// dense, and a batch is applied whole or not at all.
func TestR14c_LedgerSumsUnderAnyBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 1, 0)
		home, to := m.homes[0], m.copies[0]
		open := regions.MirrorOpen{Log: home.id, Incarnation: "inc", Epoch: home.epoch(), Head: 1 << 40, Digest: m.fed.TopicDigest(home.id.Topic)}
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			sink, reply := m.target.OpenMirror(context.Background(), "eu-west", open)
			if sink == nil {
				t.Fatalf("open refused: %+v", reply)
			}
			before := to.Cursor()
			b := regions.MirrorBatch{Incarnation: rapid.SampledFrom([]string{"inc", "inc", "inc", "other"}).Draw(t, "incarnation"),
				Serial: 1, Revision: "1-a", Items: drawItems(t, home, before.Sequence)}
			reply = sink.Apply(context.Background(), b)
			after := to.Cursor()
			if after.Ledger.Sum() != after.Sequence {
				t.Fatalf("ledger %+v at cursor %d", after.Ledger, after.Sequence)
			}
			if reply.Refused != "" && after != before {
				t.Fatalf("refused with %s, yet the cursor went from %d to %d", reply.Refused, before.Sequence, after.Sequence)
			}
			if reply.Refused == "" && (after.Sequence != b.Items[len(b.Items)-1].Sequence || reply.Cursor != after) {
				t.Fatalf("applied up to %d, replied %d, sent %d", after.Sequence, reply.Cursor.Sequence, b.Items[len(b.Items)-1].Sequence)
			}
			if after.Sequence > 0 && after.Incarnation != "inc" {
				t.Fatalf("the copy is of incarnation %s", after.Incarnation)
			}
			sink.Close()
		}
		checkDense(t, to)
	})
}

// drawItems is a run after a sequence, now and then with something wrong in it.
func drawItems(t *rapid.T, home *memoryLog, after uint64) []regions.Item {
	var items []regions.Item
	next := after + 1
	for range rapid.IntRange(0, 8).Draw(t, "items") {
		if rapid.IntRange(0, 20).Draw(t, "slip") == 0 {
			next += uint64(rapid.IntRange(0, 2).Draw(t, "by"))
		}
		item := regions.Item{Sequence: next, Epoch: home.epoch(), Term: 1, Time: start.Add(time.Duration(next) * time.Second),
			Record: api.Record{ID: "x", Topic: rapid.SampledFrom([]string{home.id.Topic, home.id.Topic, home.id.Topic, home.id.Topic, "else"}).Draw(t, "topic"),
				Tags: []api.Tag{{Name: regions.ResidencyTag, Value: rapid.SampledFrom([]string{"global", "eu"}).Draw(t, "residency")}}}}
		if rapid.Bool().Draw(t, "gap") {
			to := next + uint64(rapid.IntRange(0, 3).Draw(t, "length"))
			kind := rapid.SampledFrom([]regions.GapKind{regions.Withheld, regions.Expired, regions.Purged}).Draw(t, "kind")
			item.Sequence, item.Record = to, api.Record{}
			item.Gap = &regions.Gap{Kind: kind, From: next, To: to}
		}
		items = append(items, item)
		next = item.Sequence + 1
	}
	return items
}

func checkDense(t *rapid.T, l *memoryLog) {
	next := uint64(1)
	for _, i := range l.items {
		from := i.Sequence
		if i.Gap != nil {
			from = i.Gap.From
		}
		if from != next {
			t.Fatalf("the copy has %d where %d belongs", from, next)
		}
		next = i.Sequence + 1
	}
}

// A log that a connection's first round leaves out is closed by no later instant.
func TestInstantClosesOnlyWhatThisConnectionListed(t *testing.T) {
	m := newModel(t, 1, 0)
	w := m.source.Marks("us-east", true)
	m.target.Watermarks("eu-west", w)
	before, _ := m.target.Lag(m.homes[0].id)
	if !before.StalenessKnown {
		t.Fatal("listed, and yet unknown")
	}
	later := w.Issued.Add(time.Minute)
	m.target.Watermarks("eu-west", regions.Watermarks{Issued: later, Instant: later, All: true, Refused: 1})
	m.target.Watermarks("eu-west", regions.Watermarks{Issued: later, Instant: later, Refused: 1})
	if l, _ := m.target.Lag(m.homes[0].id); !l.SafeTime.Equal(before.SafeTime) || l.State != regions.LagUnknown {
		t.Errorf("not listed, and yet %s, safe up to %v", l.State, l.SafeTime)
	}
}
