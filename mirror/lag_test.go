package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/regions"
)

// TestR14d_LagScripts runs testdata/lag: what a target hears and stores, line by
// line, and the figures that follow. Times are seconds since the start.
//
//	mark head=5 at=3 closed=4 [incarnation=x] [digest=x]   a listed mark: head, its stamp, closed
//	instant closed=9        a message that does not list the log
//	connect                 a first round that does not list the log
//	apply cursor=5 at=3     the copy ends here now
//	trouble state=TARGET_FULL
//	link up|down [offset=0.2] [error=0.01]
//	lag now=10
func TestR14d_LagScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/lag", func(t *testing.T, path string) {
		s := script{view: targetView{knowledge: &knowledge{}, digest: "d"}}
		s.view.moved = instantOf(0)
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct{ view targetView }

func instantOf(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	k := s.view.knowledge
	number := func(key string) float64 {
		var f float64
		if d.HasArg(key) {
			var text string
			d.ScanArgs(t, key, &text)
			if _, err := fmt.Sscan(text, &f); err != nil {
				d.Fatalf(t, "%s: %v", key, err)
			}
		}
		return f
	}
	text := func(key, otherwise string) string {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &otherwise)
		}
		return otherwise
	}
	at := func(key string) time.Time {
		if !d.HasArg(key) {
			return time.Time{}
		}
		return instantOf(number(key))
	}
	switch d.Cmd {
	case "mark":
		s.view.heard = at("closed")
		k.marked(regions.LogMark{Head: uint64(number("head")), HeadTime: at("at"), Closed: at("closed"),
			Incarnation: text("incarnation", "i"), Digest: text("digest", "d")})
	case "instant":
		s.view.heard = at("closed")
		k.instant(at("closed"))
	case "clock":
		k.clock = at("reads")
	case "connect":
		k.disconnected()
	case "apply":
		s.view.moved = at("at")
		k.applied("i", uint64(number("cursor")), at("at"))
	case "trouble":
		s.view.trouble = trouble{regions.LagState(text("state", "")), "told so"}
	case "link":
		s.view.link = regions.LinkStatus{Up: d.HasArg("up"), Reason: "no heartbeat", OffsetOK: !d.HasArg("unmeasured"),
			Offset: time.Duration(number("offset") * float64(time.Second)), OffsetErr: time.Duration(number("error") * float64(time.Second))}
	case "lag":
		s.view.now = at("now")
		return s.show()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

func (s *script) show() string {
	var l regions.Lag
	negative := s.view.verdict(&l)
	var b strings.Builder
	fmt.Fprintf(&b, "%s", l.State)
	if l.Cause != "" {
		fmt.Fprintf(&b, " (%s)", l.Cause)
	}
	if l.StalenessKnown {
		fmt.Fprintf(&b, "\nstaleness %.3f ± %.3f s", l.Staleness.Seconds(), l.StalenessError.Seconds())
	} else {
		b.WriteString("\nstaleness unknown")
	}
	if !l.SecondsTrusted {
		b.WriteString(", untrusted")
	}
	if negative {
		b.WriteString(", clamped")
	}
	if l.RecordsKnown {
		fmt.Fprintf(&b, "\nrecords %d of %d", l.Records, l.Head)
	} else {
		b.WriteString("\nrecords unknown")
	}
	return b.String() + "\n"
}
