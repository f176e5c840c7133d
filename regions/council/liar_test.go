package council_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// say writes a frame of the council's lines as a program that is none of ours would.
func say(conn net.Conn, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	return err
}

func hear(conn net.Conn, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// liar is a region that was broken into: its certificate, and a program of its own.
type liar struct {
	*world
	name, authority string
	line            *testLines
}

func (w *world) liar(name string) *liar {
	return &liar{w, name, w.seats[w.leader()].Status().Authority, w.line(name, false)}
}

// ask says a command to a voter, and returns the code that it was answered with. by signs it,
// whatever it says; nil: nobody does.
func (l *liar) ask(at string, c placement.Command, forwarded bool, by identity.Signer) (api.Code, string, error) {
	var proof any
	if by != nil {
		data, err := c.Encode()
		if err != nil {
			return "", "", err
		}
		proof = council.Prove(by, l.authority, 1, data)
	}
	return l.bring(at, c, forwarded, proof)
}

func (l *liar) bring(at string, c placement.Command, forwarded bool, proof any) (api.Code, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	conn, err := l.line.Dial(ctx, at)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = conn.Close() }()
	data, err := c.Encode()
	if err != nil {
		return "", "", err
	}
	var greeting struct{}
	var answer struct{ Fault *struct{ Code, Hint string } }
	q := map[string]any{"Command": data, "Proof": proof, "Forwarded": forwarded, "Left": 10 * time.Second}
	for _, do := range []func() error{
		func() error { return conn.SetDeadline(time.Now().Add(patient)) },
		func() error { return say(conn, map[string]any{"For": "ask"}) },
		func() error { return hear(conn, &greeting) },
		func() error { return say(conn, q) },
		func() error { return hear(conn, &answer) },
	} {
		if err := do(); err != nil {
			return "", "", err
		}
	}
	if answer.Fault == nil {
		return "", "", nil
	}
	return api.Code(answer.Fault.Code), answer.Fault.Hint, nil
}

