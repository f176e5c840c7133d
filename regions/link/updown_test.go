package link_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"domicile/regions"
	"domicile/regions/link"
)

func TestR14a_LinkComesUpOnlyWhenBothWaysAreProven(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace, "eu-west", "us-east")
	if s := l.regions["eu-west"].link("us-east"); s.Up || !s.Since.IsZero() || s.OffsetOK {
		t.Fatalf("before the start everything is unknown: %+v", s)
	}
	l.start("eu-west")
	l.await("eu-west", "us-east", "known to be down", func(s regions.LinkStatus) bool { return !s.Up && !s.Since.IsZero() && s.Reason != "" })
	l.start("us-east")
	took := l.await("eu-west", "us-east", "up", isUp)
	took += l.await("us-east", "eu-west", "up", isUp)
	if took > 9*time.Second {
		t.Errorf("up after %s", took)
	}
	s := l.regions["us-east"].link("eu-west")
	if s.Hello == nil || s.Hello.FabricID != "fabric-eu-west" || s.Reason != "" || s.LastHeard.IsZero() {
		t.Errorf("status of a link that is up: %+v", s)
	}
	l.await("us-east", "eu-west", "measured", func(s regions.LinkStatus) bool { return s.OffsetOK && s.RTT > 0 })
	if s := l.regions["us-east"].link("eu-west"); s.Offset.Abs() > s.OffsetErr+time.Millisecond {
		t.Errorf("one machine, one clock, yet the offset is %s ± %s", s.Offset, s.OffsetErr)
	}
}

// Each way to cut a link is seen by both ends within the time for three heartbeats
// and a margin of three, and heals by itself.
func TestR14a_CutIsSeenByBothEndsAndHeals(t *testing.T) {
	t.Parallel()
	out, in := []regions.Direction{regions.Out}, []regions.Direction{regions.In}
	control, data := []link.Plane{link.Control}, []link.Plane{link.Data}
	for _, c := range []struct {
		planes []link.Plane
		dirs   []regions.Direction
		mode   link.Mode
		beats  time.Duration // that it may take, of which three times as many are no fault
	}{
		{bothPlanes, bothWays, link.Reject, 3},
		{bothPlanes, bothWays, link.BlackHole, 3},
		{bothPlanes, out, link.Reject, 3},
		{bothPlanes, out, link.BlackHole, 3},
		{bothPlanes, in, link.Reject, 3},
		{bothPlanes, in, link.BlackHole, 3},
		{control, bothWays, link.BlackHole, 3},
		{data, bothWays, link.BlackHole, 8}, // five beats of silence, then three for the other end to miss ours
		{data, in, link.BlackHole, 8},
		{data, out, link.Reject, 3},
	} {
		t.Run(fmt.Sprint(c.mode, c.planes, c.dirs), func(t *testing.T) {
			t.Parallel()
			l := started(t, halfPace, "eu-west", "us-east")
			id := l.cut("eu-west", "us-east", c.planes, c.dirs, c.mode)
			took := max(l.await("eu-west", "us-east", "down", isDown), l.await("us-east", "eu-west", "down", isDown))
			if took > 3*c.beats*beat {
				t.Errorf("both ends saw it after %s", took)
			}
			if s := l.regions["eu-west"].link("us-east"); s.Cut == "" || s.Reason == "" {
				t.Errorf("the status says nothing of the cut: %+v", s)
			}
			if !l.regions["eu-west"].Gates().Heal(id) {
				t.Fatal("the cut had ended")
			}
			took = max(l.await("eu-west", "us-east", "up", isUp), l.await("us-east", "eu-west", "up", isUp))
			if took > 9*time.Second {
				t.Errorf("up again after %s", took)
			}
		})
	}
}

