package demo

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
	"domicile/regions"
	"domicile/regions/fabric"
)

// store100 appends records to a real fabric and returns what its recorder saw and
// what a producer was told.
func store100(t *testing.T, noBarrier bool) (*recorder, []ledger.Entry) {
	t.Helper()
	clock := regions.NewSteadyClock()
	rec := newRecorder(clock.Now)
	f, err := fabric.Open(t.Context(), fabric.Config{
		Region: "eu-west", Federation: "example", Dir: t.TempDir(), MaxStore: 1 << 30,
		Hooks: fabric.Hooks{Sync: rec.sync, Released: rec.releasing, NoBarrier: noBarrier},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	log, err := f.Home(t.Context(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("eu-west"), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan ledger.Entry, 100)
	s := shop.New("eu-west", example(t), &canary.Set{})
	for range cap(told) {
		p := s.Pack(shop.Ware{Topic: shop.Orders, Class: "order", Residency: "eu", Local: true})
		e := p.Entry
		e.Started = clock.Now()
		log.Append(regions.Draft{Record: p.Record, Revision: "1-test"}, func(s regions.Stored) {
			e.Answer(api.Ack{Log: id, Region: "eu-west", Sequence: s.Position.Sequence, Duplicate: s.Duplicate}, s.Err, clock.Now())
			told <- e
		})
	}
	var entries []ledger.Entry
	for range cap(told) {
		select {
		case e := <-told:
			entries = append(entries, e)
		case <-time.After(20 * time.Second):
			t.Fatal("no outcome")
		}
	}
	return rec, entries
}

func TestRA1_RecorderSeesTheDiskBeforeEveryAck(t *testing.T) {
	rec, entries := store100(t, false)
	if early, acks := rec.judge("eu-west", entries); early != 0 || acks != 100 {
		t.Errorf("%d of %d acks were early", early, acks)
	}
	if early, acks := rec.judge("us-east", entries); early != 0 || acks != 0 {
		t.Errorf("another region: %d of %d", early, acks)
	}
}

func TestRA1_RecorderIsRedWithoutTheBarrier(t *testing.T) {
	rec, entries := store100(t, true)
	if early, acks := rec.judge("eu-west", entries); early == 0 || acks != 100 {
		t.Errorf("%d of %d acks were early", early, acks)
	}
}

// An ack that was released too soon is early even if its producer saw it late.
func TestRA1_ReleaseCountsNotArrival(t *testing.T) {
	rec, entries := store100(t, false)
	last := slices.MaxFunc(entries, func(a, b ledger.Entry) int { return int(a.Sequence) - int(b.Sequence) })
	for log := range rec.released {
		rec.released[log] = []release{{last.Sequence, entries[0].Started.Add(-time.Second)}}
	}
	if early, _ := rec.judge("eu-west", entries); early != 100 {
		t.Errorf("%d of 100 acks were early", early)
	}
}

func TestIDsInABlockFile(t *testing.T) {
	block := "xx" + idLine + "one\r\nDomicile-Key: k\r\n\r\nbody" + idLine + "two\r\n" + idLine + strings.Repeat("z", 200) + "\r\n" + idLine + "cut off"
	if got := idsIn([]byte(block)); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %q", got)
	}
}
