package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// threeKinds is movable with a third topic, whose log's home goes by a lease.
func threeKinds() []byte {
	return bytes.Replace([]byte(movable), []byte("  events:"), []byte(`  leased: {writes: home, home: eu-west, mirror: [all], failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m, fence_after: 20s},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  events:`), 1)
}

func threeKindsPolicies(dir string) error {
	err := movablePolicies(dir)
	file, e := os.OpenFile(filepath.Join(dir, "catalog.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err = errors.Join(err, e); err != nil {
		return err
	}
	_, err = file.WriteString("  leased: {allow: [{residency: [global], class: [order]}], packages: [orders]}\n")
	return errors.Join(err, file.Close())
}

// TestS05_WithoutAQuorum cuts the voters off from each other, first with the rest of the
// links whole (scenario 4), then the home off altogether. Each time the log whose home goes
// by a lease stops and says why, one that accepts two histories goes on and says that
// nobody confirmed it, one that never moves notices nothing, and no move can be planned.
// Healed, all go on.
func TestS05_WithoutAQuorum(t *testing.T) {
	t.Parallel()
	l := open(t, lab.Options{Policies: threeKindsPolicies, Manifest: threeKinds()})
	healthy := func(when string) {
		t.Helper()
		for _, topic := range []string{"leased", "orders", "events"} {
			until(t, l, "eu-west", topic, when+" "+topic, confirmed)
		}
	}
	alone := func(when string) {
		t.Helper()
		until(t, l, "eu-west", "leased", when+" stops", func(_ api.Ack, err error) bool { return api.CodeOf(err) == api.Fenced })
		until(t, l, "eu-west", "orders", when+" goes on", unconfirmed)
		if a, err := publishTo(t, l, "eu-west", "events", when+"-pinned"); err != nil || a.Unconfirmed {
			t.Errorf("%s: a log that never moves: %+v %v", when, a, err)
		}
		for _, topic := range []string{"leased", "orders"} {
			p, err := desk(t, l, "us-east").PlanMove(t.Context(), &pb.MoveRequest{Topic: topic, Kind: "planned", Target: "us-east"})
			if err != nil || p.GetId() != "" || !refusedBy(p, api.AuthorityUnreachable) {
				t.Errorf("%s: a plan for %s: %v %v", when, topic, p, err)
			}
		}
	}
	healthy("before")
	both := []regions.Direction{regions.In, regions.Out}
	cuts := map[string][]uint64{}
	for _, pair := range [][2]string{{"eu-west", "eu-central"}, {"eu-west", "us-east"}, {"us-east", "eu-central"}} {
		id, err := l.Region(pair[0]).Node().Gates().Cut(pair[1], []link.Plane{link.Council}, both, link.BlackHole, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		cuts[pair[0]] = append(cuts[pair[0]], id)
	}
	alone("voters apart")
	isolate(t, l, "eu-west")
	within(t, "the cut is seen", func() error { return down(t.Context(), l, "us-east", "eu-west") })
	alone("cut off")
	l.Heal()
	for region, ids := range cuts {
		for _, id := range ids {
			l.Region(region).Node().Gates().Heal(id)
		}
	}
	healthy("healed")
}

func refusedBy(p *pb.MovePlan, code api.Code) bool {
	for _, c := range p.GetChecks() {
		if c.GetState() == "refused" && c.GetCode() == string(code) {
			return true
		}
	}
	return false
}

// TestS09_TheLeaderDiesBeforeAndAfterTheFlip forces a log away from a home that is cut off
// and goes by a lease. The authority's leader dies while the lease is waited for (scenario 8)
// and again once the flip is decided and the target about to open: the next leader waits the
// whole lease, there is one flip, one new epoch, and no instant with two homes.
func TestS09_TheLeaderDiesBeforeAndAfterTheFlip(t *testing.T) {
	t.Parallel()
	s := &stand{}
	m := moving(t, ", fence_after: 20s", lab.Options{Seams: s.seams("us-east")})
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.publish(ctx, &producers, "us-east", "e")
	m.more(20)
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	m.otherLeads("eu-west")
	s.at("become")
	m.move("us-east", "away", "us-east", leased)
	m.until("the move waits for the lease", func() error {
		if l := m.at("eu-central"); l.Status != placement.Moving {
			return fmt.Errorf("%s", l.Status)
		}
		return nil
	})
	m.behead("eu-west")
	m.until("the target is about to open the log", s.due)
	m.behead("eu-west")
	s.at("")
	l := m.settled("us-east", "us-east", "eu-central")
	if len(l.History) != 1 || l.History[0].Proof != placement.Lapsed || l.History[0].Epoch != api.StaticEpoch("eu-west") {
		t.Errorf("the epochs ended as %+v", l.History)
	}
	m.more(20)
	m.Heal()
	m.settled("us-east", "eu-west")
	m.more(20)
	stop()
	producers.Wait()
	last, _ := m.acksOf("eu-west")
	if _, first := m.acksOf("us-east"); !last.Before(first) {
		t.Errorf("eu-west acknowledged until %s, us-east from %s on", last, first)
	}
	m.whole("us-east", m.beyond(l.History[0]))
}

// otherLeads waits until the authority is led by a region that is not out of reach, and
// names it.
func (m *moved) otherLeads(out string) (leader string) {
	m.Helper()
	m.until("another region leads", func() error {
		for _, region := range []string{"us-east", "eu-central"} {
			if s := m.authority(region); s.GetLeader() == "" || s.GetLeader() == out || !s.GetReached() {
				return fmt.Errorf("by %s: %v", region, s)
			}
		}
		leader = m.authority("eu-central").GetLeader()
		return nil
	})
	return leader
}

// behead stops the region that leads the authority and starts it again. How it went down
// does not matter here.
func (m *moved) behead(out string) {
	m.Helper()
	r := m.Region(m.otherLeads(out))
	if err := r.Stop(m.Context()); err != nil {
		m.Log(err)
	}
	if err := r.Start(m.Context()); err != nil {
		m.Fatal(err)
	}
}
