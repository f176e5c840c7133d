package lab_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
)

// breached is a federation in which us-east was broken into: it has its certificate and sends
// what the test makes of its messages.
type breached struct {
	*testing.T
	*lab.Lab
	turns atomic.Pointer[func(proto.Message) bool] // nil: us-east is honest
	sent  atomic.Int64                             // messages that were turned
	ids   int
}

func openBreached(t *testing.T) *breached {
	h := &breached{T: t}
	h.Lab = open(t, lab.Options{Seams: func(region string, s *node.Seams) {
		if region != "us-east" {
			return
		}
		s.Hooks.Link.Sending = func(m proto.Message) {
			if turn := h.turns.Load(); turn != nil && (*turn)(m) {
				h.sent.Add(1)
			}
		}
	}})
	return h
}

// order publishes an order in a region; nothing is asked of the outcome.
func (h *breached) order(region, residency string) (string, error) {
	h.Helper()
	h.ids++
	id := fmt.Sprintf("%s-%d", region, h.ids)
	r := orderOf(residency, id)
	_, err := door(h.T, h.Lab, region, 0).Publish(h.Context(), &r)
	return id, err
}

// counted is a counter of eu-west's, over all series that have the labels.
func (h *breached) counted(name string, labels ...string) (n float64) {
	h.Helper()
	page, err := h.Region("eu-west").Metrics(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	for _, m := range page {
		if m.Name == name && !slices.ContainsFunc(labels, func(l string) bool {
			k, v, _ := strings.Cut(l, "=")
			return m.Labels[k] != v
		}) {
			n += m.Value
		}
	}
	return n
}

// attack turns what us-east sends until something of it was sent.
func (h *breached) attack(name string, turn func(proto.Message) bool) (id string) {
	h.Helper()
	before := h.sent.Load()
	h.turns.Store(&turn)
	id, err := h.order("us-east", "global")
	if err != nil {
		h.Fatalf("%s: %v", name, err)
	}
	within(h.T, name, func() error {
		if h.sent.Load() == before {
			return fmt.Errorf("nothing of it was sent")
		}
		return nil
	})
	return id
}

// items are the items of us-east's orders in a message to wherever it goes.
func items(m proto.Message) []*pb.MirrorItem {
	if r, ok := m.(*pb.MirrorRequest); ok {
		return r.GetBatch().GetItems()
	}
	return nil
}

// TestFA1_ARegionThatWasBrokenIntoStopsNothingHere: what us-east smuggles into its records is
// refused in eu-west and counted against it; no log of eu-west stops, eu-west starts again, and the
// copies there go on as soon as us-east is honest.
func TestFA1_ARegionThatWasBrokenIntoStopsNothingHere(t *testing.T) {
	h := openBreached(t)
	header := func(name string) func(proto.Message) bool {
		return func(m proto.Message) bool {
			for _, it := range items(m) {
				if it.GetRecord() != nil {
					it.Record = proto.CloneOf(it.Record)
					it.Record.Headers = []*pb.Header{{Name: name, Value: "v"}}
				}
			}
			return len(items(m)) > 0
		}
	}
	attacks := map[string]func(proto.Message) bool{
		"a forged position": header("x: 1\r\nDomicile-Position: inc 9.9.q 9 1099511627776\r\nDomicile-H-y"),
		"forged tags":       header("x: 1\r\nDomicile-Tags: class=order,residency=in\r\nDomicile-H-y"),
		"a far gap": func(m proto.Message) bool {
			for _, it := range items(m) {
				from := it.Sequence
				it.Sequence, it.Record = 1<<60, nil
				it.Gap = &pb.MirrorGap{Kind: "purged", From: from, To: 1 << 60}
			}
			return len(items(m)) > 0
		},
	}
	for _, kind := range []string{"r", "c", "o"} {
		attacks["a header that publishes to "+kind+".orders__eu-west"] = header("x: 1\r\nNats-Trace-Dest: " + kind + ".orders__eu-west\r\nDomicile-H-y")
	}
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		before := h.counted("domicile_peer_refused_total", "peer=us-east", "lane=mirror", "reason=malformed")
		ids = append(ids, h.attack(name, attacks[name]))
		within(t, name, func() error {
			if n := h.counted("domicile_peer_refused_total", "peer=us-east", "lane=mirror", "reason=malformed"); n == before {
				return fmt.Errorf("nothing was counted against us-east")
			}
			return nil
		})
		if id, err := h.order("eu-west", "eu"); err != nil {
			t.Errorf("%s: %s is refused in eu-west: %v", name, id, err)
		}
	}
	h.turns.Store(nil)
	h.whole(ids)
	if err := h.Region("eu-west").Restart(t.Context()); err != nil {
		t.Fatalf("eu-west does not start again: %v", err)
	}
	if err := h.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.order("eu-west", "eu"); err != nil {
		t.Error(err)
	}
	h.whole(append(ids, first(h.order("us-east", "global"))))
}

