package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/gateway/node"
	"domicile/regions/placement"
)

// moved is three regions that share one log that may move, orders@eu-west.
type moved struct {
	*testing.T
	*lab.Lab
	id api.LogID

	mu      sync.Mutex
	began   time.Time
	entries []ledger.Entry
	acks    map[string]api.Ack // by event id
	when    map[string]time.Time
	told    map[api.Code]int // refusals and doubts
}

func moving(t *testing.T, failover string, o lab.Options) *moved {
	t.Helper()
	if o.Policies == nil {
		o.Policies = boundedPolicies("global")
	}
	if o.Manifest == nil {
		o.Manifest = movingTo("eu-central, us-east", failover)
	}
	m := &moved{T: t, Lab: open(t, o), id: api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: api.HomeSlot},
		began: time.Now(), acks: map[string]api.Ack{}, when: map[string]time.Time{}, told: map[api.Code]int{}}
	m.until("the log is placed everywhere", func() error {
		for _, r := range m.Regions() {
			if l := m.at(r.Name); l.Status != placement.Active {
				return fmt.Errorf("%s: %q", r.Name, l.Status)
			}
		}
		return nil
	})
	return m
}

// movingTo is the manifest of a log in eu-west that may move to these regions.
func movingTo(targets, failover string) []byte {
	return fmt.Appendf(nil, `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders: {writes: home, home: eu-west, mirror: [all], failover: {mode: manual, targets: [%s], rpo: 5s, rto: 2m%s},
    on_home_loss: {producers: refuse, consumers: {mode: read_copy, max_staleness: 1h}, owner: o, text: t}}
`, targets, failover)
}

func (m *moved) until(what string, ask func() error) {
	m.Helper()
	if err := lab.Poll(m.Context(), time.Minute, ask); err != nil {
		m.warnings()
		m.Fatal(what, ": ", err)
	}
}

// warnings shows the last of what each region's node warned of.
func (m *moved) warnings() {
	for _, r := range m.Regions() {
		for _, g := range r.Gateways() {
			m.warned(r.Name+g.Name, g.Dir)
		}
	}
}

func (m *moved) warned(who, dir string) {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "node.log"))
	if err != nil {
		m.Log(err)
		return
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, line)
		}
	}
	m.Logf("%s:\n%s", who, strings.Join(lines[max(0, len(lines)-24):], ""))
}

func (m *moved) node(region string) *node.Node { return m.Region(region).Node() }

// at is the log's placement as a region knows it.
func (m *moved) at(region string) placement.Log {
	l, _ := m.node(region).Placer().Log(m.id)
	return l
}

func (m *moved) submit(region string, c placement.Command) (placement.Result, error) {
	ctx, cancel := context.WithTimeout(m.Context(), 20*time.Second)
	defer cancel()
	return m.node(region).Placer().Submit(ctx, c)
}

// move begins a move, said by a region that is up.
func (m *moved) move(by, op, target string, change ...func(*placement.Command)) {
	m.Helper()
	l := m.at(by)
	c := placement.Command{Verb: placement.Begin, ID: op, Log: l.Incarnation, Expect: l.Epoch, Region: by, Actor: "anna", Reason: "a test", Plan: "plan-" + op,
		Move: &placement.Move{Kind: placement.Planned, Target: target, HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}}
	for _, f := range change {
		f(&c)
	}
	m.until("the move is begun", func() error {
		_, err := m.submit(by, c)
		if err != nil && api.CodeOf(err) != api.AuthorityUnreachable { // it has lost its leader, perhaps
			m.Fatal(err)
		}
		return err
	})
}

// forced has the home go on while it is cut off, and accepts whatever is lost by it.
func forced(c *placement.Command) {
	span := time.Hour
	c.Move.Kind, c.Move.Divergent, c.Move.HomeDigest = placement.Forced, true, ""
	c.Move.Accepted.Span, c.Move.Overrides = &span, []string{placement.RuleCutFirst, placement.RuleUnknown}
}

