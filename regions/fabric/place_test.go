package fabric_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RA4: two of three nodes start, and the third is lost. The broker makes no new log, since it
// knows nothing of the third; whoever declares one is told so, with the node's name and that
// it may be tried again, and not in the broker's words. With the node back the log is made.
func TestRA4_ALogThatCannotBePlacedIsRefusedForNow(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	nodes := []string{"c", "b", "a"}
	eventually(t, "all nodes have met", func() bool {
		return r.Node("a").ID() != "" && r.Node("b").ID() != "" && r.Node("c").ID() != ""
	})
	for _, node := range nodes {
		if err := r.Close(node); err != nil {
			t.Log(err)
		}
	}
	r.Start("a", "b")
	declare := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := r.Node(r.Holder()).Home(ctx, fabric.LogConfig{ID: api.LogID{Topic: "orders", Slot: api.HomeSlot}, Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
		return err
	}
	within(t, time.Minute, "the log is refused because of node c", func() bool {
		err := declare()
		if err == nil {
			t.Fatal("a log was made without the third node: then this refusal is not needed")
		}
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.NotReady || e.RetryAfter <= 0 {
			t.Fatalf("refused with %v", err)
		}
		return strings.Contains(e.Hint, "node c") // else the seat is on the move
	})
	r.Start("c")
	within(t, time.Minute, "the log is made", func() bool { return declare() == nil })
}
