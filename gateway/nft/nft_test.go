package nft

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/regions"
	"domicile/regions/link"
)

// TestR14i_AFilterCutsWhatItCanTellApart: the rules for each fault and direction, and what is
// refused rather than cut with more than was asked for.
func TestR14i_AFilterCutsWhatItCanTellApart(t *testing.T) {
	datadriven.RunTest(t, "testdata/cuts.txt", func(t *testing.T, d *datadriven.TestData) string {
		where := book{}
		var open []link.End
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			if words[0] == "open" {
				open = append(open, link.End{Peer: words[1], Local: netip.MustParseAddrPort(words[2]), Remote: netip.MustParseAddrPort(words[3])})
				continue
			}
			for _, a := range words[1:] {
				where[words[0]] = append(where[words[0]], netip.MustParseAddrPort(a))
			}
		}
		cut := link.Cut{Mode: link.BlackHole, Dirs: []regions.Direction{regions.In, regions.Out}}
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "reject":
				cut.Mode = link.Reject
			case "in", "out":
				cut.Dirs = []regions.Direction{regions.Direction(a.Key)}
			}
		}
		var peers []string
		for _, a := range d.CmdArgs {
			if a.Key == "cut" {
				peers = a.Vals
			}
		}
		var all []pair
		for _, peer := range peers {
			pairs, err := where.apart("eu-west", peer, peers)
			if err == nil {
				err = seen(pairs, open)
			}
			if err != nil {
				return err.Error()
			}
			all = append(all, pairs...)
		}
		if d.Cmd == "renew" {
			return renewal("T", cut, all, 3*time.Second)
		}
		return table("T", cut, all, 3*time.Second)
	})
}

// TestR14i_AFilterThatMissesALinkIsNotRenewed: the seat of a region of three comes to a node
// whose own connections leave from another address than the manifest's.
func TestR14i_AFilterThatMissesALinkIsNotRenewed(t *testing.T) {
	cut := &held{cuts: []link.Cut{{Peer: "us-east"}}, pairs: []pair{{netip.MustParseAddrPort("10.0.0.1:7"), netip.MustParseAddrPort("10.0.1.1:7")}}, ends: time.Hour}
	open := func(peer, local, remote string) []link.End {
		return []link.End{{Peer: peer, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}}
	}
	for _, fine := range [][]link.End{nil, open("us-east", "10.0.0.1:5555", "10.0.1.1:7"), open("ap-south", "10.9.9.9:5555", "10.0.2.1:7")} {
		if err := cut.missed(fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	var said strings.Builder
	f := &Filter{held: cut, Config: Config{Self: "eu-west", Boot: func() time.Duration { return 0 }, Logger: slog.New(slog.NewTextHandler(&said, nil)),
		Open: func() []link.End { return open("us-east", "10.9.9.9:5555", "10.0.1.1:7") }}}
	if f.RenewFor(time.Minute) || !strings.Contains(said.String(), "10.9.9.9:5555") {
		t.Errorf("renewed; said %q", said.String())
	}
}

// TestR14i_AFilterOnlyTakesAway: whatever is asked for, a table has no verdict but the
// fault's, and leaves all other packets to the host's own rules.
func TestR14i_AFilterOnlyTakesAway(t *testing.T) {
	both := []pair{{netip.MustParseAddrPort("10.0.0.1:7"), netip.MustParseAddrPort("10.0.1.1:7")}, {netip.MustParseAddrPort("[fd00::1]:7"), netip.MustParseAddrPort("[fd00::2]:7")}}
	for _, mode := range []link.Mode{link.BlackHole, link.Reject} {
		for _, dirs := range [][]regions.Direction{{regions.In}, {regions.Out}, {regions.In, regions.Out}} {
			rules := 0
			for line := range strings.Lines(table("T", link.Cut{Mode: mode, Dirs: dirs}, both, time.Second)) {
				line = strings.TrimSpace(line)
				switch {
				case strings.Contains(line, " hook "):
					if !strings.HasSuffix(line, "priority -10; policy accept;") {
						t.Errorf("%s %v: %s", mode, dirs, line)
					}
				case strings.Contains(line, "saddr"):
					rules++
					if verdict := map[link.Mode]string{link.BlackHole: " drop", link.Reject: " reject with tcp reset"}[mode]; !strings.HasSuffix(line, verdict) || !strings.Contains(line, "@") {
						t.Errorf("%s %v: %s", mode, dirs, line)
					}
				case strings.Contains(line, "accept") && !strings.Contains(line, "_accepted"), strings.Contains(line, "flush"), strings.Contains(line, "jump"):
					t.Errorf("%s %v: %s", mode, dirs, line)
				}
			}
			if rules != 4*len(dirs) {
				t.Errorf("%s %v: %d rules", mode, dirs, rules)
			}
		}
	}
}
