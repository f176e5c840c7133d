package lab_test

import (
	"bytes"
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// TestR14j_ASyncTargetTakesOverWithoutLoss cuts the home of a log off whose acks wait for a
// second region, and forces the log there: it is on record that nothing is lost, since that
// region knows its copy to be whole, and nothing that was acknowledged is.
func TestR14j_ASyncTargetTakesOverWithoutLoss(t *testing.T) {
	t.Parallel()
	manifest := bytes.Replace(movingTo("eu-central", ""), []byte("mirror: [all],"), []byte("mirror: [all], sync: {within: eu, copies: 2, when_short: refuse},"), 1)
	m := moving(t, "", lab.Options{Manifest: manifest})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	m.until("the cut is seen", func() error { return down(t.Context(), m.Lab, "eu-central", "eu-west") })
	m.move("eu-central", "away", "eu-central", forced)
	l := m.settled("eu-central", "us-east", "eu-central")
	last := l.History[len(l.History)-1]
	if last.Proof != placement.Diverges || !reflect.DeepEqual(*last.Lost, placement.None()) {
		t.Errorf("the epoch ended as %+v, with a loss of %+v", last, *last.Lost)
	}
	if void := m.beyond(last); len(void) != 0 {
		t.Errorf("%d acknowledged orders are void", len(void))
	}
	m.Heal()
	m.settled("eu-central", "eu-west")
	m.more(10)
	stop()
	producers.Wait()
	m.whole("eu-central", nil)
}
