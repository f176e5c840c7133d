package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/link/linktest"
)

// B32: five seconds in which no byte passes between three regions, under load. The
// links go down, publishing goes on at home, and after the heal every copy is complete
// up to the present within three seconds, with a margin of three.
func TestB32_CopiesAreInSyncSoonAfterABlackHole(t *testing.T) {
	line := linktest.NewLine(0, 20*time.Millisecond, 0)
	l, err := lab.Open(t.Context(), lab.Options{Parent: t.TempDir(), Seams: func(_ string, s *node.Seams) { s.Dial = line.Dial(linktest.There) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		line.Release(linktest.There, linktest.Back)
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := l.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	producer := openClient(t, l, "eu-west")
	load.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			r := order(fmt.Sprint("id-", i), "global")
			if _, err := producer.Publish(ctx, &r); err != nil && ctx.Err() == nil {
				t.Errorf("publishing at home: %v", err)
			}
		}
	})
	if err := l.CaughtUp(t.Context(), time.Now(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	line.Hold(linktest.There, linktest.Back)
	<-time.After(5 * time.Second)
	if err := l.CaughtUp(t.Context(), time.Now(), 300*time.Millisecond); err == nil {
		t.Error("a copy is complete up to now although no byte passes")
	}
	healed := time.Now()
	line.Release(linktest.There, linktest.Back)
	if err := l.CaughtUp(t.Context(), healed, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	took := time.Since(healed)
	t.Logf("in sync %s after the heal", took)
	if took > 9*time.Second {
		t.Errorf("in sync only after %s", took)
	}
}
