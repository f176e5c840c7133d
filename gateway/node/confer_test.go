package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/gateway/node"
	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions/fabric"
)

// signers are people with a key each, and those whom a node trusts.
type signers struct {
	anna, ben, carl *bundle.Signer
	trust           bundle.Trust // anna for legal and ben for engineering; carl may sign too
}

func newSigners(t *testing.T) *signers {
	t.Helper()
	s := &signers{trust: bundle.Trust{Need: []bundle.Need{{Role: "legal", Count: 1}, {Role: "engineering", Count: 1}}}}
	for _, one := range []struct {
		id, role string
		to       **bundle.Signer
	}{{"anna", "legal", &s.anna}, {"ben", "engineering", &s.ben}, {"carl", "legal", &s.carl}} {
		k, err := bundle.NewSigner(one.id)
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.Public()
		if err != nil {
			t.Fatal(err)
		}
		*one.to = k
		s.trust.Keys = append(s.trust.Keys, bundle.Key{ID: one.id, Role: one.role, Public: public})
	}
	return s
}

// signedTrio is a region of three that takes signed policies only.
type signedTrio struct {
	*trio
	*signers
	files map[string][]byte
}

func newSignedTrio(t *testing.T) *signedTrio {
	t.Helper()
	r := &signedTrio{trio: newTrio(t), signers: newSigners(t)}
	var err error
	if r.files, err = opa.Files(r.config.Policies); err != nil {
		t.Fatal(err)
	}
	for name, c := range r.configs {
		c.Policy = r.trust
		r.configs[name] = c
	}
	return r
}

func (r *signedTrio) bundle(serial int64, by ...*bundle.Signer) []byte {
	r.t.Helper()
	from := time.Now().Add(-time.Hour)
	b, err := bundle.Build(bundle.Manifest{Federation: "three", Serial: serial, ValidFrom: from, ValidUntil: from.Add(bundle.MaxValidity), MinEngine: opa.Engine()}, r.files)
	if err != nil {
		r.t.Fatal(err)
	}
	return signed(r.t, b, by...)
}

