package link_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/regions"
	"domicile/regions/gossip"
	"domicile/regions/link"
)

var _ gossip.Lines = (*link.StreamLane)(nil)

// gossipPace is faster than nodes run: what is waited for here is that names are forgotten.
const gossipPace = regions.Pace(0.1)

// gossiper is one region's pool, and what it says.
type gossiper struct {
	*gossip.Pool
	word atomic.Pointer[gossip.Word]
}

func (l *lab) gossip(t *testing.T, region, gateway string, word gossip.Word) *gossiper {
	t.Helper()
	g, gateways := &gossiper{}, map[string][]string{}
	g.word.Store(&word)
	for n := range l.addr {
		gateways[n] = []string{""}
	}
	g.Pool = must(gossip.Open(t.Context(), gossip.Config{Region: region, Gateway: gateway, Gateways: gateways, Lines: l.regions[region].Gossip(),
		Ours: func() gossip.Word { return *g.word.Load() }, Refused: l.regions[region].config.Refused, Clock: regions.NewSteadyClock(), Pace: gossipPace, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() { g.Close() })
	return g
}

func (g *gossiper) sees(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		if got := g.Members(); !slices.Equal(got, want) {
			return fmt.Sprintf("members %v, want %v", got, want)
		}
		return ""
	})
}

func (g *gossiper) hints(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		got := g.Hints()
		for _, w := range want {
			if !strings.Contains(strings.Join(got, "\n"), w) {
				return fmt.Sprintf("hints %q, want %q", got, w)
			}
		}
		if len(want) == 0 && len(got) > 0 {
			return fmt.Sprintf("hints %q", got)
		}
		return ""
	})
}

// Issue 4, build 8: members over the link port, and hints from what each says itself.
func TestB18_MembersAndHintsOverTheLinkPort(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east", "ap-south")
	word := gossip.Word{Manifest: "m1", Authority: "a", Generation: 1, Version: 7}
	west, east := l.gossip(t, "eu-west", "", word), l.gossip(t, "us-east", "", word)
	newer := word
	newer.Manifest, newer.Version = "m2", 9
	south := l.gossip(t, "ap-south", "b", newer)
	for _, g := range []*gossiper{west, east} {
		g.sees(t, "b.ap-south", "eu-west", "us-east")
		g.hints(t, `gateway "b" of ap-south`, "is not that of ap-south (of 2", "newer placement than this node has is known in ap-south")
	}
	south.hints(t, "is not that of eu-west, us-east (of 2")
	if h := strings.Join(south.Hints(), " "); strings.Contains(h, "newer") {
		t.Error(h)
	}
	if err := south.Close(); err != nil {
		t.Error(err)
	}
	west.sees(t, "eu-west", "us-east")
	west.hints(t)
}

// B18 (a): a cut that lasts longer than memberlist remembers a dead member heals by itself.
func TestB18a_ALongCutHealsWithoutARestart(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east", "ap-south")
	var all []*gossiper
	for _, region := range []string{"eu-west", "us-east", "ap-south"} {
		all = append(all, l.gossip(t, region, "", gossip.Word{Manifest: "m"}))
	}
	full := []string{"ap-south", "eu-west", "us-east"}
	for _, g := range all {
		g.sees(t, full...)
	}
	const forgotten = 10 * time.Second // memberlist's minute at this pace, and room
	for _, peer := range []string{"us-east", "ap-south"} {
		if _, err := l.regions["eu-west"].Gates().Cut(peer, []link.Plane{link.Gossip}, []regions.Direction{regions.In, regions.Out}, link.BlackHole, forgotten); err != nil {
			t.Fatal(err)
		}
	}
	all[0].sees(t, "eu-west")
	all[1].sees(t, "ap-south", "us-east")
	if s := l.regions["us-east"].link("eu-west"); !s.Up {
		t.Errorf("gossip alone is cut, and the link is not up: %+v", s)
	}
	eventually(t, 30*time.Second, func() string {
		if cuts := l.regions["eu-west"].Gates().Active(); len(cuts) > 0 {
			return fmt.Sprint(cuts)
		}
		return ""
	})
	for _, g := range all {
		g.sees(t, full...)
	}
}

