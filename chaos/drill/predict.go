package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/policy"
	"domicile/regions"
)

// Cost is about how many real records of a topic a cut would refuse or delay, at the rate
// of the last days.
type Cost struct {
	Topic   string
	Refused uint64 // their home is on the other side of the cut
	Delayed uint64 // copies of them are; they arrive after it
	Basis   string // what it was taken from, and how much of the time that covers
}

// countedFor is how far back counts are asked for: all that is kept.
const countedFor = 8 * 24 * time.Hour

// asked is what one region's policy was asked while it counted.
type asked struct {
	region  string
	covered time.Duration
	admits  map[string]uint64 // by topic and residency
}

// Predict tells what the plan's cut would cost each topic, from how often each region's
// policy was asked whether a record may be published. A topic that nobody counted costs
// nothing that is known: its basis says so.
func Predict(ctx context.Context, f *Federation, p *Plan) ([]Cost, error) {
	var mu sync.Mutex
	var all []asked
	err := each(ctx, f.Nodes, func(ctx context.Context, n *Node) error {
		a, err := counted(ctx, n)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	resolved := f.resolve(p, "")
	costs := make([]Cost, len(resolved.Topics))
	for i := range resolved.Topics {
		costs[i] = cost(resolved, &resolved.Topics[i], all)
	}
	return costs, nil
}

// counted reads one region's counts.
func counted(ctx context.Context, n *Node) (asked, error) {
	a := asked{region: n.Region, admits: map[string]uint64{}}
	since := time.Now().Add(-countedFor)
	err := n.Admin.Traffic(ctx, &pb.TrafficRequest{SinceUnixNano: since.UnixNano()}, func(m *pb.TrafficResponse) error {
		a.covered += time.Duration(m.GetCoveredSeconds() * float64(time.Second))
		for _, one := range m.GetAsked() {
			q, err := policy.ParseQuestion(one.GetQuestion())
			if err != nil || q.Point != policy.Admit || q.Origin != n.Region {
				continue
			}
			a.admits[q.Topic+" "+residency(q.Tags)] += one.GetCount()
		}
		return nil
	})
	return a, err
}

func residency(tags []api.Tag) string {
	return (&api.Record{Tags: tags}).Tag(regions.ResidencyTag)
}

// cost is a pure function of the plan and the counts.
func cost(p *history.Plan, t *history.Topic, all []asked) Cost {
	c := Cost{Topic: t.Name}
	var basis []string
	for _, a := range all {
		if a.covered <= 0 {
			basis = append(basis, a.region+": nothing was counted")
			continue
		}
		share := float64(p.For) / float64(a.covered)
		for key, n := range a.admits {
			topic, bound, _ := strings.Cut(key, " ")
			if topic != t.Name {
				continue
			}
			expected := uint64(float64(n)*share + 0.5)
			home := homeOf(p, t, a.region, bound)
			switch {
			case home != "" && severed(p, a.region, home):
				c.Refused += expected
			case slices.ContainsFunc(p.Rests(logOf(t, home), bound), func(r string) bool { return severed(p, home, r) }):
				c.Delayed += expected
			}
		}
		basis = append(basis, fmt.Sprintf("%s: counts of %s of the last 8 days", a.region, regions.Span(a.covered)))
	}
	slices.Sort(basis)
	c.Basis = strings.Join(basis, "; ")
	return c
}

// homeOf is the region that would store a record of that residency which is handed in at
// region; "": none of the topic's logs may.
func homeOf(p *history.Plan, t *history.Topic, region, bound string) string {
	var other string
	for _, l := range t.Logs {
		if !p.MayRest(bound, l.Home) {
			continue
		}
		if l.Home == region {
			return region
		}
		if other == "" || severed(p, region, other) {
			other = l.Home
		}
	}
	return other
}

func logOf(t *history.Topic, home string) string {
	for _, l := range t.Logs {
		if l.Home == home {
			return l.Log
		}
	}
	return ""
}

// severed reports whether the plan cuts the link between two regions.
func severed(p *history.Plan, a, b string) bool {
	return a == p.Isolate && slices.Contains(p.Peers, b) || b == p.Isolate && slices.Contains(p.Peers, a)
}
