package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
)

// resident is the map of movable, with a topic whose log holds EU records beside.
const resident = movable + `  eu.orders: {writes: home, home: eu-west, mirror: [all], failover: {mode: manual, targets: [eu-central], rpo: 5s, rto: 1m, approvals: 1},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// residentPolicies are movablePolicies with EU orders, which rest in the EU only.
func residentPolicies(dir string) error {
	const catalog = `serial: 1
dimensions: {residency: [eu, us, global], class: [order]}
principal_classes: [app, operator]
topics:
  orders: {allow: [{residency: [global], class: [order]}], packages: [orders]}
  events: {allow: [{residency: [global], class: [order]}], packages: [orders]}
  eu.orders: {allow: [{residency: [eu], class: [order]}], packages: [resident]}
`
	const rules = `package residency.rules.resident

permit contains {"rule": "in_boundary", "text": "inside its boundary", "regions": data.federation.boundaries[input.tags.residency]} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}
`
	return errors.Join(movablePolicies(dir), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "resident.rego"), []byte(rules), 0o600))
}

func desk(t *testing.T, l *lab.Lab, region string) *client.Client {
	t.Helper()
	c, err := l.Region(region).Desk()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// planWithin asks for a plan until no rule refuses it.
func planWithin(t *testing.T, c *client.Client, q *pb.MoveRequest) *pb.MovePlan {
	t.Helper()
	var p *pb.MovePlan
	within(t, "a plan that no rule refuses", func() (err error) {
		if p, err = c.PlanMove(t.Context(), q); err == nil && p.GetId() == "" {
			err = fmt.Errorf("refused: %v", p.GetChecks())
		}
		return err
	})
	return p
}

// TestR14h_ADoorOffersNoMoveOutOfABoundary: on real gateways, by the raw API, for every
// region, topic and way of moving: what residency forbids is never offered and always
// refused, whatever is accepted and set aside; what is legal can be planned.
func TestR14h_ADoorOffersNoMoveOutOfABoundary(t *testing.T) {
	l := open(t, lab.Options{Policies: residentPolicies, Manifest: []byte(resident)})
	west := desk(t, l, "eu-west")
	p := planWithin(t, west, &pb.MoveRequest{Topic: "orders", Kind: "planned", Target: "us-east"})
	if p.GetHome() != "eu-west" || p.GetApprovals() != 0 || len(p.GetCopies()) != 3 {
		t.Errorf("plan: %v", p)
	}
	planWithin(t, desk(t, l, "us-east"), &pb.MoveRequest{Topic: "orders", Kind: "planned", Target: "us-east"})
	eu := planWithin(t, west, &pb.MoveRequest{Topic: "eu.orders", Kind: "planned", Target: "eu-central"})
	legal := map[string][]string{"orders": {"us-east"}, "eu.orders": {"eu-central"}, "events": nil}
	for _, region := range l.Federation.Regions() {
		c := desk(t, l, region)
		within(t, region+" knows where the logs are", func() error {
			n := 0
			err := c.WatchMoves(t.Context(), &pb.WatchMovesRequest{}, func(m *pb.MoveStates) error {
				for _, s := range m.GetLogs() {
					if n++; !slices.Equal(s.GetTargets(), legal[s.GetLog().GetTopic()]) {
						t.Errorf("%s offers %s to %v", region, s.GetLog().GetTopic(), s.GetTargets())
					}
				}
				return nil
			})
			if err == nil && n != 2 {
				err = fmt.Errorf("%d logs are placed", n)
			}
			return err
		})
		for topic, targets := range legal {
			for _, target := range l.Federation.Regions() {
				if slices.Contains(targets, target) || target == "eu-west" {
					continue
				}
				refusedEverywhere(t, c, region, topic, target)
			}
		}
	}
	// A person's consent is asked for before anything is begun.
	_, err := west.StartMove(t.Context(), &pb.StartMoveRequest{Move: &pb.MoveRequest{Topic: "eu.orders", Kind: "planned", Target: "eu-central"}, Plan: eu.GetId(), Reason: "no consent"})
	if api.CodeOf(err) != api.PlacementRefused || !strings.Contains(err.Error(), "S12") {
		t.Errorf("begun without consent: %v", err)
	}
	if _, err := west.AbortMove(t.Context(), &pb.AbortMoveRequest{Topic: "eu.orders", Plan: eu.GetId(), Reason: "nothing moves"}); api.CodeOf(err) != api.Conflict {
		t.Errorf("aborted nothing: %v", err)
	}
}

// refusedEverywhere tries to move a log to where it may not go, in every way there is.
func refusedEverywhere(t *testing.T, c *client.Client, region, topic, target string) {
	t.Helper()
	span := int64(1e18)
	for _, q := range []*pb.MoveRequest{
		{Topic: topic, Kind: "planned", Target: target},
		{Topic: topic, Kind: "forced", Target: target, AcceptSpanNano: &span, AcceptDivergence: true, Overrides: []string{"S3", "S4", "S11"}},
		{Topic: topic, Kind: "forced", Target: target, AcceptSpanNano: &span, AttestStopped: true, Overrides: []string{"S5"}},
	} {
		p, err := c.PlanMove(t.Context(), q)
		if err == nil && (p.GetId() != "" || !slices.ContainsFunc(p.GetChecks(), func(c *pb.MoveCheck) bool { return c.GetRule() == "S5" && c.GetState() == "refused" })) {
			t.Errorf("%s plans %s to %s: %v", region, topic, target, p.GetChecks())
		}
		for _, copied := range p.GetCopies() {
			if copied.GetRegion() == target && copied.GetEligible() {
				t.Errorf("%s says that %s may take %s", region, target, topic)
			}
		}
		_, err = c.StartMove(t.Context(), &pb.StartMoveRequest{Move: q, Plan: "99991130T121500Z-00", Reason: "try"})
		if code := api.CodeOf(err); code != api.HomeOutsideBoundary && code != api.PlacementRefused {
			t.Errorf("%s begins %s to %s: %v", region, topic, target, err)
		}
	}
}