// TestFA2_NobodySpeaksForAnothersLog: a region that was broken into, with a vote or without
// one, says everything that there is to say of another region's log, in its own name, in
// nobody's and in others', to the leader and to a voter that forwards, hundreds of times at
// once. The log stays as it was.
func TestFA2_NobodySpeaksForAnothersLog(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	terms := movable(placement.Accept)
	terms.Allowed, terms.Targets = []string{"ap-south", "eu-west"}, []string{"ap-south", "eu-west"}
	w.must("eu-west", declared("L", "eu-west", terms))
	w.until("all have it", func() bool {
		for _, v := range w.seats {
			if _, ok := v.Log("L"); !ok {
				return false
			}
		}
		return true
	})
	before, _ := w.seats["eu-west"].Log("L")
	var wg sync.WaitGroup
	for _, who := range []string{"us-east", "sa-north"} {
		l := w.liar(who)
		for i := range 8 {
			wg.Go(func() {
				for j := range 8 {
					for k, c := range l.lies(before, fmt.Sprint(who, i, "-", j)) {
						at, forwarded := w.names[(i+j+k)%3], who == "us-east" && j%2 == 0
						if code, hint, err := l.ask(at, c, forwarded, l.line.id); err != nil || code == "" {
							t.Errorf("%s took %q by %q from %s: %v %s", at, c.Verb, c.Region, who, err, hint)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for _, who := range []string{"us-east", "sa-north"} {
		// One that leads takes its own lies to itself, and who hears no leader judges nothing.
		if w.refusals(who, regions.NotTheirs) < 100 {
			t.Errorf("of 576 lies of %s are counted: %v", who, w.refused.Totals())
		}
	}
	if n := w.refusals("eu-west", "") + w.refusals("ap-south", ""); n > 0 {
		t.Errorf("%d lies are told under the names of those that did not lie: %v", n, w.refused.Totals())
	}
	w.must("eu-west", declared("M", "eu-west", terms)) // what was said before is decided by now
	for name, v := range w.seats {
		if l, ok := v.Log("L"); !ok || l.Version != before.Version {
			t.Errorf("%s has the log as %+v", name, l)
		}
	}
}

// refusals counts what was not taken of a region, for a reason; "": for any.
func (w *world) refusals(of string, why regions.Refusal) (n uint64) {
	for _, r := range w.refused.Totals() {
		if r.Peer == of && r.Lane == regions.LaneAuthority && (why == "" || r.Reason == why) {
			n += r.Count
		}
	}
	return n
}

// lies are what a region says that it may not of another's log.
func (l *liar) lies(of placement.Log, id string) (out []placement.Command) {
	span := time.Hour
	wide := of.Terms
	wide.Allowed, wide.Targets = []string{"ap-south", "eu-west", "us-east"}, []string{"ap-south", "us-east"}
	forged := []placement.Approval{{Actor: "alice", Role: "compliance", Signed: "forged"}, {Actor: "bob", Role: "compliance", Signed: "forged"}}
	for i, c := range []placement.Command{
		{Verb: placement.Retire},
		{Verb: placement.Alter, Terms: &wide, Approvals: forged},
		{Verb: placement.Begin, Plan: "p", Move: &placement.Move{Kind: placement.Forced, Target: "ap-south", TargetDigest: of.Terms.Digest, Divergent: true,
			Accepted: placement.Loss{Span: &span}, Overrides: []string{placement.RuleCutFirst, placement.RuleUnknown}}},
	} {
		for j, region := range []string{l.name, "", of.Home} {
			c.ID, c.Log, c.Expect, c.Region, c.Actor, c.Reason = fmt.Sprint(id, "/", i, j), of.Incarnation, of.Epoch, region, "mallory", "because"
			out = append(out, c)
		}
	}
	return out
}

// TestFA2_AProofHoldsForItsCommandOnly: what a region has signed is brought again by another,
// with other words, for another state of the log, and for another authority.
func TestFA2_AProofHoldsForItsCommandOnly(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	liar := w.liar(w.other(leader)) // a voter, that forwards
	at, home := w.seats[leader], w.id("eu-west")
	placed := func() placement.Log { l, _ := at.Log("L"); return l }
	w.until("the leader has it", func() bool { return placed().Version > 0 })
	altered := func(id string, rpo time.Duration) placement.Command {
		terms := movable(placement.Accept)
		terms.RPO = rpo
		return placement.Command{Verb: placement.Alter, ID: id, Log: "L", Expect: placed().Epoch, Region: "eu-west", Actor: "anna", Reason: "test", Terms: &terms}
	}
	authority := at.Status().Authority
	proven := func(c placement.Command, authority string) any {
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return council.Prove(home, authority, placed().Version, data)
	}
	first := altered("first", 2*time.Minute)
	proof := proven(first, authority)
	if code, hint, err := liar.bring(leader, first, true, proof); code != "" || err != nil {
		t.Fatalf("a voter brings what eu-west signed: %v %s %v", code, hint, err)
	}
	second := altered("second", 3*time.Minute)
	for name, c := range map[string]struct {
		what  placement.Command
		proof any
		code  api.Code
	}{
		"another command under the proof": {second, proof, api.PermissionDenied},
		"under no proof":                  {second, nil, api.VersionMismatch},
		"of another authority":            {second, proven(second, "A0"), api.NotReady},
	} {
		if code, hint, err := liar.bring(leader, c.what, true, c.proof); code != c.code || err != nil {
			t.Errorf("%s: %v %s %v", name, code, hint, err)
		}
	}
	late := proven(second, authority)
	w.until("eu-west has heard of the first", func() bool { l, _ := w.seats["eu-west"].Log("L"); return l.Version == placed().Version })
	w.must("eu-west", altered("third", 4*time.Minute))
	if code, hint, err := liar.bring(leader, second, true, late); code != api.Conflict || err != nil {
		t.Errorf("what was signed for another version of the log: %v %s %v", code, hint, err)
	}
	if code, hint, err := liar.bring(leader, first, true, proof); code != "" || err != nil {
		t.Errorf("the same once more is answered as it was: %v %s %v", code, hint, err)
	}
	if rpo := placed().Terms.RPO; rpo != 4*time.Minute {
		t.Errorf("the log is declared with %s", rpo)
	}
	if n := w.refusals(liar.name, ""); n != 1 {
		t.Errorf("%d of its words are counted as lies, one was", n)
	}
}

// TestFA2_AnOlderProgramIsToldSo: without a proof nothing is taken, and an honest region's
// older program is no liar.
func TestFA2_AnOlderProgramIsToldSo(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	leader := w.leader()
	older := w.liar(w.other(leader))
	own, others := movable(placement.Accept), movable(placement.Accept)
	code, hint, err := older.ask(leader, declared("L", older.name, own), false, nil)
	if code != api.VersionMismatch || !strings.Contains(hint, "start the newer one there") || err != nil {
		t.Errorf("%v %q %v", code, hint, err)
	}
	if n := w.refusals(older.name, ""); n != 0 {
		t.Errorf("it is called a liar %d times", n)
	}
	if code, _, _ := older.ask(leader, declared("M", leader, others), false, nil); code != api.PermissionDenied || w.refusals(older.name, "") != 1 {
		t.Errorf("in another's name: %v", code)
	}
}
