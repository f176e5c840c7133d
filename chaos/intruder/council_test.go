package intruder_test

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions/council"
	"domicile/regions/placement"
)

func statusOf(code api.Code, hint string) *spb.Status {
	return wire.StatusFromError(&api.Error{Code: code, Op: hint, Field: hint, Region: hint, Value: hint, Hint: hint})
}

// policies are the lies of what law is.
func policies() []lie {
	kept := func(name, rule, mute string, data func(*telling) []byte) lie {
		return lie{lane: "policy", name: name, rule: rule, mute: mute, tell: func(t *telling) {
			b := data(t)
			t.now(func(s *script) { s.kept = b })
			t.hellosShown(func(_ *telling, h *pb.PeerHello) { h.SignedPolicy, h.PolicySigners = 1<<40, "forged" })
			_ = lab.Pass(t.ctx, 2*pace.Of(time.Second))
		}}
	}
	const old = "a region that takes no signed policies does not ask"
	return []lie{
		kept("noise", "what is not signed is not read", old, func(t *telling) []byte { return t.bytes(5000) }),
		kept("eight megabytes", "a policy is bounded", old, func(*telling) []byte { return make([]byte, 8<<20) }),
		kept("nothing", "a policy is there", old, func(*telling) []byte { return nil }),
		{lane: "policy", name: "parts from nowhere", rule: "a policy is asked for by what it has", tell: func(t *telling) {
			a, err := t.lane(t.ctx, t.victim, "control")
			if err == nil {
				defer a.close()
				err = t.greet(t.ctx, a)
			}
			for _, q := range []*pb.PolicyRequest{{Serial: math.MinInt64, Offset: math.MaxUint32, Limit: math.MaxUint32}, {Serial: 1}, {Serial: math.MaxInt64, Limit: math.MaxUint32}} {
				if err == nil {
					_, err = a.client.Policy(t.ctx, q)
					t.hears(err)
					err = nil
				}
			}
			t.hears(err)
		}},
	}
}

// greeting is what a connection of the placement authority begins with.
type greeting struct {
	For        string `json:",omitempty"`
	Authority  string `json:",omitempty"`
	Generation uint32 `json:",omitempty"`
	After      uint64 `json:",omitempty"`
	Born       string `json:",omitempty"`
	Roll       string `json:",omitempty"`
	Led        bool   `json:",omitempty"`
	Reads      byte   `json:",omitempty"`
	Refused    any    `json:",omitempty"`
}

// councils are the lies of where logs are.
func councils() []lie {
	command := func(name, rule string, make func(*telling, placement.Log) placement.Command) lie {
		return lie{lane: "council", name: name, rule: rule, tell: func(t *telling) { t.commands(make) }}
	}
	const home, parties, leader = "only its home says that of a log", "only home and targets say that of a log", "only the leader says that"
	var lies []lie
	for _, as := range []string{traitor, "", west, central} {
		say := func(verb, rule string, make func(*telling, placement.Log) placement.Command) {
			lies = append(lies, command(verb+" as "+map[string]string{"": "nobody"}[as]+as, rule, func(t *telling, l placement.Log) placement.Command {
				c := make(t, l)
				c.Region = as
				return c
			}))
		}
		say("declare a log of another", home, func(t *telling, l placement.Log) placement.Command {
			terms := l.Terms
			terms.Address = ""
			return placement.Command{Verb: placement.Declare, Log: fmt.Sprint("squat", t.rng.Uint64()), Home: west, Expect: api.StaticEpoch(west), Terms: &terms}
		})
		say("widen", home, func(_ *telling, l placement.Log) placement.Command {
			terms := widened(l.Terms)
			return placement.Command{Verb: placement.Alter, Log: l.Incarnation, Expect: l.Epoch, Terms: &terms, Approvals: forgedApprovals()}
		})
		say("take by force", parties, func(_ *telling, l placement.Log) placement.Command { return takeover(l, traitor) })
		say("move to where it may go", parties, func(_ *telling, l placement.Log) placement.Command { return takeover(l, central) })
		say("retire", home, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Retire, Log: l.Incarnation, Expect: l.Epoch}
		})
		say("abort", parties, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Abort, Log: l.Incarnation, Expect: l.Epoch, Op: "op"}
		})
		if as == traitor {
			lies[len(lies)-1].mute = "of a move that has ended one that took part in it says it, too"
		}
		say("opened", home, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Opened, Log: l.Incarnation, Expect: l.Epoch, Point: &placement.Point{End: 1}}
		})
		say("denied", home, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Denied, Log: l.Incarnation, Expect: l.Epoch, Denial: api.ResidencyDenied}
		})
		say("diverged", parties, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Diverged, Log: l.Incarnation, Expect: l.Epoch, Divergence: &placement.Divergence{}}
		})
		say("meet", leader, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Meet, Log: l.Incarnation, Expect: l.Epoch, Other: &l}
		})
		say("resolve", leader, func(_ *telling, l placement.Log) placement.Command {
			return placement.Command{Verb: placement.Resolve, Log: l.Incarnation, Expect: l.Epoch, Home: traitor, Winner: l.Epoch}
		})
		say("voters", leader, func(*telling, placement.Log) placement.Command {
			return placement.Command{Verb: placement.Voters, Regions: []string{traitor}}
		})
		say("found", leader, func(*telling, placement.Log) placement.Command {
			return placement.Command{Verb: placement.Found, Founding: &placement.Founding{Authority: "x"}}
		})
		say("renew", leader, func(*telling, placement.Log) placement.Command {
			return placement.Command{Verb: placement.Renew, Regions: honest()}
		})
	}
	return append(lies, chambers(home)...)
}