// B55, B18: a peer that gossips under another region's name is refused by its certificate,
// and a peer that floods and comes under ever new names takes a bounded place.
func TestB55_AMemberThatLiesAndFloods(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east", "ap-south")
	word := gossip.Word{Manifest: "m", Authority: "a", Generation: 1, Version: 7}
	west, east := l.gossip(t, "eu-west", "", word), l.gossip(t, "us-east", "", word)
	west.sees(t, "eu-west", "us-east")

	lane := l.regions["ap-south"].Gossip()
	speak := func(kind byte, name string, rest []byte) {
		t.Helper()
		c, err := lane.Dial(t.Context(), "eu-west")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(append(append([]byte{kind, byte(len(name))}, name...), rest...)) // it may have hung up already
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	}
	text := `{"Name":"us-east","Manifest":"x","Authority":"a","Generation":9,"Version":99}`
	lie := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	speak(3, "us-east", lie)  // in the name of another region
	speak(3, "ap-south", lie) // in its own, with another's word
	speak(1, "us-east", []byte{0, 1, 0})
	eventually(t, 20*time.Second, func() string {
		if n := west.Refused(); n < 3 {
			return fmt.Sprintf("%d refused", n)
		}
		return ""
	})
	junk := make([]byte, 0, 1<<20)
	for range 4000 {
		junk = append(binary.BigEndian.AppendUint16(junk, 200), make([]byte, 200)...)
	}
	speak(1, "ap-south", append(junk, 0xff, 0xff)) // ends in a frame that is too long
	for i := range 12 {
		one := l.gossip(t, "ap-south", fmt.Sprint("g", i), gossip.Word{Manifest: "m"})
		eventually(t, 20*time.Second, func() string {
			if len(one.Members()) > 1 {
				return ""
			}
			return "it sees nobody"
		})
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(west.Members()); n > 2+4 {
		t.Errorf("%d members: %v", n, west.Members())
	}
	// Nothing of it keeps out who belongs there.
	l.gossip(t, "ap-south", "", word)
	for _, g := range []*gossiper{west, east} {
		eventually(t, 30*time.Second, func() string {
			if got := g.Members(); slices.Contains(got, "ap-south") && slices.Contains(got, "eu-west") && slices.Contains(got, "us-east") {
				return ""
			}
			return fmt.Sprint(g.Members())
		})
	}
	if s := l.regions["eu-west"].link("us-east"); !s.Up {
		t.Errorf("%+v", s)
	}
}

// A7: a packet of three bytes, from a region that has a link, ended the process; so nothing
// that comes over the lane is given to the library before it was checked, and a stream that
// claims 3 GiB is ended at its first bytes.
func TestFA7_NothingThatARegionGossipsEndsTheProcess(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east", "ap-south")
	west, east := l.gossip(t, "eu-west", "", gossip.Word{Manifest: "m"}), l.gossip(t, "us-east", "", gossip.Word{Manifest: "m"})
	west.sees(t, "eu-west", "us-east")
	speak := func(kind byte, said []byte) (taken int) {
		t.Helper()
		c := must(l.regions["ap-south"].Gossip().Dial(t.Context(), "eu-west"))
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(append([]byte{kind, byte(len("ap-south"))}, "ap-south"...)); err != nil {
			t.Fatal(err)
		}
		for range 64 { // MiB
			n, err := c.Write(said)
			taken += n
			if err != nil || len(said) < 1<<20 {
				break
			}
		}
		return taken
	}
	speak(1, []byte{0, 3, 7, 0, 0x41})
	claim := append([]byte{9, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xc6, 0xc0, 0, 0, 0}, make([]byte, 1<<20)...)
	if taken := speak(2, claim); taken > 32<<20 {
		t.Errorf("%d MiB of a claim of 3 GiB are taken", taken>>20)
	}
	eventually(t, 20*time.Second, func() string {
		if got := l.regions["eu-west"].config.Refused.Totals(); len(got) != 1 || got[0].Peer != "ap-south" || got[0].Lane != regions.LaneGossip || got[0].Reason != regions.Malformed || got[0].Count != 2 {
			return fmt.Sprint("counted: ", got)
		}
		return ""
	})
	west.sees(t, "eu-west", "us-east")
	east.sees(t, "eu-west", "us-east")
}
