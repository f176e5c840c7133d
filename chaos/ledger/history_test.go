package ledger_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// full is a history with an event of each kind.
func full() *ledger.History {
	clock := regions.NewManualClock(start)
	b := &ledger.Book{Clock: clock}
	end := b.During(ledger.Step{Kind: ledger.Cut, Region: "eu-west"})
	entries, _ := world()
	for _, e := range entries {
		b.Enter(e)
	}
	clock.Advance(time.Second)
	b.Heard("r1", "us-east", "orders", &pb.ReadResponse{
		Records: []*pb.ReadRecord{{Record: &pb.Record{Id: "g", Key: "k"}, Log: &pb.LogId{Topic: "orders", Slot: "us-east"}, Sequence: 1, Epoch: &pb.Epoch{Term: 1, Counter: 1, Issuer: "us-east"}}},
		Logs:    []*pb.LogState{{Log: &pb.LogId{Topic: "orders", Slot: "us-east"}, State: "HOME", StalenessKnown: true}},
	})
	b.Told(&pb.LagResponse{Region: "us-east", Logs: []*pb.LogLag{{Log: &pb.LogId{Topic: "orders", Slot: "eu-west"}, Target: "us-east", State: "LINK_DOWN", StalenessKnown: true, StalenessSeconds: 1.5, SafeTimeUnixNano: start.UnixNano()}}})
	b.Linked(&pb.StatusResponse{Region: "us-east", NowUnixNano: start.Add(5 * time.Second).UnixNano(), Links: []*pb.LinkState{{Peer: "eu-west", State: "down", LastHeardUnixNano: start.UnixNano()}, {Peer: "ap-south", State: "unknown"}}})
	b.Note(ledger.Event{Gauge: &ledger.Gauge{Region: "us-east", Name: ledger.Goroutines, Value: 40}})
	clock.Advance(time.Second)
	end()
	b.Point(ledger.Converged)
	return b.History()
}

func TestHistoryRoundTrip(t *testing.T) {
	h := full()
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, `"id":"a"`) || strings.Contains(text, `"key":"k"`) {
		t.Error("the file holds ids or keys")
	}
	got, err := ledger.Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Events {
		if e := h.Events[i].Entry; e != nil {
			e.ID, e.Key = ledger.Mark(e.ID), ledger.Mark(e.Key)
		}
		if l := h.Events[i].Lag; l != nil { // a time read from JSON has another location
			l.SafeTime = l.SafeTime.UTC()
		}
	}
	if d := cmp.Diff(h, got); d != "" {
		t.Error(d)
	}
	var again bytes.Buffer
	if err := got.Write(&again); err != nil || !bytes.Equal(again.Bytes(), b.Bytes()) {
		t.Errorf("written again it differs, %v", err)
	}
	_, items := world()
	if sum := ledger.Check(got.Entries(), items); !sum.Holds() {
		t.Errorf("a history from a file is judged differently: %v", sum.Broken)
	}
}

