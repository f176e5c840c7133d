package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions/fabric"
	"domicile/regions/link"
)

// policyTalk is the kind of call by which the nodes of a region speak of signed policies.
const policyTalk = "policy"

const policyPart = 1 << 20 // bytes of a policy in one answer

// At pace 1.
const (
	talkWithin  = 2 * time.Second  // for one answer that brings or activates nothing
	handWithin  = 50 * time.Second // for the holder of the seat to verify, judge and activate
	agreeWithin = 5 * time.Second  // for the first word of a sibling
	agreeAgain  = 100 * time.Millisecond
)

// siblings is what this node knows of the signed policies of the region's other nodes.
type siblings struct {
	mu    sync.Mutex
	words map[string]*pb.PolicyWord // by node, as it last said
	wake  chan struct{}             // one of them said something else
}

func newSiblings() *siblings {
	return &siblings{words: map[string]*pb.PolicyWord{}, wake: make(chan struct{}, 1)}
}

// hear notes what a sibling says.
func (s *siblings) hear(node string, w *pb.PolicyWord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.words[node]
	if s.words[node] = w; old == nil || wordOf(old) != wordOf(w) || old.GetFenced() != w.GetFenced() {
		s.stir()
	}
}

// stir has the node confer with its siblings at once.
func (s *siblings) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// said is what a sibling last said; nil: nothing in this run.
func (s *siblings) said(node string) *pb.PolicyWord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.words[node]
}

func wordOf(w *pb.PolicyWord) word { return word{w.GetSerial(), w.GetSigners()} }

func (n *Node) policyWord() *pb.PolicyWord {
	kept, fenced := n.policies.told()
	return &pb.PolicyWord{Serial: kept.serial, Signers: kept.signers, Fenced: fenced}
}

// others are the region's other nodes, as this one sees them; none in a region of one node.
func (n *Node) others() []fabric.Member {
	var out []fabric.Member
	for _, m := range n.fabric.Members() {
		if !m.Self {
			out = append(out, m)
		}
	}
	return out
}

// confirmed is the serial beside which nothing older is under way in the region: on this
// node and on each other that is heard. One that is not heard takes what the others have
// before it opens the region's logs.
func (n *Node) confirmed() int64 {
	serial := n.policies.fencedSerial()
	for _, m := range n.others() {
		if m.Up {
			serial = min(serial, n.siblings.said(m.Node).GetFenced())
		}
	}
	return serial
}

// servePolicies answers the siblings' talk of signed policies.
func (n *Node) servePolicies() {
	n.fabric.Serve(policyTalk, func(ctx context.Context, from string, body []byte) ([]byte, error) {
		q, err := wire.DecodePolicyAsk(body)
		if err != nil {
			return nil, err
		}
		n.siblings.hear(from, q.GetWord())
		a := &pb.PolicyTold{}
		switch want := q.GetWant().(type) {
		case *pb.PolicyAsk_Part:
			a.Part, a.Size, err = n.policies.part(want.Part)
		case *pb.PolicyAsk_Take:
			err = n.bring(ctx, gatewayName(from), want.Take, n.fetchFrom(from))
		case *pb.PolicyAsk_Confirmed:
			if a.Holds = n.turn.Load() != nil; a.Holds {
				a.Regions, a.Open = n.regionFences(want.Confirmed)
			}
		}
		if err != nil {
			return nil, err
		}
		a.Word = n.policyWord()
		return wire.EncodePolicyTold(a)
	})
	n.onClose("talks of policies", func(context.Context) error { n.fabric.Serve(policyTalk, nil); return nil })
}

func gatewayName(node string) string { return "gateway " + node }

// part is a piece of a policy that is active, offered or kept here.
func (p *policies) part(want *pb.PolicyPart) (part []byte, size uint32, err error) {
	p.mu.Lock()
	live, offered := p.live, p.offered
	p.mu.Unlock()
	var data []byte
	switch {
	case offered != nil && offered.serial() == want.GetSerial():
		data = offered.data
	case live != nil && live.serial() == want.GetSerial():
		data = live.data
	default:
		if _, data, err = p.shelf.get(want.GetSerial()); err != nil {
			return nil, 0, err
		}
	}
	from := min(int(want.GetOffset()), len(data))
	return data[from:min(len(data), from+policyPart)], uint32(len(data)), nil
}

// talk asks a sibling, and notes its word.
func (n *Node) talk(ctx context.Context, node string, q *pb.PolicyAsk, within time.Duration) (*pb.PolicyTold, error) {
	ctx, cancel := context.WithTimeout(ctx, n.seams.Pace.Of(within))
	defer cancel()
	q.Word = n.policyWord()
	body, err := wire.EncodePolicyAsk(q)
	if err != nil {
		return nil, err
	}
	answer, err := n.fabric.Call(ctx, node, policyTalk, body)
	if err != nil {
		return nil, err
	}
	a, err := wire.DecodePolicyTold(answer)
	if err == nil {
		n.siblings.hear(node, a.GetWord())
	}
	return a, err
}

