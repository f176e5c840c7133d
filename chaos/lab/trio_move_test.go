package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/placement"
)

// stand keeps one act of one region from being done, and knows when it came due.
type stand struct {
	mu      sync.Mutex
	act     string // "": none
	reached bool
}

func (s *stand) at(act string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.act, s.reached = act, false
}

func (s *stand) seams(region string) func(string, *node.Seams) {
	return func(name string, seams *node.Seams) {
		if name != region {
			return
		}
		seams.Hooks.Move = func(_ api.LogID, act string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if act != s.act {
				return nil
			}
			s.reached = true
			return &api.Error{Code: api.NotReady, Op: "stand still", Hint: "by the test"}
		}
	}
}

func (s *stand) due() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reached {
		return fmt.Errorf("%s did not come due", s.act)
	}
	return nil
}

// reseated moves the log while the seat of a region of three changes its node at an act.
func (m *moved) reseated(s *stand, region, act, target string) {
	m.Helper()
	if err := m.Linked(m.Context()); err != nil {
		m.Fatal(err)
	}
	began := time.Now()
	s.at(act)
	m.move("eu-central", fmt.Sprintf("from %s at %s", m.at("eu-central").Epoch, act), target)
	m.until("the region comes to "+act, func() error {
		if err := s.due(); err != nil {
			l := m.at("eu-central")
			return fmt.Errorf("%w: home %s, %s, %+v", err, l.Home, l.Status, l.Op)
		}
		return nil
	})
	var holder *lab.Gateway
	m.until("somebody holds the seat", func() error {
		if holder = m.Region(region).Holder(); holder == nil {
			return errors.New("nobody does")
		}
		return nil
	})
	if err := holder.Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
	s.at("")
	m.settled(target, "eu-west", "eu-central", "us-east")
	m.more(10)
	if err := holder.Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.Logf("%5.1f s: to %s, the seat changes at %s", time.Since(began).Seconds(), target, act)
}

// TestR14f_MovesOfARegionOfThree: a log is moved away from a region of three nodes and back
// to it while the region's seat changes its node in the middle of the move; the whole region
// is lost and the log forced away from it; the region comes back, and the log is forced to
// it from a home that is lost. Nothing that was acknowledged is lost but what is void by
// those words. All steps of a move are played under DOMICILE_LONG=1. It runs beside no other
// test: the seat goes wherever the machine does not come round.
func TestR14f_MovesOfARegionOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("five nodes at full pace: not with -short")
	}
	home, target := []string{"prove"}, []string{"become"}
	if os.Getenv("DOMICILE_LONG") != "" {
		home, target = []string{"fence", "prove", "follow"}, []string{"study", "cut", "freeze", "caughtup", "flip", "become", "opened"}
	}
	s := &stand{}
	m := moving(t, "", lab.Options{Trios: []string{"eu-west"}, Pace: 1, Seams: s.seams("eu-west")})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	view, third := seen(t, ctx, &producers, m.Lab, "eu-west"), seen(t, ctx, &producers, m.Lab, "eu-central")
	m.publish(ctx, &producers, "eu-west", "w")
	m.publish(ctx, &producers, "us-east", "e")
	m.more(20)
	for i := range max(len(home), len(target)) {
		m.reseated(s, "eu-west", home[i%len(home)], "us-east")
		m.reseated(s, "eu-west", target[i%len(target)], "eu-west")
	}
	m.movedWhole("eu-central")
	m.read("the reader at the region of three has all of it", view, nil, 0)
	void := m.regionLost("eu-west", "us-east")
	m.more(20)
	m.homeLost("us-east", "eu-west", void)
	m.more(20)
	m.read("the reader at the third region has all of it", third, void, 0)
	stop()
	producers.Wait()
	t.Logf("void %d; refused on the way: %v", len(void), m.refused())
	m.whole("eu-west", void)
}

// regionLost cuts a region off, stops all of it, and has the log go on elsewhere. It
// returns what is void once the region is back.
func (m *moved) regionLost(region, target string) map[string]bool {
	m.Helper()
	isolate(m.T, m.Lab, region)
	m.until("the cut is seen", func() error { return down(m.Context(), m.Lab, target, region) })
	m.more(20)
	if err := m.Region(region).Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.move(target, "lost "+region, target, forced)
	l := m.settled(target, target, "eu-central")
	m.Heal()
	if err := m.Region(region).Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.returned(region, target)
	ended := l.History[len(l.History)-1]
	void := m.beyond(ended)
	if d := m.tailOf(region); len(void) == 0 || d.Epoch != ended.Epoch || d.From != ended.End+1 || d.Count < uint64(len(void)) {
		m.Errorf("%d acknowledged orders are void, the epoch ended as %+v, and reported is %+v", len(void), ended, d)
	}
	return void
}

// homeLost stops a region that is the log's home, has the log go on in another one, and
// starts the region again. What is void then joins void.
func (m *moved) homeLost(region, target string, void map[string]bool) {
	m.Helper()
	if err := m.Region(region).Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.until("the home is lost", func() error { return down(m.Context(), m.Lab, target, region) })
	m.move(target, "lost "+region, target, forced, func(c *placement.Command) {
		c.Move.Overrides = append(c.Move.Overrides, placement.RuleTail)
	})
	l := m.settled(target, target, "eu-central")
	if err := m.Region(region).Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.returned(region, target)
	for id := range m.beyond(l.History[len(l.History)-1]) {
		void[id] = true
	}
}

// returned waits until a region that was started again is linked, and knows the log's new home.
func (m *moved) returned(region, home string) {
	m.Helper()
	if err := m.Linked(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.settled(home, region)
}
