package link

import (
	"testing"
	"time"

	"domicile/regions"
)

// R14d: a line that was wide while little was sent, and is narrow when there is much. What
// moved in no time before says nothing of the line now: what is on its way stays within
// three seconds of it, the time after which a silent peer is taken for gone.
func TestR14d_PacerIsNotFooledByWhatMovedBefore(t *testing.T) {
	const line = 6250 // bytes a second
	clock := regions.NewManualClock(time.Unix(0, 0))
	p := newPacer(clock)
	p.start()
	read := int64(0)
	move := func(n int64) { read += n; p.receipt(read) }
	for range 30 { // marks and flows that open, each answered within 0.1 ms
		if n, _ := p.try(120); n > 0 {
			clock.Advance(100 * time.Microsecond)
			move(int64(n))
		}
	}
	most := int64(0)
	for range 400 {
		for n := 1; n > 0; {
			n, _ = p.try(1 << 20)
		}
		written, received, _ := p.position()
		most = max(most, written-received)
		clock.Advance(50 * time.Millisecond)
		move(min(line/20, written-read))
	}
	if most > 3*line/2 {
		t.Errorf("%d bytes were on their way, %d a second get through", most, line)
	}
	if w := p.holds(); w < line/2 {
		t.Errorf("the window sank to %d", w)
	}
}
