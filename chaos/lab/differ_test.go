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
	"domicile/gateway/node"
	"domicile/regions"
)

const twoRegions = `version: 1
federation: example
regions: {eu-west: {link: "127.0.0.1:7401"}, us-east: {link: "127.0.0.1:7402"}}
boundaries: {eu: [eu-west], us: [us-east]}
topics:
  orders: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// stays writes a policy that lets orders cross. If strict, those of class secret don't: they
// leave for no copy, arrive as none, and an EU one is not taken from the United States.
func stays(dir string, serial int, strict bool) error {
	catalog := fmt.Sprintf(`serial: %d
dimensions: {residency: [eu, us, global], class: [order, secret]}
principal_classes: [app, operator]
topics: {orders: {allow: [{residency: [eu, us, global], class: [order, secret]}], packages: [orders]}}
`, serial)
	rules := `package residency.rules.orders

permit contains {"rule": "boundary", "text": "in its boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point != "transit"

permit contains {"rule": "global", "text": "everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

permit contains {"rule": "transit", "text": "through memory", "regions": data.federation.regions} if input.point == "transit"

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`
	if strict {
		rules += `
forbid contains {"rule": "no_copy", "text": "secrets are not copied"} if {
	input.tags.class == "secret"
	input.point in {"mirror_egress", "mirror_ingress"}
}

forbid contains {"rule": "not_from_there", "text": "an EU secret is published in the EU"} if {
	input.tags.class == "secret"
	input.tags.residency == "eu"
	input.point == "admit"
	input.origin.region == "us-east"
}
`
	}
	return errors.Join(os.MkdirAll(filepath.Join(dir, "rules"), 0o700), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(rules), 0o600))
}

// apart is two regions, each with a policy directory of its own.
type apart struct {
	*testing.T
	*lab.Lab
	dir   string
	doors map[string]*client.Client
	desks map[string]*client.Client
}

func openApart(t *testing.T) *apart {
	a := &apart{T: t, dir: t.TempDir(), doors: map[string]*client.Client{}, desks: map[string]*client.Client{}}
	for _, r := range []string{"eu-west", "us-east"} {
		if err := stays(filepath.Join(a.dir, r), 1, false); err != nil {
			t.Fatal(err)
		}
	}
	a.Lab = open(t, lab.Options{Manifest: []byte(twoRegions), Pace: 1, Config: func(region string, c *node.Config) { c.Policies = filepath.Join(a.dir, region) }})
	for _, r := range a.Regions() {
		desk, err := r.Desk()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = desk.Close() })
		a.doors[r.Name], a.desks[r.Name] = door(t, a.Lab, r.Name, 1), desk
	}
	return a
}

// says puts a policy in force in one region, and waits until the other one has heard of it.
func (a *apart) says(region string, serial int, strict bool) {
	a.Helper()
	if err := stays(filepath.Join(a.dir, region), serial, strict); err != nil {
		a.Fatal(err)
	}
	within(a.T, "a policy comes into force", func() error { return a.Region(region).Node().Reload(a.Context()) })
	other := "eu-west"
	if region == other {
		other = "us-east"
	}
	within(a.T, other+" hears of it", func() error {
		for _, p := range a.status(other).GetPolicies() {
			if p.GetRegion() == region && p.GetSerial() == int64(serial) {
				return nil
			}
		}
		return fmt.Errorf("not of serial %d", serial)
	})
}

func (a *apart) status(region string) *pb.StatusResponse {
	a.Helper()
	s, err := a.desks[region].Status(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return s
}

// names asks whether the status of a region names the other one's policy, with what to do.
func (a *apart) names(region, advice string) {
	a.Helper()
	within(a.T, "status in "+region, func() error {
		s := a.status(region)
		if advice != "" && !slices.ContainsFunc(s.GetAdvice(), func(line string) bool { return strings.HasPrefix(line, advice) }) {
			return fmt.Errorf("it advises %q, not %q", s.GetAdvice(), advice)
		}
		if advice == "" && strings.Contains(s.GetVerdict()+fmt.Sprint(s.GetAdvice()), "policy") {
			return fmt.Errorf("it still speaks of policies: %s, %q", s.GetVerdict(), s.GetAdvice())
		}
		return nil
	})
}

// troubled asks whether the status of a region names a log that waits for a policy.
func (a *apart) troubled(region string) {
	a.Helper()
	within(a.T, "the status of "+region+" names the log that waits", func() error {
		s := a.status(region)
		for _, x := range s.GetTroubles() {
			if regions.LagState(x.GetState()) == regions.LagPolicySkew && s.GetLevel() == "degraded" {
				return nil
			}
		}
		return fmt.Errorf("%s: %v", s.GetVerdict(), s.GetTroubles())
	})
}

// secret publishes an order until policy or disk has answered: a busy machine loses links.
func (a *apart) secret(region, residency, id string) (err error) {
	a.Helper()
	r := orderOf(residency, id)
	r.Tags[0].Value = "secret"
	within(a.T, id+" is decided", func() error {
		_, err = a.doors[region].Publish(a.Context(), &r)
		if code := api.CodeOf(err); code == api.OutcomeUnknown || code == api.HomeUnreachable {
			return err
		}
		return nil
	})
	return err
}

func (a *apart) acked(region, residency, id string) {
	a.Helper()
	if err := a.secret(region, residency, id); err != nil {
		a.Fatalf("%s in %s: %v", id, region, err)
	}
}

// refused asks that a record is refused with a code, by the policy of a region.
func (a *apart) refused(region, residency, id string, code api.Code, by string) {
	a.Helper()
	err := a.secret(region, residency, id)
	e, ok := err.(*api.Error)
	if !ok || e.Code != code || e.Code.Stored() != api.StoredNo || code == api.ResidencyDenied && !strings.HasPrefix(e.Revision, by) {
		a.Errorf("%s in %s: want %s under %s, got %v", id, region, code, by, err)
	}
}

// copied waits until the copy of an origin's orders in the other region has come to a
// sequence, in a state.
func (a *apart) copied(origin, target string, cursor uint64, state regions.LagState) {
	a.Helper()
	within(a.T, fmt.Sprintf("the copy in %s is at %d, %s", target, cursor, state), func() error {
		err := errors.New("no copy")
		return errors.Join(a.desks[target].Lag(a.Context(), &pb.LagRequest{Topic: "orders"}, func(m *pb.LagResponse) error {
			for _, l := range m.GetLogs() {
				if l.GetTarget() != target || l.GetLog().GetSlot() != origin {
					continue
				}
				if err = nil; l.GetCursor() != cursor || regions.LagState(l.GetState()) != state {
					err = fmt.Errorf("it is at %d, %s", l.GetCursor(), l.GetState())
				}
			}
			return nil
		}), err)
	})
}

// TestR14b_WhileTwoPoliciesDifferTheStricterCounts publishes at both doors while one region
// has the stricter policy, as the newer one and as the older one, at either end. What the
// stricter forbids rests in no second region and is taken from no other one. What is denied
// by a policy that is older than the one which let it go is not refused for good: it waits,
// and is judged anew. Status says which region has to follow.
func TestR14b_WhileTwoPoliciesDifferTheStricterCounts(t *testing.T) {
	t.Parallel()
	a := openApart(t)
	a.acked("eu-west", "global", "before")
	a.acked("us-east", "eu", "before-forwarded")
	a.copied("eu-west", "us-east", 2, regions.LagCaughtUp) // the second is withheld: it may not rest there at all

	a.says("eu-west", 2, true) // the home's is newer and stricter
	a.names("us-east", "bring the policy of us-east up to date")
	a.names("eu-west", "bring the policy of us-east up to date")
	a.acked("eu-west", "global", "origin-newer")
	a.refused("us-east", "eu", "home-newer", api.ResidencyDenied, "2-")
	a.acked("us-east", "global", "target-newer")
	a.copied("us-east", "eu-west", 1, regions.LagCaughtUp) // without it
	a.copied("eu-west", "us-east", 3, regions.LagCaughtUp)

	a.says("us-east", 3, false) // the home's is older and stricter
	a.names("us-east", "bring the policy of eu-west up to date")
	a.names("eu-west", "bring the policy of eu-west up to date")
	a.acked("eu-west", "global", "origin-older")
	a.refused("us-east", "eu", "home-older", api.PolicySkew, "")
	a.acked("us-east", "global", "target-older")
	a.copied("us-east", "eu-west", 1, regions.LagPolicySkew)
	a.troubled("eu-west")
	a.copied("eu-west", "us-east", 4, regions.LagCaughtUp)

	a.says("eu-west", 3, false) // both have the same
	a.names("eu-west", "")
	a.names("us-east", "")
	a.copied("us-east", "eu-west", 2, regions.LagCaughtUp) // judged anew
	a.acked("us-east", "eu", "home-older")                 // sent again, under its id
	a.copied("eu-west", "us-east", 5, regions.LagCaughtUp)

	a.says("us-east", 4, true) // the door's and the target's is newer and stricter
	a.refused("us-east", "eu", "door-newer", api.ResidencyDenied, "4-")
	a.says("eu-west", 5, false) // and older and stricter
	a.refused("us-east", "eu", "door-older", api.ResidencyDenied, "4-")
	a.acked("eu-west", "global", "waits")
	a.copied("eu-west", "us-east", 5, regions.LagPolicySkew)
	a.troubled("us-east")
	a.names("us-east", "bring the policy of us-east up to date")
	a.says("us-east", 5, false)
	a.copied("eu-west", "us-east", 6, regions.LagCaughtUp)

	both := []string{"eu-west", "us-east"}
	want := map[string][]string{"before": both, "before-forwarded": {"eu-west"}, "origin-newer": {"eu-west"}, "origin-older": {"eu-west"},
		"target-newer": {"us-east"}, "target-older": both, "home-older": {"eu-west"}, "waits": both}
	found := stored(t, a.Lab)
	for id := range found {
		if want[id] == nil {
			t.Errorf("%s was refused and rests in %v", id, found[id])
		}
	}
	for id, where := range want {
		for _, region := range both {
			if n := len(found[id][region]); n > 1 || n == 1 != slices.Contains(where, region) {
				t.Errorf("%s rests in %v, want %v", id, found[id], where)
			}
		}
	}
}
