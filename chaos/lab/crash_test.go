package lab_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"sync"
	"testing"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/placement"
)

// stopAt keeps one act at one region from being done, and tells when it was due.
type stopAt struct {
	mu          sync.Mutex
	region, act string
	due         chan struct{} // closed when it was
}

func (s *stopAt) set(region, act string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.region, s.act, s.due = region, act, make(chan struct{})
	return s.due
}

func (s *stopAt) seams(name string, n *node.Seams) {
	n.Hooks.Move = func(_ api.LogID, act string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.due == nil || name != s.region || act != s.act {
			return nil
		}
		select {
		case <-s.due:
		default:
			close(s.due)
		}
		return &api.Error{Code: api.NotReady, Op: "stop", Hint: "by the test"}
	}
}

func (s *stopAt) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = nil
}

// TestR14e_RestartBeforeEveryStep moves a log between two regions, each time with one of
// them, or a third one, started anew right before one of its steps, and producers going on
// all the while. Every move comes to its end, and nothing is lost, doubled or out of place.
// What a kill does within a step is tested where the step is: at the store, at the voters.
// A third of the points is played, all of them under DOMICILE_LONG=1.
func TestR14e_RestartBeforeEveryStep(t *testing.T) {
	t.Parallel()
	points := []struct{ role, act string }{
		{"home", "fence"}, {"home", "prove"}, {"home", "follow"}, {"third", "learn"},
		{"target", "cut"}, {"target", "freeze"}, {"target", "caughtup"}, {"target", "flip"}, {"target", "become"}, {"target", "opened"},
	}
	if os.Getenv("DOMICILE_LONG") == "" {
		seed := fnv.New32()
		fmt.Fprint(seed, os.Getenv("DOMICILE_SEED"))
		third := int(seed.Sum32() % 3)
		kept := points[:0:0]
		for i, p := range points {
			if i%3 == third {
				kept = append(kept, p)
			}
		}
		points = kept
	}
	var stops stopAt
	m := moving(t, "", lab.Options{Seams: stops.seams})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.publish(ctx, &producers, "us-east", "e")
	m.more(20)
	home, target := "eu-west", "us-east"
	for i, p := range points {
		region := map[string]string{"home": home, "target": target, "third": "eu-central"}[p.role]
		t.Logf("%s in %s before %s", p.role, region, p.act)
		due := stops.set(region, p.act)
		m.move("eu-central", fmt.Sprintf("move-%d", i), target)
		select {
		case <-due:
		case <-t.Context().Done():
			t.Fatalf("%s before %s: it was never due", p.role, p.act)
		}
		if err := m.Region(region).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		stops.release()
		if err := m.Region(region).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := m.settled(target, "eu-west", "eu-central", "us-east")
		if last := l.History[len(l.History)-1]; last.How != placement.ByMove || last.Proof != placement.Marker {
			t.Errorf("%s before %s: the epoch ended as %+v", p.role, p.act, last)
		}
		m.more(10)
		home, target = target, home
	}
	stop()
	producers.Wait()
	m.whole(home, nil)
	if !slices.ContainsFunc(points, func(p struct{ role, act string }) bool { return p.role == "target" }) {
		t.Error("no step of a target was played")
	}
}
