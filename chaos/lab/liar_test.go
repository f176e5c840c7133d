package lab_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// liar is a region that was broken into: its certificate and its lines, and a program of its
// own.
type liar struct {
	*moved
	mesh      *link.Mesh
	id        *identity.Identity
	authority string
}

// says brings a command to a region's voter, signed by the liar, and answers what it was told.
func (l *liar) says(to string, c placement.Command, forwarded bool) error {
	command, err := c.Encode()
	if err != nil {
		return err
	}
	version := l.at("eu-west").Version
	signed, err := json.Marshal(struct {
		Authority string
		Version   uint64
		Command   []byte
	}{l.authority, version, command})
	if err != nil {
		return err
	}
	digest := sha256.Sum256(append([]byte("domicile placement command 1\n"), signed...))
	proof, err := identity.SignWith(l.id, digest[:])
	if err != nil {
		return err
	}
	conn, err := l.mesh.Council().Dial(l.Context(), to)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	frame := func(v any) error {
		text, err := json.Marshal(v)
		if err == nil {
			_, err = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
		}
		return err
	}
	heard := func(into any) error {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		text := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(conn, text); err != nil {
			return err
		}
		return json.Unmarshal(text, into)
	}
	var answer struct{ Fault *struct{ Code, Hint string } }
	err = errors.Join(frame(map[string]string{"For": "ask"}), heard(&struct{}{}), frame(map[string]any{"Command": command, "Forwarded": forwarded, "Left": 10 * time.Second,
		"Proof": map[string]any{"Authority": l.authority, "Version": version, "certificates": proof.Certificates, "signature": proof.Signature}}), heard(&answer))
	if err == nil && answer.Fault != nil {
		err = &api.Error{Code: api.Code(answer.Fault.Code), Op: "lie", Hint: answer.Fault.Hint}
	}
	return err
}

// TestFA2_ARegionThatWasBrokenIntoTakesNoLog: whoever holds a region's certificate, which votes
// and may have a copy of the log, retires it, lets it go further, moves it, reports a tail of
// others and takes addresses, by hundreds at once. The log stays, records are taken, and each
// region that was lied to says by whom.
func TestFA2_ARegionThatWasBrokenIntoTakesNoLog(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{Manifest: movingTo("eu-central", "")})
	before := m.at("eu-west")
	authority, _, _ := m.node("eu-west").Placer().Authority()
	if err := m.Region("us-east").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	cert, key, err := m.Authority.Issue(identity.Region, "us-east", time.Now().Add(-time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.New(cert, key, m.Authority.CertPEM(), regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{m, hostile(t, m.Lab, "us-east"), id, authority}
	m.until("the others have a leader", func() error {
		err := l.says("eu-west", placement.Command{Verb: placement.Retire, ID: "first", Log: before.Incarnation, Expect: before.Epoch, Region: "us-east", Actor: "mallory", Reason: "r"}, false)
		if api.CodeOf(err) != api.PermissionDenied {
			return fmt.Errorf("told %w", err)
		}
		return nil
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 6 {
				for k, c := range lies(before, fmt.Sprint(i, "-", j)) {
					to := []string{"eu-west", "eu-central"}[(j+k)%2]
					if err := l.says(to, c, j%3 == 2); err == nil || api.CodeOf(err) == api.OutcomeUnknown {
						t.Errorf("%s took %q by %q: %v", to, c.Verb, c.Region, err)
					}
				}
			}
		})
	}
	wg.Wait()
	m.until("records are taken", func() error { _, err := publishTo(t, m.Lab, "eu-west", "orders", "after"); return err })
	for _, region := range []string{"eu-west", "eu-central"} {
		if now := m.at(region); now.Version != before.Version {
			t.Errorf("%s has the log as %+v", region, now)
		}
		page, err := m.Region(region).Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, line := range page {
			refused := line.Name == "domicile_peer_refused_total" && line.Labels["lane"] == "authority"
			told = told || refused && line.Labels["peer"] == "us-east" && line.Value > 20
			if refused && line.Labels["peer"] != "us-east" {
				t.Errorf("%s calls another region a liar: %+v", region, line)
			}
		}
		if !told {
			t.Errorf("%s does not say who lied", region)
		}
	}
}

func lies(of placement.Log, id string) (out []placement.Command) {
	span := time.Hour
	wide := of.Terms
	wide.Targets = []string{"eu-central", "eu-west", "us-east"}
	forged := []placement.Approval{{Actor: "alice", Role: "compliance", Signed: "forged"}, {Actor: "bob", Role: "compliance", Signed: "forged"}}
	for i, c := range []placement.Command{
		{Verb: placement.Retire},
		{Verb: placement.Alter, Terms: &wide, Approvals: forged, Plan: "p"},
		{Verb: placement.Begin, Plan: "p", Move: &placement.Move{Kind: placement.Forced, Target: "eu-central", TargetDigest: of.Terms.Digest, Divergent: true,
			Accepted: placement.Loss{Span: &span}, Overrides: []string{placement.RuleCutFirst, placement.RuleUnknown}}},
		{Verb: placement.Opened, Point: &placement.Point{End: 1}},
		{Verb: placement.Denied, Denial: api.HomeOutsideBoundary},
		{Verb: placement.Diverged, Divergence: &placement.Divergence{Epoch: of.Epoch, Region: "eu-central", From: 1, To: 1, Count: 1, Root: "r", Fate: placement.Kept}},
		{Verb: placement.Declare, Home: "us-east", Terms: &wide},
		{Verb: placement.Voters, Regions: []string{"us-east"}},
		{Verb: placement.Meet, Other: &of},
	} {
		for j, region := range []string{"us-east", "", of.Home} {
			c.ID, c.Log, c.Expect, c.Region, c.Actor, c.Reason = fmt.Sprint(id, "/", i, "/", j), of.Incarnation, of.Epoch, region, "mallory", "because"
			if c.Verb == placement.Declare {
				c.Log, c.Home, c.Expect = "squatted-"+c.ID, region, api.StaticEpoch("us-east")
			}
			out = append(out, c)
		}
	}
	return out
}