// fetchFrom brings the exact bytes of a sibling's policy.
func (n *Node) fetchFrom(node string) link.Fetch {
	return func(ctx context.Context, serial int64) ([]byte, error) {
		var out []byte
		for {
			a, err := n.talk(ctx, node, &pb.PolicyAsk{Want: &pb.PolicyAsk_Part{Part: &pb.PolicyPart{Serial: serial, Offset: uint32(len(out))}}}, talkWithin)
			if err != nil {
				return nil, err
			}
			out = append(out, a.GetPart()...)
			switch size := int(a.GetSize()); {
			case len(out) == size:
				return out, nil
			case len(out) > size || len(a.GetPart()) == 0:
				return nil, &api.Error{Code: api.BadRequest, Op: "fetch policy", Field: "size", Hint: gatewayName(node) + " gives an answer that makes no sense"}
			}
		}
	}
}

// confer keeps the nodes of a region at one signed policy: it takes what is newer elsewhere
// and tells what is here, when either has changed and every now and then, until ctx ends.
func (n *Node) confer(ctx context.Context) {
	tick := time.NewTicker(n.seams.Pace.Of(chaseEvery))
	defer tick.Stop()
	var told int64
	for {
		for _, m := range n.others() {
			n.take(ctx, gatewayName(m.Node), wordOf(n.siblings.said(m.Node)), n.fetchFrom(m.Node))
		}
		var talks sync.WaitGroup
		for _, m := range n.others() {
			talks.Go(func() { _, _ = n.talk(ctx, m.Node, &pb.PolicyAsk{}, talkWithin) }) // one that is silent is asked again
		}
		talks.Wait()
		if now := n.confirmed(); now != told {
			told = now
			if t := n.turn.Load(); t != nil {
				t.mesh.HelloChanged()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-n.siblings.wake:
		case <-tick.C:
		}
	}
}

// agree has a node that got the region's seat take the newest signed policy that the others
// know, before it opens a log. A policy that was confirmed is on a majority of the nodes, so
// one sibling's word is enough. Without it, or if the newer one is not taken here, nothing
// is opened.
func (t *turn) agree(ctx context.Context) error {
	if t.cfg.Node == "" {
		return nil
	}
	words, err := t.askWords(ctx)
	for node, w := range words {
		t.take(ctx, gatewayName(node), w, t.fetchFrom(node))
	}
	kept, _ := t.policies.told()
	for node, w := range words {
		if w.serial > kept.serial || t.policies.signedNow() == nil && w.serial > 0 {
			return &api.Error{Code: api.NotReady, Op: "agree on policy", Region: t.cfg.Region, Field: "policy", Value: fmt.Sprint(w.serial),
				Hint: gatewayName(node) + " has a newer policy that is not active here: domicile policy status says why"}
		}
	}
	return err
}

// askWords asks the siblings until one has answered, and then takes the word of each that
// has. One of an earlier version tells the revision in force alone.
func (t *turn) askWords(ctx context.Context) (map[string]word, error) {
	ctx, cancel := context.WithTimeout(ctx, t.seams.Pace.Of(agreeWithin))
	defer cancel()
	for {
		var mu sync.Mutex
		words := map[string]word{}
		var talks sync.WaitGroup
		for _, m := range t.others() {
			talks.Go(func() {
				w, err := t.askWord(ctx, m.Node)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					words[m.Node] = w
				}
			})
		}
		talks.Wait()
		if len(words) > 0 {
			return words, nil
		}
		if !pause(ctx, t.seams.Pace.Of(agreeAgain)) {
			return nil, &api.Error{Code: api.NotReady, Op: "agree on policy", Region: t.cfg.Region, Err: ctx.Err(),
				Hint: "no other node of the region has said which signed policy it has"}
		}
	}
}

func (t *turn) askWord(ctx context.Context, node string) (word, error) {
	a, err := t.talk(ctx, node, &pb.PolicyAsk{}, talkWithin)
	if err == nil {
		return wordOf(a.GetWord()), nil
	}
	old, oldErr := t.ask(ctx, node, &pb.AskOver{Question: &pb.AskOver_Files{Files: &pb.FilesRequest{}}})
	if oldErr != nil {
		return word{}, err
	}
	if !t.policies.signedOnly.Load() {
		return word{}, nil // a directory's: each node has its own
	}
	number, _, _ := strings.Cut(old.GetFiles().GetPolicyRevision(), "-")
	number, _, _ = strings.Cut(number, ".")
	serial, _ := strconv.ParseInt(number, 10, 64) // none is active: 0
	return word{serial: serial}, nil
}

// handToHolder has the node with the seat activate a policy first, so that no record is
// judged by an older one than this node's. Whatever it refuses is refused here too.
func (n *Node) handToHolder(ctx context.Context, s *signed) error {
	seat, _ := n.seats()
	if n.cfg.Node == "" || seat.Mine || seat.Node == "" || seat.Node == n.cfg.Node {
		return nil
	}
	n.policies.offer(s)
	defer n.policies.offer(nil)
	_, err := n.talk(ctx, seat.Node, &pb.PolicyAsk{Want: &pb.PolicyAsk_Take{Take: s.serial()}}, handWithin)
	if code := api.CodeOf(err); code == api.OutcomeUnknown {
		return &api.Error{Code: api.NotReady, Op: "activate policy", Region: n.cfg.Region, Err: err,
			Hint: gatewayName(seat.Node) + " holds the region's seat and has not said that it took the policy; if it did, this node takes it from there. Activate it again"}
	}
	return err
}

func (p *policies) offer(s *signed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered = s
}