// chambers are the lies that are no commands.
func chambers(home string) []lie {
	rawly := func(name, rule string, tell func(*telling)) lie {
		return lie{lane: "council", name: name, rule: rule, tell: tell}
	}
	return []lie{
		rawly("a storm of takeovers", home, (*telling).storms),
		rawly("on behalf of others", "nobody but voters speaks for others", (*telling).forwarded),
		rawly("leases of others", "a region renews its own leases", func(t *telling) { t.asks("renew", map[string]any{"Renew": t.victim}) }),
		rawly("votes", "voters are changed by their regions", func(t *telling) {
			for _, brought := range []bool{false, true} {
				t.asks("a vote less", map[string]any{"Forwarded": brought, "Change": council.VoterChange{Region: other(t.victim), Remove: true, Actor: "mallory", Reason: "because", Approvals: forgedApprovals()}})
			}
		}),
		rawly("random frames", "no frame ends a process", (*telling).randomFrames),
		{lane: "council", name: "random frames of voters", rule: "no frame ends a process", mute: "raft ends the line, and does not say whose", tell: (*telling).randomVotes},
		rawly("frames of 4 GiB", "what is claimed is not believed", func(t *telling) {
			c, err := t.council.Dial(t.ctx, t.victim)
			if err == nil {
				_, err = c.Write(append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...))
				_ = c.Close()
			}
			t.hears(err)
		}),
		rawly("a later founding", "a founding is shown by its voters", func(t *telling) {
			t.greets(greeting{For: "greet", Authority: "rival", Generation: 1 << 30, After: 1 << 60, Led: true, Reads: 255})
		}),
		rawly("answers of a later founding", "a founding is shown by its voters", func(t *telling) {
			t.chairs(func(greeting) any {
				return greeting{Authority: "rival", Generation: 1 << 30, After: 1 << 60, Led: true, Reads: 255}
			})
		}),
		rawly("a later founding that has the log", "a founding is shown by its voters", (*telling).founds),
		rawly("votes that were given away", "a vote is given by the voters", func(t *telling) {
			t.chairs(func(g greeting) any {
				g.For, g.After = "", 1<<60
				g.Refused = map[string]any{"Code": api.PermissionDenied, "Field": "voter", "Hint": "the region's vote was given to another voter"}
				return g
			})
		}),
		rawly("answers that move the cursor", "text is printable and short", func(t *telling) {
			t.chairs(func(g greeting) any {
				g.Authority, g.Roll = t.word(), t.word()
				g.Refused = map[string]any{"Code": t.word(), "Field": t.word(), "Value": t.word(), "Hint": t.word(), "Region": t.word()}
				return g
			})
		}),
		rawly("greetings that move the cursor", "text is printable and short", func(t *telling) {
			for _, purpose := range []string{"greet", "vote", "follow", "ask", t.word()} {
				t.greets(greeting{For: purpose, Authority: t.word(), Born: t.word(), Roll: t.word(), Generation: 1})
			}
		}),
	}
}

func widened(t placement.Terms) placement.Terms {
	t.Allowed, t.Targets = []string{central, west, traitor}, []string{central, traitor}
	return t
}