// settled waits until the log is open at a region, by the word of all that are named.
func (m *moved) settled(home string, by ...string) placement.Log {
	m.Helper()
	m.until("the log is open in "+home, func() error {
		for _, region := range by {
			l := m.at(region)
			if l.Home == home && l.Status == placement.Active {
				continue
			}
			step := placement.Step("")
			if l.Op != nil {
				step = l.Op.Step
			}
			return fmt.Errorf("%s says: home %s, %s, step %q", region, l.Home, l.Status, step)
		}
		return nil
	})
	return m.at(by[0])
}

// again is how long a producer waits before it sends an order again.
const again = 2 * time.Millisecond

// publish sends global orders at a region's door until ctx ends, one after the other, and
// sends each again with its id until it is acknowledged.
func (m *moved) publish(ctx context.Context, wg *sync.WaitGroup, region, name string) {
	c := door(m.T, m.Lab, region, 1)
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			r := orderOf("global", fmt.Sprintf("%s-%d", name, i))
			for ctx.Err() == nil {
				asked := time.Now()
				try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
				ack, err := c.Publish(try, &r)
				cancel()
				if m.note(r.ID, asked, ack, err) {
					break
				}
				_ = lab.Pass(ctx, again) // a door that is down answers at once
			}
		}
	})
}

func (m *moved) note(id string, asked time.Time, ack api.Ack, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := ledger.Entry{ID: id, Begin: asked.Sub(m.began), End: time.Since(m.began)}
	e.Answer(ack, err, time.Now())
	m.entries = append(m.entries, e)
	if err != nil {
		m.told[api.CodeOf(err)]++
		return false
	}
	m.acks[id], m.when[id] = ack, time.Now()
	return true
}

// refused is what producers were told but for acks.
func (m *moved) refused() map[api.Code]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.told)
}

func (m *moved) acked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.acks)
}

func (m *moved) more(n int) {
	m.Helper()
	want := m.acked() + n
	m.until(fmt.Sprintf("%d more orders are acknowledged", n), func() error {
		if have := m.acked(); have < want {
			return fmt.Errorf("%d of %d; refused: %v", have, want, m.refused())
		}
		return nil
	})
}

// holds is what a region has of the log, by sequence.
func (m *moved) holds(region string) map[uint64]*pb.ReadRecord {
	m.Helper()
	out := map[uint64]*pb.ReadRecord{}
	err := door(m.T, m.Lab, region, 0).Read(m.Context(), &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error {
		for _, r := range b.GetRecords() {
			if out[r.GetSequence()] != nil {
				m.Errorf("%s gives sequence %d twice", region, r.GetSequence())
			}
			out[r.GetSequence()] = r
		}
		return nil
	})
	if err != nil {
		m.Fatal(region, ": ", err)
	}
	return out
}

