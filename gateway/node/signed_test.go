package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/policy/bundle"
	"domicile/policy/opa"
)

const signedManifest = `
version: 1
federation: example
regions: {eu-west: {link: "127.0.0.1:1"}, us-east: {link: "127.0.0.1:2"}}
boundaries: {eu: [eu-west], us: [us-east]}
topics:
  orders: {writes: local, mirror: [all], retention: {max_bytes: 64MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// signedRules lets orders of class a and b be everywhere; shut keeps those of class b in the
// region in which they were published.
func signedRules(shut bool) map[string][]byte {
	rules := `package residency.rules.orders

permit contains {"rule": "everywhere", "text": "a global order may be everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

permit contains {"rule": "in_boundary", "text": "an order rests in its boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point != "transit"

permit contains {"rule": "in_transit", "text": "an order may pass through", "regions": data.federation.regions} if input.point == "transit"

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`
	if shut {
		rules += `
forbid contains {"rule": "b_stays", "text": "orders of class b stay where they are"} if {
	input.point == "mirror_egress"
	input.tags.class == "b"
}
`
	}
	return map[string][]byte{"rules/orders.rego": []byte(rules), "catalog.yaml": []byte(`serial: 1
dimensions: {residency: [eu, us, global], class: [a, b]}
principal_classes: [app, operator]
topics: {orders: {allow: [{residency: [eu, us, global], class: [a, b]}], packages: [orders]}}
`)}
}

// signedLab is two regions that trust a lawyer and an engineer.
type signedLab struct {
	*testing.T
	*lab.Lab
	anna, ben    *bundle.Signer
	desks, doors map[string]*client.Client
}

func openSigned(t *testing.T, change ...func(region string, c *node.Config)) *signedLab {
	t.Helper()
	return openSignedAs(t, lab.Options{Pace: 0.25}, change...)
}

// openSignedAs also says at which pace, and through which seams.
func openSignedAs(t *testing.T, o lab.Options, change ...func(region string, c *node.Config)) *signedLab {
	t.Helper()
	x := &signedLab{T: t, desks: map[string]*client.Client{}, doors: map[string]*client.Client{}}
	trust := bundle.Trust{Need: []bundle.Need{{Role: "legal", Count: 1}, {Role: "engineering", Count: 1}}}
	for id, role := range map[string]string{"anna": "legal", "ben": "engineering"} {
		s, err := bundle.NewSigner(id)
		if err != nil {
			t.Fatal(err)
		}
		if id == "anna" {
			x.anna = s
		} else {
			x.ben = s
		}
		public, err := s.Public()
		if err != nil {
			t.Fatal(err)
		}
		trust.Keys = append(trust.Keys, bundle.Key{ID: id, Role: role, Public: public})
	}
	o.Manifest = []byte(signedManifest)
	o.Config = func(region string, c *node.Config) {
		c.Policy = trust
		for _, f := range change {
			f(region, c)
		}
	}
	l, err := lab.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	x.Lab = l
	x.connect()
	x.linked()
	return x
}

// linked waits until both see the link up, whatever their policies are.
func (x *signedLab) linked() {
	x.Helper()
	x.eventually("the link comes up", func() bool {
		for _, r := range x.Regions() {
			s, err := x.desks[r.Name].Status(x.Context())
			if err != nil || len(s.GetLinks()) != 1 || s.GetLinks()[0].GetState() != "up" {
				return false
			}
		}
		return true
	})
}

func (x *signedLab) connect() {
	x.Helper()
	for _, r := range x.Regions() {
		desk, err := r.Desk()
		if err != nil {
			x.Fatal(err)
		}
		door, err := r.Door(1)
		if err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() { desk.Close(); door.Close() })
		x.desks[r.Name], x.doors[r.Name] = desk, door
	}
}

// bundle is a policy that these people signed.
func (x *signedLab) bundle(m bundle.Manifest, files map[string][]byte, by ...*bundle.Signer) []byte {
	x.Helper()
	m.Federation, m.MinEngine = "example", opa.Engine()
	if m.ValidFrom.IsZero() {
		m.ValidFrom = time.Now().Add(-time.Hour)
	}
	if m.ValidUntil.IsZero() {
		m.ValidUntil = m.ValidFrom.Add(bundle.MaxValidity)
	}
	b, err := bundle.Build(m, files)
	for _, s := range by {
		if err == nil {
			err = b.Sign(s)
		}
	}
	if err != nil {
		x.Fatal(err)
	}
	return b.Bytes()
}

func (x *signedLab) policy(serial int64, shut bool) []byte {
	x.Helper()
	return x.bundle(bundle.Manifest{Serial: serial}, signedRules(shut), x.anna, x.ben)
}

func (x *signedLab) activate(region string, data []byte) (*pb.ActivatePolicyResponse, error) {
	ctx, cancel := context.WithTimeout(x.Context(), time.Minute)
	defer cancel()
	return x.desks[region].ActivatePolicy(ctx, &pb.ActivatePolicyRequest{Bundle: data})
}

// activated activates a policy that both regions have to confirm. On a busy machine the
// link may be down for a moment: then the same policy again waits for the other region.
func (x *signedLab) activated(region string, data []byte) *pb.ActivatePolicyResponse {
	x.Helper()
	r, err := x.activate(region, data)
	if err != nil {
		x.Fatal(err)
	}
	last := r
	x.eventually("every region confirms", func() bool {
		if !slices.ContainsFunc(last.GetFences(), func(f *pb.PolicyFence) bool { return !f.GetConfirmed() }) {
			return true
		}
		if last, err = x.activate(region, data); err != nil {
			x.Fatal(err)
		}
		return false
	})
	return r
}

func (x *signedLab) state(region string) *pb.PolicyStatusResponse {
	x.Helper()
	s, err := x.desks[region].PolicyStatus(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	return s
}

func (x *signedLab) eventually(what string, ok func() bool) {
	x.Helper()
	if err := lab.Poll(x.Context(), time.Minute, func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		x.Fatalf("%s: %v", what, err)
	}
}

func orderIn(class, residency, id string) api.Record {
	return api.Record{ID: id, Topic: "orders", Body: []byte("b"), Tags: []api.Tag{{Name: "class", Value: class}, {Name: "residency", Value: residency}}}
}

func (x *signedLab) publish(region, class, residency, id string) error {
	r := orderIn(class, residency, id)
	_, err := x.doors[region].Publish(x.Context(), &r)
	return err
}

// ids are what a region serves of the orders, all of it.
func (x *signedLab) ids(region string) map[string]bool {
	x.Helper()
	out := map[string]bool{}
	err := x.doors[region].Read(x.Context(), &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error {
		for _, r := range b.GetRecords() {
			out[r.GetRecord().GetId()] = true
		}
		return nil
	})
	if err != nil {
		x.Fatal(err)
	}
	return out
}

// TestR14b_OnlySignedPoliciesCount goes the way of a region that trusts people: nothing
// without a signed policy, no directory, no policy for want of a signature, the last good
// one through every refusal, the same one after a restart, none after its bytes were
// damaged.
func TestR14b_OnlySignedPoliciesCount(t *testing.T) {
	t.Parallel()
	x := openSigned(t)
	if err := x.publish("eu-west", "a", "eu", "early"); api.CodeOf(err) != api.PolicyUnavailable {
		t.Fatalf("published without a policy: %v", err)
	}
	if _, err := x.desks["eu-west"].Reload(t.Context()); api.CodeOf(err) != api.PolicyError {
		t.Fatalf("a directory was loaded: %v", err)
	}
	x.activated("eu-west", x.policy(5, false))
	if err := x.publish("eu-west", "a", "eu", "one"); err != nil {
		t.Fatal(err)
	}
	one, two := x.bundle(bundle.Manifest{Serial: 6}, signedRules(true), x.ben), x.policy(6, true)
	for name, data := range map[string][]byte{
		"one signature": one, "an old serial": x.policy(4, true), "the same serial again": x.policy(5, true),
		"expired": x.bundle(bundle.Manifest{Serial: 6, ValidFrom: time.Now().Add(-2 * time.Hour), ValidUntil: time.Now().Add(-time.Hour)}, signedRules(true), x.anna, x.ben),
		"cut off": two[:len(two)-1], "a loop of rules": x.bundle(bundle.Manifest{Serial: 6}, map[string][]byte{"catalog.yaml": signedRules(true)["catalog.yaml"], "rules/orders.rego": []byte("package residency.rules.orders\n\na if b\n\nb if a\n")}, x.anna, x.ben),
	} {
		if _, err := x.activate("eu-west", data); api.CodeOf(err) != api.PolicyError {
			t.Errorf("%s: %v", name, err)
		}
		if s := x.state("eu-west"); s.GetSerial() != 5 || s.GetPolicy().GetSerial() != 5 {
			t.Fatalf("%s: %v is active", name, s)
		}
	}
	if err := x.publish("eu-west", "a", "eu", "two"); err != nil {
		t.Error(err)
	}
	r := x.activated("eu-west", two)
	if !r.GetChanged() || x.state("us-east").GetPolicy().GetDigest() != r.GetPolicy().GetDigest() {
		t.Errorf("us-east has %v", x.state("us-east"))
	}
	if r := x.activated("eu-west", two); r.GetChanged() {
		t.Error("the same bundle changed something")
	}
	x.restart("eu-west")
	if s := x.state("eu-west"); s.GetSerial() != 6 || len(s.GetPolicy().GetSignedBy()) != 2 {
		t.Fatalf("after a restart: %v", s)
	}
	if err := x.publish("eu-west", "a", "eu", "three"); err != nil {
		t.Error(err)
	}
	x.damage("eu-west", 6)
	s := x.state("eu-west")
	if s.GetRevision() != "" || !strings.Contains(s.GetProblem(), "6.bundle") {
		t.Fatalf("after damage: %v", s)
	}
	if err := x.publish("eu-west", "a", "eu", "four"); api.CodeOf(err) != api.PolicyUnavailable {
		t.Errorf("published under a damaged policy: %v", err)
	}
	if r, err := x.activate("eu-west", two); err != nil || len(r.GetFences()) != 1 || r.GetFences()[0].GetConfirmed() || r.GetFences()[0].GetWhy() == "" {
		t.Fatalf("us-east is stopped, and %v, %v", r, err)
	}
	if err := x.publish("eu-west", "a", "eu", "four"); err != nil {
		t.Error(err)
	}
}

func (x *signedLab) restart(region string) {
	x.Helper()
	if err := x.Region(region).Restart(x.Context()); err != nil {
		x.Fatal(err)
	}
	x.connect()
	x.linked()
}

// damage flips one byte of a kept policy while its node is stopped, far from its peer: else
// it would get the policy from there again.
func (x *signedLab) damage(region string, serial int) {
	x.Helper()
	for _, r := range x.Regions() {
		if err := r.Stop(x.Context()); err != nil {
			x.Fatal(err)
		}
	}
	path := filepath.Join(x.Region(region).Data(), "policy", fmt.Sprint(serial, ".bundle"))
	data, err := os.ReadFile(path)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(path, data, 0o600)
	}
	if err == nil {
		err = x.Region(region).Start(x.Context())
	}
	if err != nil {
		x.Fatal(err)
	}
	desk, err := x.Region(region).Desk()
	if err != nil {
		x.Fatal(err)
	}
	door, err := x.Region(region).Door(1)
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { desk.Close(); door.Close() })
	x.desks[region], x.doors[region] = desk, door
}