func forgedApprovals() []placement.Approval {
	return []placement.Approval{{Actor: "alice", Role: "compliance", Signed: "forged"}, {Actor: "bob", Role: "compliance", Signed: "forged"}}
}

func takeover(l placement.Log, target string) placement.Command {
	span := time.Hour
	return placement.Command{Verb: placement.Begin, Log: l.Incarnation, Expect: l.Epoch, Plan: "p", Move: &placement.Move{Kind: placement.Forced, Target: target, TargetDigest: l.Terms.Digest,
		Divergent: true, Accepted: placement.Loss{Span: &span}, Overrides: []string{placement.RuleCutFirst, placement.RuleUnknown}}}
}

// view is what the authority tells whoever follows it.
type view struct {
	authority string
	log       placement.Log // that may move
}

// follows reads what the authority says to all, from the victim's voter.
func (t *telling) follows() (v view, ok bool) {
	m, err := t.world.regions[west].desk.Placements(t.ctx, "catalog", "")
	if err == nil && len(m.GetLogs()) == 0 {
		err = errors.New("no log is placed")
	}
	var c net.Conn
	if err == nil {
		c, _, err = t.dials(greeting{For: "follow"})
	}
	if err != nil {
		t.hears(err)
		return v, false
	}
	defer c.Close()
	var d placement.Delta
	s := &placement.State{}
	if err = readFramed(c, &d); err == nil {
		err = s.Follow(d)
	}
	t.hears(err)
	v.authority = d.Authority
	v.log, ok = s.Log(m.GetLogs()[0].GetIncarnation())
	return v, ok
}

// commands asks the authority for what the liar may not ask: bare, signed in its own name, and
// signed and brought as a voter brings what others asked it.
func (t *telling) commands(make func(*telling, placement.Log) placement.Command) {
	v, ok := t.follows()
	if !ok {
		return
	}
	c := make(t, v.log)
	c.ID, c.Actor, c.Reason = fmt.Sprint("forged/", t.rng.Uint64()), "mallory", "because"
	data, err := c.Encode()
	if err != nil {
		t.hears(err)
		return
	}
	for _, q := range []map[string]any{{"Command": data}, {"Command": data, "Proof": t.proof(v, data)}, {"Command": data, "Proof": t.proof(v, data), "Forwarded": true}} {
		t.asks(string(c.Verb), q)
	}
}