func signed(t *testing.T, b *bundle.Bundle, by ...*bundle.Signer) []byte {
	t.Helper()
	for _, s := range by {
		if err := b.Sign(s); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// activate activates a policy at one node and gives what it says of the others, by name.
func (r *signedTrio) activate(at string, data []byte) map[string]*pb.PolicyFence {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	m, err := r.desk(at).ActivatePolicy(ctx, &pb.ActivatePolicyRequest{Bundle: data})
	if err != nil {
		r.t.Fatalf("at %s: %v", at, err)
	}
	out := map[string]*pb.PolicyFence{}
	for _, f := range m.GetFences() {
		out[f.GetGateway()] = f
	}
	return out
}

func (r *signedTrio) policyAt(name string) *pb.PolicyStatusResponse {
	r.t.Helper()
	s, err := r.desk(name).PolicyStatus(r.t.Context())
	if err != nil {
		r.t.Fatalf("at %s: %v", name, err)
	}
	return s
}

// text is a log that may be read while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), part)
}

// TestR14b_ThreeNodesHaveOneSignedPolicy: one activation at any node of a region of three is
// one at all of them, and confirmed means all that are heard; a node that was away gets what
// it missed, also signatures; and one that may not take it opens no log of the region.
func TestR14b_ThreeNodesHaveOneSignedPolicy(t *testing.T) {
	t.Parallel()
	r := newSignedTrio(t)
	r.run(names[:]...)
	holder := r.holder()
	first, second := r.others(holder)[0], r.others(holder)[1]

	fences := r.activate(first, r.bundle(1, r.anna, r.ben))
	if len(fences) != 2 || !fences[holder].GetConfirmed() || !fences[second].GetConfirmed() {
		t.Errorf("the others: %v", fences)
	}
	for _, name := range names {
		if s := r.policyAt(name); s.GetSerial() != 1 {
			t.Errorf("%s has %d in force: %s", name, s.GetSerial(), s.GetProblem())
		}
	}
	rec := euOrder("under-1")
	r.soon(func() error {
		ack, err := dial(t, r.configs[second].Listen.Door).Publish(t.Context(), &rec)
		if err == nil && !strings.HasPrefix(ack.PolicyRevision, "1-") {
			t.Errorf("acknowledged under %s", ack.PolicyRevision)
		}
		return err
	})

	r.halt(second)
	two := r.bundle(2, r.anna, r.ben)
	fences = r.activate(first, two)
	if !fences[holder].GetConfirmed() || fences[second].GetConfirmed() || !strings.Contains(fences[second].GetWhy(), "not heard") {
		t.Errorf("the others, one is down: %v", fences)
	}
	b, err := bundle.Read(two)
	if err != nil {
		t.Fatal(err)
	}
	r.activate(holder, signed(t, b, r.carl))
	r.run(second)
	r.soon(func() error {
		for _, name := range names {
			if s := r.policyAt(name); s.GetSerial() != 2 || len(s.GetPolicy().GetSignedBy()) != 3 {
				return fmt.Errorf("%s has %d in force, signed by %v", name, s.GetSerial(), s.GetPolicy().GetSignedBy())
			}
		}
		return nil
	})

	r.halt(second)
	r.activate(first, r.bundle(3, r.anna, r.ben))
	r.refusesSeat(second)
}

// refusesSeat starts a node that does not trust who signed what its siblings have, and
// believes that it holds the seat.
func (r *signedTrio) refusesSeat(name string) {
	r.t.Helper()
	c := r.configs[name]
	c.Policy = newSigners(r.t).trust
	log, changed := &text{}, make(chan struct{})
	seat := func() (fabric.Seat, <-chan struct{}) { return fabric.Seat{Node: name, Mine: true, Term: 99}, changed }
	n, err := node.New(c, r.f, node.Seams{Identity: r.identity, Dev: true, Pace: 0.25, Policies: shared, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Hooks: node.Hooks{Seat: func(node.Seats) node.Seats { return seat }}})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := n.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.nodes[name] = n
	r.mu.Unlock()
	r.soon(func() error {
		if !log.has("start policy: agree on policy: NOT_READY") || !log.has("has a newer policy that is not active here") {
			return errors.New("nothing was said of a newer policy")
		}
		return nil
	})
	if n.Gates() != nil {
		r.t.Error("it opened the region's logs under an older policy")
	}
}

// TestR14b_SignaturesThatComeLaterTravel: a region that asks for one person more takes the
// policy as soon as that person has signed it elsewhere, where nobody knows the key, and
// what was signed later is on disk there too.
func TestR14b_SignaturesThatComeLaterTravel(t *testing.T) {
	t.Parallel()
	people := newSigners(t)
	carl := people.trust.Keys[2]
	carl.Role = "audit"
	x := openSigned(t, func(region string, c *node.Config) {
		if region == "us-east" {
			c.Policy.Keys, c.Policy.Need = append(slices.Clone(c.Policy.Keys), carl), append(slices.Clone(c.Policy.Need), bundle.Need{Role: "audit", Count: 1})
		}
	})
	data := x.policy(1, false)
	r, err := x.activate("eu-west", data)
	if err != nil || len(r.GetFences()) != 1 || r.GetFences()[0].GetConfirmed() || x.state("us-east").GetSerial() != 0 {
		t.Fatalf("without the third person: %v %v", r, err)
	}
	b, err := bundle.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	x.activated("eu-west", signed(t, b, people.carl))
	if by := x.state("us-east").GetPolicy().GetSignedBy(); len(by) != 3 || !slices.Contains(by, "carl (audit)") {
		t.Errorf("in us-east it is signed by %v", by)
	}
	kept, err := os.ReadFile(filepath.Join(x.Region("eu-west").Data(), "policy", "1.bundle"))
	if err != nil || !bytes.Contains(kept, []byte("signature carl ")) {
		t.Errorf("what eu-west keeps does not have the later signature, %v", err)
	}
}
