package fabric

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"domicile/api"
	"domicile/regions"
)

// At pace 1.
const (
	pingEvery  = 400 * time.Millisecond
	silentFor  = 1200 * time.Millisecond // a node not heard for that long does not count
	answerFor  = 3 * time.Second         // a later answer to a ping is none
	giveUpSeat = 3 * time.Second         // below quorum: before the broker elects, which takes 4 s at least
)

// maxPings bounds the pings to one node that are not answered yet.
const maxPings = 8

// Member is a node of the region as this node sees it.
type Member struct {
	Node  string
	Self  bool
	Heard time.Time // when it last answered; zero: not in this run
	Up    bool      // heard of late; always so of this node itself
	Lacks string    // what it lacks of the region's logs, as it said itself when heard; "": nothing
	// Failed: its store takes nothing more until a person starts it again; Lacks says why.
	Failed bool
}

// ping asks a node for a sign of life and, under a term, for its promise.
type ping struct {
	From  string `json:"from"`
	Store string `json:"store,omitempty"` // of the sender's directory; "" from earlier versions
	Term  uint64 `json:"term"`            // of the seat that the sender holds or is about to; 0: none
	Holds bool   `json:"holds"`
	Floor int64  `json:"floor"`
	// Leaves: the sender stops, and no answer is expected.
	Leaves bool `json:"leaves,omitempty"`
}

// pong is the answer: the node's word, and whether it holds the seat itself.
type pong struct {
	Store string  `json:"store,omitempty"` // of who answers; "" from earlier versions
	Given bool    `json:"given"`           // the promise was given
	Word  promise `json:"word"`
	Holds uint64  `json:"holds"`           // term of the seat it holds; 0: it does not
	Ails  bool    `json:"ails"`            // the seat is better held elsewhere, see Fabric.ails
	Fails bool    `json:"fails,omitempty"` // see Member.Failed
	Has   holding `json:"has"`
	// Stranger: another store is known here by the sender's name. Nothing was promised.
	Stranger bool `json:"stranger,omitempty"`
}

// members is what a node of a quorum region knows of its siblings.
type members struct {
	f        *Fabric
	self     string
	promises *promises
	gone     atomic.Bool // this node has said that it stops

	mu    sync.Mutex
	peers map[string]*peer
	floor int64 // promised by a majority under the present term of this node
}

type peer struct {
	heard time.Time // steady, when it last answered
	asked time.Time // steady, when the ping was sent whose answer is the latest
	holds uint64    // term of the seat it said to hold when heard
	ails  bool      // as it said when heard
	fails bool      // as it said when heard
	has   holding   // as it said when heard
	left  bool      // it said that it stops
	shuns bool      // it last answered that it knows this node by another store
	term  uint64    // of the floor it promised
	floor int64
}