// whole holds what every region has against the home and against what producers were
// told: each acknowledged order once, at its place, everywhere. void names those that an
// accepted forced move left behind; they are nowhere.
func (m *moved) whole(home string, void map[string]bool) {
	m.Helper()
	m.until("the copies are where the home is", func() error {
		want := len(m.holds(home))
		for _, r := range m.Regions() {
			if r.Node() == nil {
				continue
			}
			if have := len(m.holds(r.Name)); have != want {
				return fmt.Errorf("%s has %d records, the home %d", r.Name, have, want)
			}
		}
		return nil
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.Regions() {
		if r.Node() == nil {
			continue
		}
		places := map[string]uint64{}
		for seq, rec := range m.holds(r.Name) {
			id := rec.GetRecord().GetId()
			if places[id] != 0 {
				m.Errorf("%s holds %s twice: %d and %d", r.Name, id, places[id], seq)
			}
			places[id] = seq
		}
		for id, ack := range m.acks {
			switch {
			case void[id]:
				if at := places[id]; at != 0 {
					m.Errorf("%s holds %s at %d, which is void", r.Name, id, at)
				}
			case places[id] != ack.Sequence:
				m.Errorf("%s was acknowledged at %d of epoch %s and is at %d in %s", id, ack.Sequence, ack.Epoch, places[id], r.Name)
			}
		}
	}
	m.judged(home)
}

// judged holds what producers were told against where the epochs ended. m.mu is held.
func (m *moved) judged(home string) {
	m.Helper()
	var ends []invariant.Ended
	for _, e := range m.at(home).History {
		ends = append(ends, invariant.Ended{Log: m.id.String(), Epoch: e.Epoch.String(), End: e.End, Forced: e.How == placement.ByForce && e.Proof != placement.Marker || e.How == placement.AsLoser, Overlap: e.Proof == placement.Diverges || e.How == placement.AsLoser})
	}
	shelf := ledger.Shelf{Region: home, Log: m.id.String(), Home: true}
	for seq, r := range m.holds(home) {
		shelf.Items = append(shelf.Items, ledger.Item{Log: shelf.Log, Sequence: seq, ID: r.GetRecord().GetId()})
	}
	for _, v := range invariant.Moves(m.entries, ends, []ledger.Shelf{shelf}, nil) {
		m.Error(v)
	}
}

// read waits until a reader was given every acknowledged order, and none but void ones more or
// less than once; nor, of those that became void before their producer had an answer and were
// sent again, more than unanswered.
func (m *moved) read(what string, view func() []string, void map[string]bool, unanswered uint64) {
	m.Helper()
	m.until(what, func() error {
		have := map[string]int{}
		for _, id := range view() {
			have[id]++
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		twice := uint64(0)
		for id := range m.acks {
			switch {
			case have[id] == 1 || void[id]:
			case have[id] == 2 && twice < unanswered:
				twice++
			default:
				return fmt.Errorf("%s was read %d times", id, have[id])
			}
		}
		return nil
	})
}

// pause is the longest time between two acks' ingest times in the log.
func (m *moved) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	acks := make([]api.Ack, 0, len(m.acks))
	for _, a := range m.acks {
		acks = append(acks, a)
	}
	slices.SortFunc(acks, func(a, b api.Ack) int { return cmp.Compare(a.Sequence, b.Sequence) })
	longest := time.Duration(0)
	for i := 1; i < len(acks); i++ {
		longest = max(longest, acks[i].IngestTime.Sub(acks[i-1].IngestTime))
	}
	return longest
}

// movedWhole holds what a region knows of the log's past against moves that lose nothing.
func (m *moved) movedWhole(by string) {
	m.Helper()
	for _, e := range m.at(by).History {
		if !e.EndKnown || e.How != placement.ByMove || e.Lost == nil || *e.Lost.Span != 0 || e.Comparison() != placement.ComparedSame {
			m.Errorf("an epoch ended as %+v", e)
		}
	}
}

// TestR14e_PlannedSwitchoverLosesNothing moves a log to another region and back while two
// regions' producers publish, and a reader follows it: nothing is lost, doubled or out of
// place.
func TestR14e_PlannedSwitchoverLosesNothing(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	view := seen(t, ctx, &producers, m.Lab, "us-east")
	m.publish(ctx, &producers, "eu-west", "w")
	m.publish(ctx, &producers, "us-east", "e")
	m.more(30)
	m.move("eu-west", "there", "us-east")
	l := m.settled("us-east", "eu-west", "eu-central", "us-east")
	m.more(30)
	m.move("us-east", "back", "eu-west")
	m.settled("eu-west", "eu-west", "eu-central", "us-east")
	m.more(30)
	t.Logf("history %+v; longest pause %s; refused on the way: %v", l.History, m.pause(), m.refused())
	m.read("the reader has all of it", view, nil, 0)
	stop()
	producers.Wait()
	m.whole("eu-west", nil)
	m.movedWhole("eu-central")
}