func first(id string, _ error) string { return id }

// whole waits until eu-west's copies have all there is, and looks for the orders in what it reads.
func (h *breached) whole(ids []string) {
	h.Helper()
	if err := h.CaughtUp(h.Context(), time.Now(), time.Minute); err != nil {
		h.Error(err)
	}
	got := map[string]string{}
	c := door(h.T, h.Lab, "eu-west", 0)
	err := c.Read(h.Context(), &pb.ReadRequest{Topic: "orders"}, func(m *pb.ReadResponse) error {
		for _, r := range m.GetRecords() {
			got[r.GetRecord().GetId()] = fmt.Sprint(r.GetRecord().GetTags(), r.GetRecord().GetHeaders())
		}
		return nil
	})
	if err != nil {
		h.Error(err)
	}
	for _, id := range ids {
		if text := got[id]; !strings.Contains(text, "global") || strings.Contains(text, "Domicile") {
			h.Errorf("%s is read as %q", id, text)
		}
	}
}

// TestFA5_WhatMayNotHaveBeenThereIsKeptOutAndCounted: an EU order in a log of us-east's, and a
// health record of the EU that came through its memory.
func TestFA5_WhatMayNotHaveBeenThereIsKeptOutAndCounted(t *testing.T) {
	h := openBreached(t)
	h.attack("an EU order in us-east's own log", func(m proto.Message) bool {
		for _, it := range items(m) {
			it.Record = proto.CloneOf(it.Record)
			for _, tag := range it.Record.GetTags() {
				if tag.Name == "residency" {
					tag.Value = "eu"
				}
			}
		}
		return len(items(m)) > 0
	})
	within(t, "it is counted", func() error {
		if n := h.counted("domicile_peer_refused_total", "peer=us-east", "lane=mirror", "reason=impossible"); n != 1 {
			return fmt.Errorf("%v messages are counted against us-east", n)
		}
		return nil
	})
	turn := func(m proto.Message) bool {
		f, ok := m.(*pb.ForwardRequest)
		if ok {
			f.Record, f.Log = proto.CloneOf(f.Record), proto.CloneOf(f.Log)
			f.Record.Topic, f.Log.Topic = "health.records", "health.records"
			f.Record.Tags = []*pb.Tag{{Name: "class", Value: "health"}, {Name: "residency", Value: "eu"}}
		}
		return ok
	}
	h.turns.Store(&turn)
	if _, err := h.order("us-east", "eu"); api.CodeOf(err) != api.TransitDenied {
		t.Errorf("a health record that came through us-east: %v", err)
	}
	if n := h.counted("domicile_peer_refused_total", "peer=us-east", "lane=forward", "reason=impossible"); n != 1 {
		t.Errorf("%v messages are counted against us-east", n)
	}
	h.turns.Store(nil)
	h.whole([]string{first(h.order("us-east", "global"))})
}