func TestHistoryRefusesWhatItDidNotWrite(t *testing.T) {
	head := `{"history":1,"origin":"2026-01-02T03:04:05Z","dropped":0}` + "\n"
	for bad, line := range map[string]string{
		"": "heading", "{": "line 1", `{"history":2}`: "line 1",
		head + "{": "line 2", head + `{}`: "line 2", head + `{"entry":{"id":"x"}}`: "line 2", head + `{"entry":{"outcome":"acked"}}`: "line 2",
		head + `{"step":{"kind":"cut"}}`: "line 2", head + `{"gauge":{},"link":{}}`: "line 2",
		head + `{"gauge":{"region":"` + strings.Repeat("x", 5<<20) + `"}}`: "line 2",
	} {
		if _, err := ledger.Read(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := full().Write(&b); err != nil {
		f.Fatal(err)
	}
	// One event each: the fuzzer shortens every find, and a long one takes it a minute.
	lines := bytes.SplitAfter(b.Bytes(), []byte("\n"))
	for _, line := range lines[1:] {
		f.Add(slices.Concat(lines[0], line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ledger.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		ledger.Check(h.Entries(), nil)
		h.Spans(ledger.Cut)
		var out bytes.Buffer
		if err := h.Write(&out); err != nil {
			t.Skip(err) // a time that JSON can read and not write
		}
		if again, err := ledger.Read(&out); err != nil || len(again.Events) != len(h.Events) {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}

func TestSpansOfTheSchedule(t *testing.T) {
	clock := regions.NewManualClock(start)
	b := &ledger.Book{Clock: clock}
	step := func(k ledger.StepKind, p ledger.Phase, region string) {
		b.Step(ledger.Step{Kind: k, Phase: p, Region: region})
		clock.Advance(time.Second)
	}
	step(ledger.Cut, ledger.Begin, "eu-west") // 0
	step(ledger.Cut, ledger.Begin, "us-east") // 1
	step(ledger.Kill, ledger.Begin, "eu-west")
	step(ledger.Cut, ledger.End, "eu-west") // 3
	step(ledger.Cut, ledger.Begin, "eu-west")
	step(ledger.Converged, ledger.Point, "") // 5
	h := b.History()
	var got []string
	for _, s := range h.Spans(ledger.Cut, ledger.Converged) {
		got = append(got, fmt.Sprintf("%s %s %s-%s", s.Kind, s.Region, s.From, s.To))
	}
	want := []string{"cut eu-west 0s-3s", "cut us-east 1s-5s", "cut eu-west 4s-5s", "converged  5s-5s"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRT3_TheBookIsBounded(t *testing.T) {
	b := &ledger.Book{Limit: 100}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				b.Enter(ledger.Entry{ID: "x", Outcome: ledger.Acked, Started: time.Now(), Ended: time.Now()})
				b.Point(ledger.Load)
			}
		})
	}
	all.Wait()
	if h := b.History(); len(h.Events) != 100 || h.Dropped != 300 {
		t.Errorf("%d kept, %d dropped", len(h.Events), h.Dropped)
	}
}

func TestMarkTellsNothingAndStays(t *testing.T) {
	m := ledger.Mark("order-17")
	if m == ledger.Mark("order-18") || strings.Contains(m, "17") || ledger.Mark(m) != m || ledger.Mark("") != "" {
		t.Error(m)
	}
}

// What a log says it lost to retention is no broken promise; a bare hole is, and so is
// one that names a disk or the cut of an epoch.
func TestRT7_ExpiredIsNotLost(t *testing.T) {
	e := ledger.Entry{ID: "a", Hash: "h", Topic: "orders", Asked: "eu-west", Rests: []string{"eu-west", "us-east"}, Started: start, Ended: at(1)}
	e.Answer(api.Ack{Log: api.LogID{Topic: "orders", Slot: "eu-west"}, Region: "eu-west", Sequence: 1}, nil, at(1))
	shelves := []ledger.Shelf{
		{Region: "eu-west", Log: "orders@eu-west", Home: true, End: 1, Gaps: []regions.Gap{{Kind: regions.Expired, From: 1, To: 1}}},
		{Region: "us-east", Log: "orders@eu-west", End: 1, Items: []ledger.Item{{Region: "us-east", Log: "orders@eu-west", Sequence: 1, ID: "a", Hash: "h"}}},
	}
	if sum := ledger.CheckShelves([]ledger.Entry{e}, shelves); !sum.Holds() {
		t.Error(sum.Broken)
	}
	for _, kind := range []regions.GapKind{regions.Withheld, regions.Damaged, regions.Void, ""} {
		shelves[0].Gaps = []regions.Gap{{Kind: kind, From: 1, To: 1}}
		if kind == "" {
			shelves[0].Gaps = nil
		}
		if sum := ledger.CheckShelves([]ledger.Entry{e}, shelves); sum.Count(ledger.Lost) != 1 {
			t.Errorf("gap %q: %v", kind, sum.Broken)
		}
	}
}
