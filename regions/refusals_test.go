package regions

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

type stoppedClock struct{ now time.Time }

func (c *stoppedClock) Now() time.Time { return c.now }

// What callers pass can't widen the set of labels beyond peers times two closed lists.
func TestFA7_RefusalsAreCountedInClosedSets(t *testing.T) {
	clock := &stoppedClock{time.Unix(1000, 0)}
	var log bytes.Buffer
	r := NewPeerRefusals(clock, slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 1000 {
		r.Add("us-east", Lane(fmt.Sprint("lane ", i)), Refusal(fmt.Sprint("reason ", i)))
	}
	clock.now = time.Unix(2000, 0)
	r.Add("us-east", LaneGossip, Malformed)
	want := []PeerRefused{
		{"us-east", LaneGossip, Malformed, 1, time.Unix(2000, 0)},
		{"us-east", otherLane, otherwise, 1000, time.Unix(1000, 0)},
	}
	if got := r.Totals(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d lines are logged:\n%s", lines, log.String())
	}
	var none *PeerRefusals
	none.Add("us-east", LaneGossip, Malformed)
	if got := none.Totals(); got != nil {
		t.Errorf("nobody counts, and %v was counted", got)
	}
}
