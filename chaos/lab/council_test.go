package lab_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions/approval"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// consent is a person's signed approval.
func (m *moved) consent(name, plan, role string) string {
	m.Helper()
	cert, key, err := m.Authority.Issue(identity.Operator, name, time.Now().Add(-time.Minute), time.Hour)
	if err != nil {
		m.Fatal(err)
	}
	s, err := approval.Sign(approval.Statement{Federation: "example", Hash: plan, Role: role, Expires: time.Now().Add(time.Hour)}, cert, key)
	if err != nil {
		m.Fatal(err)
	}
	text, err := s.Encode()
	if err != nil {
		m.Fatal(err)
	}
	return text
}

// govern changes who decides, at a region's node: it looks first, and acts with the consent
// of so many people.
func (m *moved) govern(at, verb, region string, people ...string) error {
	m.Helper()
	q := &pb.ChangeAuthorityRequest{Verb: verb, Region: region, DryRun: true}
	look, err := m.desk(at).ChangeAuthority(m.Context(), q)
	if err != nil {
		return err
	}
	q.DryRun, q.Plan, q.Reason = false, look.GetPlan(), "a test"
	for _, name := range people {
		q.Approvals = append(q.Approvals, m.consent(name, look.GetPlan(), approval.Incident))
	}
	done, err := m.desk(at).ChangeAuthority(m.Context(), q)
	if err == nil && !done.GetDone() {
		m.Errorf("%s %s at %s: %v", verb, region, at, done)
	}
	return err
}

func (m *moved) authority(at string) *pb.AuthorityState {
	m.Helper()
	c, err := m.Region(at).Desk()
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	r, err := c.Placements(m.Context(), "", "")
	if err != nil {
		m.Fatal(at, ": ", err)
	}
	return r.GetAuthority()
}

// TestS19_TwoAuthoritiesAndOneWinner: us-east, cut off, founds the authority anew from what
// it knows and takes the log, while the two voters that it could not see move it as well.
// When they meet, the log is contested: every region refuses it until people say who wins.
// The loser's part is void there and named, and its voters join the winner's, one by one.
func TestS19_TwoAuthoritiesAndOneWinner(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{})
	if err := m.govern("us-east", "found", "", "ben", "eve"); api.CodeOf(err) != api.PlacementRefused {
		t.Fatalf("an authority that answers was founded anew: %v", err)
	}
	var west, east sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer west.Wait()
	defer east.Wait()
	defer stop()
	m.publish(ctx, &west, "eu-west", "w")
	m.more(20)
	isolate(t, m.Lab, "us-east")
	m.until("us-east is alone, and hears of no leader", func() error {
		_, err := m.desk("us-east").ChangeAuthority(m.Context(), &pb.ChangeAuthorityRequest{Verb: "found", DryRun: true})
		return err
	})
	m.move("eu-west", "old", "eu-central")
	m.settled("eu-central", "eu-west", "eu-central")
	m.more(20)

	for _, people := range [][]string{nil, {"ben"}, {"ben", "ben"}, {"ben", "dev"}} {
		if err := m.govern("us-east", "found", "", people...); api.CodeOf(err) != api.PlacementRefused || !strings.Contains(err.Error(), placement.RuleApprovals) {
			t.Fatalf("founded by %v: %v", people, err)
		}
	}
	if err := m.govern("us-east", "found", "", "ben", "eve"); err != nil {
		t.Fatal(err)
	}
	m.until("us-east decides alone", func() error {
		if s := m.authority("us-east"); s.GetGeneration() != 2 || s.GetLeader() != "us-east" || !s.GetReached() {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	m.move("us-east", "new", "us-east", forced)
	m.settled("us-east", "us-east")
	m.publish(ctx, &east, "us-east", "e")
	m.more(40)

	m.Heal()
	m.contested()
	m.resolve("us-east")
	m.settled("us-east", "us-east", "eu-west", "eu-central")
	m.more(40)
	m.joined("eu-west", "eu-central")
	m.more(20)
	stop()
	west.Wait()
	east.Wait()
	void := map[string]bool{}
	for _, e := range m.at("us-east").History {
		for id := range m.beyond(e) {
			void[id] = true
		}
	}
	if len(void) < 20 {
		t.Errorf("%d records of the loser are void", len(void))
	}
	t.Logf("void %d; refused on the way: %v", len(void), m.refused())
	m.whole("us-east", void)
}

// contested waits until every region knows that two claim the log, and sees that none takes
// a record of it.
func (m *moved) contested() {
	m.Helper()
	for _, region := range m.Federation.Regions() {
		m.until(region+" knows that two claim it", func() error {
			if l := m.at(region); l.Status != placement.Contested {
				return fmt.Errorf("%s in %s, %v", l.Status, l.Home, m.authority(region))
			}
			return nil
		})
		m.until(region+" says so to producers", func() error {
			ack, err := publishTo(m.T, m.Lab, region, "orders", "contested-"+region)
			if err == nil {
				m.Errorf("%s takes a contested log's record: %+v", region, ack)
			}
			if api.CodeOf(err) != api.Contested {
				return err
			}
			return nil
		})
	}
}

// joined has regions join the voters, one after the other.
func (m *moved) joined(regions ...string) {
	m.Helper()
	for _, region := range regions {
		if err := m.govern(region, "add", region); err != nil {
			m.Fatal(region, " joins: ", err)
		}
	}
	for _, region := range m.Federation.Regions() {
		m.until(region+" votes", func() error {
			if s := m.authority(region); s.GetRole() != "voter" || len(s.GetVoting()) != 3 || s.GetTrouble() != "" || len(s.GetRivals()) > 0 {
				return fmt.Errorf("%v", s)
			}
			return nil
		})
	}
}

// resolve has the claim of a region stand.
func (m *moved) resolve(home string) {
	m.Helper()
	l := m.at(home)
	e := l.Epoch
	if l.Home != home {
		e = l.Rival.Epoch
	}
	q := &pb.ResolveContestRequest{Topic: "orders", Winner: wire.EpochToProto(e), Home: home, DryRun: true}
	look, err := m.desk(home).ResolveContest(m.Context(), q)
	if err != nil {
		m.Fatal(err)
	}
	q.DryRun, q.Plan, q.Reason = false, look.GetPreviewPlan(), "it has the newer orders"
	if _, err := m.desk(home).ResolveContest(m.Context(), q); err != nil {
		m.Fatal(err)
	}
}
