package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"domicile/chaos/lab"
	"domicile/regions"
)

// TestR14g_ARebuiltHomeBeginsNoSecondLog: a home is lost with its disk and its log is forced
// away. The region comes back with nothing and by the manifest is the log's home; it
// acknowledges no record of its own, learns from the authority where the log lives on, and
// keeps a copy of that.
func TestR14g_ARebuiltHomeBeginsNoSecondLog(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var west, east sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer west.Wait()
	defer east.Wait()
	defer stop()
	m.publish(ctx, &east, "us-east", "e")
	m.more(20)
	if err := m.Region("eu-west").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.until("the home is lost", func() error { return down(t.Context(), m.Lab, "us-east", "eu-west") })
	m.move("us-east", "away", "us-east", forced)
	l := m.settled("us-east", "us-east", "eu-central")
	m.more(20)
	if err := os.RemoveAll(m.Region("eu-west").Data()); err != nil {
		t.Fatal(err)
	}
	if err := m.Region("eu-west").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.publish(ctx, &west, "eu-west", "w")
	m.settled("us-east", "eu-west")
	m.more(40)
	stop()
	west.Wait()
	east.Wait()
	for id, ack := range m.acks {
		if ack.Region != "us-east" && ack.Epoch == l.Epoch || ack.Incarnation != l.Incarnation {
			t.Errorf("%s was acknowledged as %+v", id, ack)
		}
	}
	if role := m.Federation.Role(m.id, "eu-west"); role == regions.RoleNone {
		t.Error("the rebuilt region keeps no copy")
	}
	m.whole("us-east", m.beyond(l.History[0]))
}

// TestR14g_AHomeWithoutItsDiskEndsNothing: a home comes back with an empty disk before
// anybody moved its log. It neither begins the log anew nor says that it ended at nothing:
// a forced move cuts where the copy ends.
func TestR14g_AHomeWithoutItsDiskEndsNothing(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var east sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer east.Wait()
	defer stop()
	m.publish(ctx, &east, "us-east", "e")
	m.more(20)
	stop()
	east.Wait()
	before := m.acked()
	m.until("the copy has all", func() error {
		if n := len(m.holds("us-east")); n < before {
			return fmt.Errorf("%d of %d", n, before)
		}
		return nil
	})
	if err := m.Region("eu-west").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.Region("eu-west").Data()); err != nil {
		t.Fatal(err)
	}
	if err := m.Region("eu-west").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.until("the links are up", func() error {
		if down(t.Context(), m.Lab, "us-east", "eu-west") == nil {
			return errors.New("down")
		}
		return nil
	})
	m.move("us-east", "away", "us-east", forced)
	l := m.settled("us-east", "us-east", "eu-central")
	if end := l.History[0].End; end < uint64(before) {
		t.Errorf("cut at %d, %d were acknowledged", end, before)
	}
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	m.publish(ctx, &east, "us-east", "f")
	m.more(20)
	stop()
	east.Wait()
	m.whole("us-east", nil)
}
