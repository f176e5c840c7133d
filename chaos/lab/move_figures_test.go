package lab_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// movesMeasured is how many moves stand behind each figure.
const movesMeasured = 20

// timeline is when each act of a move came due, by region.
type timeline struct {
	mu    sync.Mutex
	began time.Time
	lines []string
	last  map[string]bool
}

func (l *timeline) seams(region string, s *node.Seams) {
	s.Hooks.Move = func(_ api.LogID, act string) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if key := region + " " + act; !l.last[key] {
			l.last[key] = true
			l.lines = append(l.lines, fmt.Sprintf("%s +%dms", key, time.Since(l.began).Milliseconds()))
		}
		return nil
	}
}

func (l *timeline) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.lines, l.last = time.Now(), nil, map[string]bool{}
}

func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, ", ")
}

func spread(took []time.Duration) string {
	s := slices.Sorted(slices.Values(took))
	at := func(p int) time.Duration { return s[(len(s)-1)*p/100].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s of %d", at(50), at(99), len(s))
}

// fill puts records of 1 KiB into the log.
func (m *moved) fill(region, name string, n int) {
	m.Helper()
	p := door(m.T, m.Lab, region, 0).NewPublisher(client.Window{Records: 2000})
	defer p.Close(context.Background())
	for i := range n {
		r := orderOf("global", fmt.Sprintf("%s-%d", name, i))
		r.Body = make([]byte, 1024)
		p.Publish(m.Context(), r, func(_ api.Ack, err error) {
			if err != nil {
				m.Error(err)
			}
		})
	}
	if err := p.Flush(m.Context()); err != nil {
		m.Fatal(err)
	}
}

// TestR14f_FiguresOfMoves prints how long producers wait for a log that is moved by plan, of
// 1,000 records and of 100,000, and how long it takes until a log whose home is gone takes
// records elsewhere after people said so; at full pace, three regions on this machine. It
// asserts nothing of time.
func TestR14f_FiguresOfMoves(t *testing.T) {
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("figures of more than 60 moves at full pace: DOMICILE_LONG=1")
	}
	for _, records := range []int{1_000, 100_000} {
		t.Run(fmt.Sprintf("planned/%d", records), func(t *testing.T) {
			steps := &timeline{}
			steps.begin()
			m := moving(t, "", lab.Options{Seams: steps.seams, Pace: 1})
			m.fill("eu-west", "fill", records)
			var producers sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			defer producers.Wait()
			defer stop()
			m.publish(ctx, &producers, "eu-west", "w")
			m.publish(ctx, &producers, "us-east", "e")
			var took, whole []time.Duration
			home, target := "eu-west", "us-east"
			for i := range movesMeasured {
				m.more(50)
				steps.begin()
				m.move("eu-central", fmt.Sprintf("move-%d", i), target)
				m.settled(target, "eu-west", "us-east")
				whole = append(whole, time.Since(steps.began))
				m.more(50)
				took = append(took, m.pauseAt(m.at(target).History[i]))
				t.Logf("%d: pause %s; %s", i, took[i], steps)
				home, target = target, home
			}
			stop()
			producers.Wait()
			t.Logf("FIGURE planned, %d records: write pause %s; begin to open %s", records, spread(took), spread(whole))
		})
	}
	t.Run("forced", forcedFigures)
}

func forcedFigures(t *testing.T) {
	steps := &timeline{}
	steps.begin()
	m := moving(t, "", lab.Options{Seams: steps.seams, Pace: 1})
	m.fill("eu-west", "fill", 1_000)
	var took []time.Duration
	home, target := "eu-west", "us-east"
	for i := range movesMeasured {
		m.until("the regions agree", func() error {
			for _, r := range m.Regions() {
				if l := m.at(r.Name); l.Home != home || l.Status != placement.Active {
					return fmt.Errorf("%s: %s %s", r.Name, l.Home, l.Status)
				}
			}
			if have, want := len(m.holds(target)), len(m.holds(home)); have != want {
				return fmt.Errorf("%s has %d records, the home %d", target, have, want)
			}
			return nil
		})
		if err := m.Cut(home, link.BlackHole, time.Hour); err != nil {
			t.Fatal(err)
		}
		m.until("the cut is seen", func() error { return down(t.Context(), m.Lab, target, home) })
		m.until("the others have a leader", func() error {
			_, err := m.submit(target, placement.Command{Verb: placement.Approve, ID: fmt.Sprint("none-", i), Op: "none", Plan: "none", Log: m.at(target).Incarnation, Expect: m.at(target).Epoch, Region: target, Actor: "anna", Reason: "a look",
				Approvals: []placement.Approval{{Actor: "anna", Role: "operator"}}})
			if code := api.CodeOf(err); code != api.Conflict {
				return err
			}
			return nil
		})
		steps.begin()
		m.move(target, fmt.Sprintf("away-%d", i), target, func(c *placement.Command) {
			forced(c)
			c.Move.Overrides = append(c.Move.Overrides, placement.RuleTail)
		})
		m.until("the new home takes a record", func() error {
			r := orderOf("global", fmt.Sprintf("first-%d", i))
			ack, err := door(t, m.Lab, target, 1).Publish(t.Context(), &r)
			if err == nil && ack.Region != target {
				err = fmt.Errorf("acknowledged by %s", ack.Region)
			}
			return err
		})
		took = append(took, time.Since(steps.began))
		t.Logf("%d: open after %s; %s", i, took[i], steps)
		m.Heal()
		home, target = target, home
	}
	t.Logf("FIGURE forced, confirm to first ack: %s", spread(took))
}

// pauseAt is how long nothing was acknowledged around the end of an epoch: between the last
// record of it and the first behind it, as producers were told.
func (m *moved) pauseAt(e placement.Ended) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last, next time.Time
	for id, ack := range m.acks {
		switch at := m.when[id]; {
		case ack.Sequence <= e.End && at.After(last):
			last = at
		case ack.Sequence > e.End && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return next.Sub(last)
}
