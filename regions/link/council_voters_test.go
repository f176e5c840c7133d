package link_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/link"
	"domicile/regions/placement"
)

var _ council.Lines = (*link.StreamLane)(nil)

const votingPace = regions.Pace(0.5)

// voters found an authority over the link ports of a lab.
func (l *lab) voters(t *testing.T, names ...string) map[string]*council.Voter {
	t.Helper()
	voters := map[string]*council.Voter{}
	for _, name := range names {
		dir := filepath.Join(t.TempDir(), "council")
		if err := council.Create(council.Birth{Dir: dir, Region: name, Authority: "A1", Voters: names, Actor: "anna", Reason: "first"}); err != nil {
			t.Fatal(err)
		}
		v, err := council.Open(council.Config{Dir: dir, Lines: l.regions[name].Council(), Boot: regions.SystemBootClock, Pace: votingPace, Log: slog.New(slog.DiscardHandler),
			Identity: l.identity(l.ca, identity.Region, name, time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := v.Close(ctx); err != nil {
				t.Error(name, err)
			}
		})
		voters[name] = v
	}
	return voters
}

// leader waits until one of the named voters leads and is known to all of them.
func leader(t *testing.T, voters map[string]*council.Voter, among ...string) (leads string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		leads = ""
		for _, name := range among {
			if s := voters[name].Status(); s.Leading && s.Generation == 1 {
				leads = name
			}
		}
		for _, name := range among {
			if s := voters[name].Status(); leads == "" || s.Leader != leads || s.Generation != 1 {
				return name + " follows nobody"
			}
		}
		return ""
	})
	return leads
}

func declare(t *testing.T, v *council.Voter, log string) {
	t.Helper()
	home := v.Region()
	terms := placement.Terms{Allowed: []string{"ap-south", "eu-west", "us-east"}, Targets: []string{"ap-south", "eu-west", "us-east"},
		Mode: placement.Manual, Isolation: placement.Accept, RPO: time.Minute, Digest: "d"}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := v.Submit(ctx, placement.Command{Verb: placement.Declare, ID: "declare/" + log, Log: log, Region: home, Actor: "anna", Reason: "test",
		Home: home, Expect: api.StaticEpoch(home), Terms: &terms}); err != nil {
		t.Fatal(log, err)
	}
}

func knownTo(t *testing.T, v *council.Voter, log string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		if _, ok := v.Log(log); !ok {
			return log + " is not known to " + v.Region()
		}
		return ""
	})
}

// Three regions elect a leader over their link ports. One whose links are cut commits
// nothing and the others elect another; their mirroring goes on over the same link, and
// that from the region that was cut off goes on where it stood, with nothing lost and
// nothing twice.
func TestR14g_VotersOverTheLinksAndMirrorsBesideThem(t *testing.T) {
	t.Parallel()
	names := []string{"ap-south", "eu-west", "us-east"}
	l := started(t, 1, names...)
	voters := l.voters(t, names...)
	cut := leader(t, voters, names...)
	var rest []string
	for _, name := range names {
		if name != cut {
			rest = append(rest, name)
		}
	}
	declare(t, voters[rest[0]], "before")
	target, source := rest[0], rest[1]
	sinks := map[string]*copySink{cut: {}, source: {}} // by where the log lives
	l.regions[target].mirror = func(peer string, _ regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sinks[peer], regions.MirrorReply{Cursor: regions.Cursor{Incarnation: "inc", Sequence: uint64(sinks[peer].count())}}
	}
	mirrored := func(s regions.MirrorStream, first uint64) {
		t.Helper()
		send(t, s, batch(first, 10, 100))
		for recv(t, s).Cursor.Sequence < first+9 {
		}
	}
	far, _ := openFlow(t, l, cut, target)
	near, _ := openFlow(t, l, source, target)
	mirrored(far, 1)
	mirrored(near, 1)

	held := map[string]uint64{}
	for _, peer := range rest {
		held[peer] = l.cut(cut, peer, link.Planes(), bothWays, link.BlackHole)
	}
	leader(t, voters, rest...)
	declare(t, voters[rest[0]], "meanwhile")
	knownTo(t, voters[rest[1]], "meanwhile")
	eventually(t, 30*time.Second, func() string {
		if voters[cut].Status().Leading {
			return cut + " believes that it leads"
		}
		return ""
	})
	if _, ok := voters[cut].Log("meanwhile"); ok {
		t.Error("the cut lets placements through")
	}
	mirrored(near, 11)
	l.await(cut, target, "down", isDown)

	for peer, id := range held {
		if !l.regions[cut].Gates().Heal(id) {
			t.Error("the cut from", peer, "ended by itself")
		}
	}
	knownTo(t, voters[cut], "meanwhile")
	l.await(cut, target, "up", isUp)
	leader(t, voters, names...)
	declare(t, voters[cut], "after")
	again, opened := openFlow(t, l, cut, target)
	if opened.Cursor.Sequence != 10 {
		t.Fatalf("the mirror goes on after %d, it stood at 10", opened.Cursor.Sequence)
	}
	mirrored(again, 11)
	mirrored(near, 21)
	for home, n := range map[string]int{cut: 20, source: 30} {
		for i, sequence := range sinks[home].seen {
			if sequence != uint64(i+1) || len(sinks[home].seen) != n {
				t.Fatalf("the copy of %s holds %v", home, sinks[home].seen)
			}
		}
	}
}