// proof signs a command in the liar's own name.
func (t *telling) proof(v view, command []byte) any {
	text, err := json.Marshal(struct {
		Authority string
		Version   uint64
		Command   []byte
	}{v.authority, v.log.Version, command})
	sum := sha256.Sum256(append([]byte("domicile placement command 1\n"), text...))
	var signature []byte
	if err == nil {
		signature, err = t.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	t.hears(err)
	return map[string]any{"Authority": v.authority, "Version": v.log.Version, "certificates": [][]byte{t.certificate}, "signature": signature}
}

// storms asks for hundreds at once, so that one passes between two others.
func (t *telling) storms() {
	v, ok := t.follows()
	if !ok {
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	for g := range 8 {
		seed := t.rng.Uint64()
		all.Go(func() {
			for i := range 30 {
				c := takeover(v.log, traitor)
				if g%4 == 0 {
					terms := widened(v.log.Terms)
					terms.RPO += time.Duration(1+i+100*g) * time.Millisecond
					c = placement.Command{Verb: placement.Alter, Log: v.log.Incarnation, Expect: v.log.Epoch, Terms: &terms, Approvals: forgedApprovals()}
				}
				c.Region, c.ID, c.Actor, c.Reason = traitor, fmt.Sprint("storm/", seed, "/", i), "mallory", "because"
				if data, err := c.Encode(); err == nil {
					t.asks(string(c.Verb), map[string]any{"Command": data, "Proof": t.proof(v, data)})
				}
			}
		})
	}
}

// dials opens a connection of the authority with a greeting, and answers it.
func (t *telling) dials(g greeting) (c net.Conn, answer greeting, err error) {
	c, err = t.council.Dial(t.ctx, t.victim)
	if err != nil {
		return nil, answer, err
	}
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err = c.Write(framed(g)); err == nil {
		err = readFramed(c, &answer)
	}
	if err != nil {
		return nil, answer, errors.Join(err, c.Close())
	}
	return c, answer, nil
}

func readFramed(r io.Reader, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	text := make([]byte, min(binary.BigEndian.Uint32(head[:]), 1<<20))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (t *telling) greets(g greeting) {
	c, answer, err := t.dials(g)
	if err == nil {
		if answer.Refused != nil {
			err = fmt.Errorf("%v", answer.Refused)
		}
		_ = c.Close()
	}
	t.hears(err)
}

// asks puts a request as it is.
func (t *telling) asks(what string, q map[string]any) {
	c, _, err := t.dials(greeting{For: "ask", Generation: 1})
	if err != nil {
		t.hears(err)
		return
	}
	defer c.Close()
	q["Left"] = 2 * time.Second
	var answer struct{ Fault any }
	if _, err = c.Write(framed(q)); err == nil {
		err = readFramed(c, &answer)
	}
	if t.hears(err); err == nil {
		if answer.Fault == nil {
			t.takes("a request as it is: %s", what)
		}
		t.hears(fmt.Errorf("%.200v", answer.Fault))
	}
}

// forwarded says that it speaks for another region, as a voter may for who asked it.
func (t *telling) forwarded() {
	v, ok := t.follows()
	for _, c := range []placement.Command{{Verb: placement.Retire, Log: v.log.Incarnation, Expect: v.log.Epoch}, takeover(v.log, central)} {
		c.ID, c.Actor, c.Reason, c.Region = fmt.Sprint("forged/", t.rng.Uint64()), "mallory", "because", west
		if data, err := c.Encode(); err == nil && ok {
			t.asks(string(c.Verb), map[string]any{"Command": data, "Forwarded": true})
			t.asks(string(c.Verb), map[string]any{"Command": data, "Forwarded": true, "Proof": t.proof(v, data)})
		}
	}
}

func (t *telling) randomFrames() {
	for range 20 {
		c, err := t.council.Dial(t.ctx, t.victim)
		if err != nil {
			t.hears(err)
			return
		}
		b := t.bytes(800)
		if t.rng.IntN(2) == 0 {
			b = append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		}
		_, _ = c.Write(b)
		_ = c.Close()
	}
}

// randomVotes says noise where the voters speak their own protocol.
func (t *telling) randomVotes() {
	_, mine, err := t.dials(greeting{For: "greet"})
	for range 10 {
		var c net.Conn
		if err == nil {
			c, _, err = t.dials(greeting{For: "vote", Authority: mine.Authority, Generation: mine.Generation, After: mine.After, Reads: mine.Reads, Roll: mine.Roll})
		}
		if err != nil {
			t.hears(err)
			return
		}
		b := t.bytes(2000)
		b[0] %= 6
		_, _ = c.Write(b)
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = io.CopyN(io.Discard, c, 1<<16)
		t.hears(err)
		err = c.Close()
	}
}

// founds says that there is a later authority, and, to whoever follows it, that the log which
// may move is the liar's.
func (t *telling) founds() {
	v, ok := t.follows()
	if !ok {
		return
	}
	rival := greeting{Authority: "rival", Generation: 2, After: 10, Led: true, Reads: 1}
	l := v.log
	l.Home, l.Epoch, l.Version = traitor, api.Epoch{Term: 2, Counter: l.Epoch.Counter + 1, Issuer: "rival"}, 9
	d := placement.Delta{Authority: rival.Authority, Generation: rival.Generation, Version: rival.After, Logs: []placement.Log{l}}
	t.chairs(func(g greeting) any { return rival }, d)
	rival.For = "greet"
	t.greets(rival)
	_ = lab.Pass(t.ctx, 4*pace.Of(time.Second))
}

// chairs answers as the liar's voter would, which others call all the while: whoever does so is
// the one that was lied to.
func (t *telling) chairs(answer func(greeting) any, then ...any) {
	heard := make(chan string, 1)
	t.now(func(s *script) {
		s.chair = func(c net.Conn, who string) {
			var g greeting
			if err := readFramed(c, &g); err == nil {
				_, _ = c.Write(framed(answer(g)))
				for _, value := range then {
					_, _ = c.Write(framed(value))
				}
				select {
				case heard <- who:
				default:
				}
				_, _ = io.CopyN(io.Discard, c, 1<<16) // until the other side has had enough
			}
		}
	})
	t.after(func() { t.now(func(s *script) { s.chair = nil }) })
	for range 3 {
		select {
		case t.victim = <-heard:
		case <-t.ctx.Done():
			t.heard = "nobody called"
			return
		}
	}
}