func TestR14a_OneWayCutNamesTheDirection(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	l.cut("eu-west", "us-east", bothPlanes, []regions.Direction{regions.Out}, link.Reject)
	l.await("eu-west", "us-east", "cut outwards only", func(s regions.LinkStatus) bool { return !s.Up && !s.OutProven && s.InProven })
	l.await("us-east", "eu-west", "cut inwards only", func(s regions.LinkStatus) bool { return !s.Up && s.OutProven && !s.InProven })
	never(t, 4*beat, "a one-way link came up", func() bool {
		return l.regions["eu-west"].link("us-east").Up || l.regions["us-east"].link("eu-west").Up
	})
}

func TestR14a_ThirdRegionIsNotTouchedByACut(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east", "ap-south")
	before := l.regions["us-east"].link("ap-south").Since
	l.cut("us-east", "eu-west", bothPlanes, bothWays, link.BlackHole)
	l.await("us-east", "eu-west", "down", isDown)
	l.await("eu-west", "us-east", "down", isDown)
	for _, pair := range [][2]string{{"us-east", "ap-south"}, {"ap-south", "us-east"}, {"eu-west", "ap-south"}, {"ap-south", "eu-west"}} {
		if !l.regions[pair[0]].link(pair[1]).Up {
			t.Errorf("the link of %s with %s went down too", pair[0], pair[1])
		}
	}
	if since := l.regions["us-east"].link("ap-south").Since; !since.Equal(before) {
		t.Errorf("the other link was down for a moment: up since %s, before %s", since, before)
	}
}

// Flapping leaves nothing behind: goleak at the end of the package's tests sees what
// outlives a mesh, this sees what piles up in a living one.
func TestB31_FlappingPilesNothingUp(t *testing.T) {
	l := started(t, halfPace, "eu-west", "us-east")
	base := runtime.NumGoroutine()
	for i := range 8 {
		mode := link.Reject
		if i%4 == 3 {
			mode = link.BlackHole
		}
		id := l.cut("eu-west", "us-east", bothPlanes, bothWays, mode)
		l.await("us-east", "eu-west", "down", isDown)
		l.regions["eu-west"].Gates().Heal(id)
		l.await("eu-west", "us-east", "up", isUp)
		l.await("us-east", "eu-west", "up", isUp)
	}
	eventually(t, 5*time.Second, func() string {
		if n := runtime.NumGoroutine(); n > base+12 {
			return fmt.Sprintf("%d goroutines, %d before", n, base)
		}
		return ""
	})
}

func TestR14a_RestartedPeerIsTakenBack(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	old := l.regions["us-east"].link("eu-west").Hello.BootID
	closeNow(l.regions["eu-west"])
	l.await("us-east", "eu-west", "down", isDown)
	eventually(t, 5*time.Second, func() string { return l.relisten("eu-west") })
	l.prepare("eu-west", nil)
	l.start("eu-west")
	took := max(l.await("us-east", "eu-west", "up", isUp), l.await("eu-west", "us-east", "up", isUp))
	if took > 9*time.Second {
		t.Errorf("up again after %s", took)
	}
	if now := l.regions["us-east"].link("eu-west").Hello.BootID; now == old {
		t.Error("the hello is still that of the run before")
	}
}

// A node that takes its time over watermarks, giving or taking, delays no heartbeat.
func TestR14d_SlowNodeDelaysNoHeartbeat(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace, "eu-west", "us-east")
	slow, asked := make(chan struct{}), make(chan struct{}, 100)
	l.regions["eu-west"].marks = func(string, bool) regions.Watermarks {
		asked <- struct{}{}
		<-slow
		return regions.Watermarks{}
	}
	l.start("eu-west")
	l.start("us-east")
	l.await("eu-west", "us-east", "up", isUp)
	l.await("us-east", "eu-west", "up", isUp)
	<-asked
	never(t, 5*beat, "the link went down", func() bool {
		return !l.regions["eu-west"].link("us-east").Up || !l.regions["us-east"].link("eu-west").Up
	})
	close(slow)
}
