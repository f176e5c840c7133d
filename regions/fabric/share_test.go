package fabric

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// RT2, B50: however many logs flood, what is on its way stays within the window and what one
// log is always given, and a log that has nothing on its way never waits.
func TestRT2_TheShareOfALog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShare()
		s.window = rapid.Int64Range(leastWindow, mostWindow).Draw(t, "window")
		window, own := s.window, make([]int64, rapid.IntRange(1, 20).Draw(t, "logs"))
		s.pressed = false
		for range 200 {
			i := rapid.IntRange(0, len(own)-1).Draw(t, "log")
			more, again := s.grant(own[i])
			if more == 0 && (own[i] == 0 || again == nil) {
				t.Fatalf("a log with %d bytes on their way waits, and nobody tells it for what", own[i])
			}
			n := min(more, burstBytes)
			s.take(n)
			own[i] += n
			if most := window + int64(len(own))*leastShare; s.afloat > most {
				t.Fatalf("%d bytes are on their way, at most %d may", s.afloat, most)
			}
		}
	})
}

// RT2: the window follows what the disk does under load, and not how little there was to do.
func TestRT2_TheWindowFollowsTheDisk(t *testing.T) {
	for _, c := range []struct {
		window, moved int64
		took          time.Duration
		pressed       bool
		want          int64
	}{
		{16 << 20, 100, time.Millisecond, false, 16 << 20},              // one small record says nothing
		{16 << 20, 8 << 20, 400 * time.Millisecond, true, 8 << 20},      // 20 MiB/s: half at a time
		{8 << 20, 8 << 20, 400 * time.Millisecond, true, 4 << 20},       //
		{4 << 20, 4 << 20, 200 * time.Millisecond, true, 2 << 20},       // there
		{2 << 20, 2 << 20, 10 * time.Second, true, leastWindow},         // a disk that hangs
		{2 << 20, 2 << 20, 10 * time.Millisecond, true, 4 << 20},        // 200 MiB/s: twice at a time
		{16 << 20, 16 << 20, 80 * time.Millisecond, false, 20 << 20},    // found without pressure
		{mostWindow, 64 << 20, 10 * time.Millisecond, true, mostWindow}, //
		{firstWindow, 1 << 30, time.Duration(0), true, 2 * firstWindow}, // a clock without ticks
		{firstWindow, 0, windowTime, true, firstWindow / 2},             // nothing came through
	} {
		if got := windowAfter(c.window, c.moved, c.took, c.pressed); got != c.want {
			t.Errorf("%d, then %d in %s: %d, want %d", c.window, c.moved, c.took, got, c.want)
		}
	}
}