func newMembers(f *Fabric) (*members, error) {
	p, err := openPromises(f.cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &members{f: f, self: f.cfg.Cluster.Node, promises: p, peers: map[string]*peer{}}
	for name := range f.cfg.Cluster.Members {
		if name != m.self {
			m.peers[name] = &peer{}
		}
	}
	return m, nil
}

func pingSubject(node string) string { return "_DP." + node }

// serve answers the siblings' pings.
func (m *members) serve(c *nats.Conn) error {
	_, err := c.Subscribe(pingSubject(m.self), func(msg *nats.Msg) {
		var p ping
		if json.Unmarshal(msg.Data, &p) != nil || m.gone.Load() {
			return
		}
		if b, err := json.Marshal(m.answer(p)); err == nil {
			_ = msg.Respond(b)
		}
	})
	return err
}

func (m *members) answer(p ping) pong {
	a := pong{Store: m.f.identity().Store, Word: m.promises.get(), Ails: m.f.ails(), Fails: m.f.failed(), Has: m.f.holds()}
	if p.Store != "" && m.f.stranger(p.From, p.Store) {
		a.Stranger = true
		return a
	}
	if p.Term > 0 {
		word, ok, err := m.promises.give(p.Term, p.Floor)
		if err != nil {
			m.f.cfg.Logger.Error("promise not written, and not given", "error", err)
		}
		a.Given, a.Word = ok, word
	}
	if seat, _ := m.f.Seat(); seat.Mine {
		a.Holds = seat.Term
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch from := m.peers[p.From]; {
	case from == nil:
	case p.Leaves:
		from.heard, from.asked, from.holds, from.left = time.Time{}, time.Now(), 0, true
	case p.Holds:
		from.holds = max(from.holds, p.Term)
	}
	return a
}

// leave tells the siblings that this node stops: they need not wait to notice.
func (m *members) leave() {
	m.gone.Store(true)
	b, err := json.Marshal(ping{From: m.self, Store: m.f.identity().Store, Leaves: true})
	if err != nil {
		return
	}
	broker, err := m.f.running()
	if err != nil {
		return
	}
	for node := range m.peers {
		_ = broker.talk.Publish(pingSubject(node), b)
	}
	_ = broker.talk.FlushTimeout(m.f.cfg.Pace.Of(pingEvery))
}

// pingLoop keeps asking one sibling. It does not wait for an answer before it asks again,
// so that a slow one does not look like silence.
func (m *members) pingLoop(node string) {
	tick := time.NewTicker(m.f.cfg.Pace.Of(pingEvery))
	defer tick.Stop()
	open := make(chan struct{}, maxPings)
	for {
		select {
		case open <- struct{}{}:
			if !m.f.spawn(func() { m.ping(node); <-open }) {
				return
			}
		default:
		}
		select {
		case <-tick.C:
		case <-m.f.ctx.Done():
			return
		}
	}
}

// ping asks a sibling once, under the seat that is held here.
func (m *members) ping(node string) {
	seat, _ := m.f.Seat()
	p := ping{}
	if seat.Mine {
		p.Term, p.Holds, p.Floor = seat.Term, true, m.f.now().UnixNano()
	}
	if _, err := m.ask(m.f.ctx, node, p); err == nil && seat.Mine {
		m.raise(seat.Term, p.Floor)
	}
}

// ask sends one ping and notes what comes back.
func (m *members) ask(ctx context.Context, node string, p ping) (pong, error) {
	var a pong
	p.From, p.Store = m.self, m.f.identity().Store
	b, err := json.Marshal(p)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.f.cfg.Pace.Of(answerFor))
	defer cancel()
	sent := time.Now()
	broker, err := m.f.running()
	if err != nil {
		return a, err
	}
	reply, err := broker.talk.RequestWithContext(ctx, pingSubject(node), b)
	if err == nil {
		err = json.Unmarshal(reply.Data, &a)
	}
	other := err == nil && m.f.knownOther(node, a.Store)
	if other {
		err = fmt.Errorf("node %s answers from another data directory than the one that is known", node)
	}
	if a.Stranger && (!other || m.shunned(node)) {
		m.f.expelled(node)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	peer := m.peers[node]
	if err == nil || other {
		peer.shuns = a.Stranger
	}
	if err != nil || peer.left && sent.Before(peer.asked) {
		return a, err
	}
	peer.heard = time.Now()
	if !sent.Before(peer.asked) {
		peer.asked, peer.holds, peer.ails, peer.fails, peer.has, peer.left = sent, a.Holds, a.Ails, a.Fails, a.Has, false
	}
	if a.Given && (p.Term > peer.term || p.Term == peer.term && p.Floor > peer.floor) {
		peer.term, peer.floor = p.Term, p.Floor
	}
	return a, nil
}

// shunned: all siblings but one, which just said so too, know this node by another store.
func (m *members) shunned(by string) bool {
	all := true
	m.each(func(name string, p *peer) { all = all && (name == by || p.shuns) })
	return all
}

// raise counts what is promised under this node's term, this node's own word included.
func (m *members) raise(term uint64, floor int64) bool {
	word, ok, err := m.promises.give(term, floor)
	if err != nil || !ok {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	given := []int64{word.Floor}
	for _, p := range m.peers {
		if p.term == term {
			given = append(given, p.floor)
		}
	}
	to, ok := promised(given, len(m.peers)+1)
	if ok {
		m.floor = max(m.floor, to)
	}
	return ok
}

// closed is the instant before which no node of the region stamps a record any more.
func (m *members) closed() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Unix(0, m.floor).UTC()
}

// poll asks all siblings at once for their word under a term. It succeeds as soon as a
// majority gave it, with the highest floor among theirs.
func (m *members) poll(ctx context.Context, term uint64, floor int64) (highest int64, ok bool) {
	word, ok, err := m.promises.give(term, floor)
	if err != nil || !ok {
		return 0, false
	}
	answers := make(chan *pong, len(m.peers))
	for node := range m.peers {
		if !m.f.spawn(func() {
			if a, err := m.ask(ctx, node, ping{Term: term, Floor: floor}); err == nil && a.Given {
				answers <- &a
				return
			}
			answers <- nil
		}) {
			answers <- nil
		}
	}
	given, highest := 1, word.Floor
	majority := (len(m.peers)+1)/2 + 1
	for range m.peers {
		if a := <-answers; a != nil {
			given++
			highest = max(highest, a.Word.Floor)
		}
		if given >= majority {
			return highest, true
		}
	}
	return highest, false
}

// up is how many nodes, this one included, were heard of late, and since when at least a
// majority was not; holder is the sibling that holds the seat, if one said so.
func (m *members) up() (n int, holder string, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = 1
	for name, p := range m.peers {
		if !m.isUp(p) {
			continue
		}
		n++
		if p.holds > term {
			holder, term = name, p.holds
		}
	}
	return n, holder, term
}

func (m *members) isUp(p *peer) bool {
	return !p.heard.IsZero() && time.Since(p.heard) < m.f.cfg.Pace.Of(silentFor)
}

func (m *members) list() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Member{{Node: m.self, Self: true, Heard: m.f.cfg.Clock.Now(), Up: true, Lacks: m.f.holds().Lacks, Failed: m.f.failed()}}
	for name, p := range m.peers {
		x := Member{Node: name, Up: m.isUp(p), Lacks: p.has.Lacks, Failed: p.fails}
		if !p.heard.IsZero() {
			x.Heard = m.f.cfg.Clock.Now().Add(-time.Since(p.heard))
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// Members lists the region's nodes by name, as this one sees them; nil for a solo region.
func (f *Fabric) Members() []Member {
	if f.members == nil {
		return nil
	}
	return f.members.list()
}

// belowQuorum is what callers are told while less than a majority is heard.
func (f *Fabric) belowQuorum(up int) *api.Error {
	return &api.Error{Code: api.NotReady, Op: "append", Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(time.Second),
		Hint: fmt.Sprintf("below quorum: %d of %d nodes of the region are up, 2 are needed; nothing was stored, retry with the same id", up, regions.QuorumNodes)}
}
