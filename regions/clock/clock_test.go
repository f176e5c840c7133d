package clock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"domicile/regions/clock"
)

// TestFG1_Judge plays testdata: what is known of a clock, and what is made of it. The store
// last ran at 2026-11-01; all else is said as time from there, or from the node's clock.
//
//	judge moved=192h up=14s boot=same|other against=1 last=none fresh checked synced machine=-1h certificate=(-1h,720h)
//	peer offset ± age
func TestFG1_Judge(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			v := clock.Judge(evidence(t, d))
			if !v.Doubt {
				return "believed\n"
			}
			out := "in doubt: " + v.Reason + "\n"
			if v.Off != 0 {
				out += "stamps go on with the clock corrected by " + v.Off.String() + "\n"
			}
			if v.Against != 0 {
				out += "contradicted by " + strconv.Itoa(v.Against) + "\n"
			}
			who := "nobody"
			if strings.Contains(v.Clears, "node.yaml") {
				who = "kernel, peers or a person"
			} else if strings.Contains(v.Clears, "start the node again") {
				who = "a start"
			}
			return out + "ended by " + who + "\n"
		})
	})
}

var base = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func evidence(t *testing.T, d *datadriven.TestData) *clock.Evidence {
	e := &clock.Evidence{Last: clock.Reading{At: base, Boot: "a", Up: time.Hour}, Now: clock.Reading{At: base, Boot: "a", Up: time.Hour}}
	span := func(s string) time.Duration {
		v, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(d.Pos, err)
		}
		return v
	}
	for _, a := range d.CmdArgs {
		switch first := append(a.Vals, "")[0]; a.Key {
		case "moved":
			e.Now.At = base.Add(span(first))
		case "up":
			e.Now.Up += span(first)
		case "boot":
			if first == "other" {
				e.Now.Boot = "b"
			}
		case "against":
			e.Last.Against, _ = strconv.Atoi(first)
		case "last":
			e.Last = clock.Reading{}
		case "fresh":
			e.Fresh = true
		case "checked":
			e.Checked = true
		case "synced":
			e.Synced, e.Machine = true, e.Now.At
		case "machine":
			e.Machine = e.Now.At.Add(span(first))
		case "certificate":
			e.NotBefore, e.NotAfter = base.Add(span(first)), base.Add(span(a.Vals[1]))
		default:
			t.Fatal(d.Pos, a.Key)
		}
	}
	for line := range strings.Lines(d.Input) {
		w := strings.Fields(line)
		p := clock.Peer{Region: w[0], Known: true, Error: 10 * time.Millisecond, Age: time.Second}
		if p.Known = w[1] != "unknown"; p.Known {
			p.Offset = span(w[1])
		}
		if len(w) > 2 {
			p.Error = span(w[2])
		}
		if len(w) > 3 {
			p.Age = span(w[3])
		}
		e.Peers = append(e.Peers, p)
	}
	return e
}

// One peer that lies, whatever it says and whenever, never ends a doubt that the others do
// not end, and never keeps a clock in doubt that another peer or the kernel speaks for.
func TestFG1_NoSinglePeerDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		honest := rapid.IntRange(0, 4).Draw(t, "honest peers")
		wrong := rapid.SampledFrom([]time.Duration{0, 8 * 24 * time.Hour, -8 * 24 * time.Hour}).Draw(t, "clock wrong by")
		e := clock.Evidence{Last: clock.Reading{At: base, Boot: "a"}, Now: clock.Reading{At: base.Add(wrong), Boot: "a"}}
		for i := range 20 {
			e.Now.At, e.Now.Up = e.Now.At.Add(time.Second), e.Now.Up+time.Second
			e.Peers = nil
			up := 0
			for j := range honest {
				p := clock.Peer{Region: fmt.Sprint("h", j), Known: rapid.Bool().Draw(t, "answers"), Offset: -wrong}
				e.Peers = append(e.Peers, p)
				if p.Known {
					up++
				}
			}
			lie := rapid.SampledFrom([]time.Duration{0, -wrong, time.Hour, -1000 * time.Hour}).Draw(t, "lie")
			e.Peers = append(e.Peers, clock.Peer{Region: "liar", Known: true, Offset: lie})
			v := clock.Judge(&e)
			if wrong != 0 && !v.Doubt {
				t.Fatalf("step %d: a clock that is %v wrong is believed: %+v", i, wrong, e)
			}
			if wrong == 0 && v.Doubt && up >= 2 {
				t.Fatalf("step %d: a right clock is in doubt (%s) with %d peers for it", i, v.Reason, up)
			}
			if wrong == 0 && up == 1 && v.Doubt {
				t.Fatalf("step %d: a right clock is in doubt (%s) with a peer for it", i, v.Reason)
			}
			e.Last = clock.Reading{At: e.Now.At.Add(v.Off), Boot: "a", Up: e.Now.Up, Against: v.Against}
		}
		e.Synced, e.Machine = true, e.Now.At
		if v := clock.Judge(&e); wrong == 0 && v.Doubt && honest > 0 {
			t.Fatalf("the kernel speaks for the clock, and it is in doubt: %s", v.Reason)
		}
	})
}
