package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// halted is a store that stops in the middle of opening a copy that has to go back.
type halted struct {
	*logBook
	t       *testing.T
	config  fabric.LogConfig
	reached chan struct{}
	goOn    chan struct{}
}

func halt(t *testing.T) *halted {
	h := &halted{t: t, reached: make(chan struct{}), goOn: make(chan struct{})}
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.Step = func(step string) {
			if step == "history judged" {
				close(h.reached)
				<-h.goOn
			}
		}
	})
	copied := fabrictest.Copy(t, f, "moved@there")
	first, second := api.StaticEpoch("there"), api.Epoch{Term: 1, Counter: 2, Issuer: "q"}
	var items []regions.Item
	for i := range uint64(8) {
		items = append(items, regions.Item{Sequence: i + 1, Epoch: first, Term: 1, Time: time.Unix(1e9, int64(i)).UTC(), Record: api.Record{ID: fmt.Sprint(i)}})
	}
	if _, err := copied.Apply(t.Context(), "inc", items); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseLog(t.Context(), copied.ID()); err != nil {
		t.Fatal(err)
	}
	h.config = fabric.LogConfig{ID: copied.ID(), MaxBytes: 64 << 20, History: regions.History{{Epoch: first, End: 5}, {Epoch: second, Open: true}}}
	busy := fabrictest.Home(t, f, "busy@here")
	h.logBook = &logBook{self: "here", fabric: f, homes: map[api.LogID]regions.HomeLog{busy.ID(): busy}, copies: map[api.LogID]regions.CopyLog{},
		synced: map[api.LogID]*synced{}, underway: map[api.LogID]*copyOpening{}}
	return h
}

// within fails the test if f is held up by what stopped.
func (h *halted) within(what string, f func()) {
	h.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		h.t.Fatal(what + " waits for another log's copy to be opened")
	}
}

type outcome struct {
	log regions.CopyLog
	err error
}

func (h *halted) opens(ctx context.Context) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		log, err := h.openCopy(ctx, h.config)
		out <- outcome{log, err}
	}()
	return out
}

// TestRT3_ACopyThatIsOpenedHoldsUpNoOtherLog: a copy that goes back to the end of an epoch
// may take long to open. Meanwhile publishes and reads of other logs find theirs; whoever
// wants the same copy waits for it, no longer than it cares to.
func TestRT3_ACopyThatIsOpenedHoldsUpNoOtherLog(t *testing.T) {
	h := halt(t)
	first := h.opens(t.Context())
	<-h.reached
	h.within("a publish", func() {
		busy := api.LogID{Tenant: api.DefaultTenant, Topic: "busy", Slot: "here"}
		log, ok := h.writable(busy)
		if !ok {
			t.Error("the log is not found")
			return
		}
		if s := fabrictest.Append(t, log, api.Record{ID: "x"}); s.Err != nil {
			t.Error(s.Err)
		}
		if len(h.ofTopic("busy")) != 1 || len(h.ofTopic("moved")) != 0 {
			t.Error("a reader finds other logs than those that are open")
		}
	})
	second := h.opens(t.Context())
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if got := <-h.opens(impatient); api.CodeOf(got.err) != api.NotReady {
		t.Error("who does not wait is told", got.err)
	}
	close(h.goOn)
	a, b := <-first, <-second
	if a.err != nil || b.err != nil || a.log != b.log || a.log.Head().Sequence != 5 {
		t.Errorf("opened as %v and %v", a, b)
	}
}

// TestRT3_ACopyThatWasDroppedIsNotLeftOpen: a log that is taken out while its copy is being
// opened is not put in place behind that.
func TestRT3_ACopyThatWasDroppedIsNotLeftOpen(t *testing.T) {
	h := halt(t)
	got := h.opens(t.Context())
	<-h.reached
	h.within("a deletion", func() { h.drop(h.config.ID) })
	close(h.goOn)
	if o := <-got; api.CodeOf(o.err) != api.NotReady {
		t.Error("the copy was dropped, and is", o)
	}
	if log, _ := h.find(h.config.ID); log != nil {
		t.Error("it is in the book")
	}
	if _, err := h.fabric.Delete(t.Context(), h.config.ID); err != nil {
		t.Error(err)
	}
}
