package intruder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

// lie is one thing that no correct region says. tell says it to one honest region; a seed
// decides the rest.
type lie struct {
	lane, name string
	rule       string // that it breaks
	mute       string // why nobody can tell it from the truth; "": it has to be counted against the liar
	tell       func(*telling)
}

func (l lie) String() string { return l.lane + "/" + strings.ReplaceAll(l.name, " ", "_") }

// all is every lie, lane by lane.
func all() (lies []lie) {
	for _, lane := range [][]lie{hellos(), sources(), origins(), targets(), marks(), tails(), forwards(), acks(), policies(), councils(), gossips(), exchanges(), noises()} {
		lies = append(lies, lane...)
	}
	return lies
}

// telling is one lie on its way.
type telling struct {
	*liar
	ctx    context.Context
	rng    *rand.Rand
	victim string
	number int // of the lie: its own log
	undo   []func()

	said  sync.Mutex // of a lie that is told by several at once
	heard string     // what was answered, for people
	took  []string   // what was taken that must not be
}

// takes notes that a region took what it must not.
func (t *telling) takes(format string, args ...any) {
	t.took = append(t.took, fmt.Sprintf(format, args...))
}

// hears keeps an answer for people.
func (t *telling) hears(err error) {
	t.said.Lock()
	defer t.said.Unlock()
	if err != nil {
		t.heard = fmt.Sprintf("%.200q", err.Error())
	}
}

// after runs once the honest regions have been looked at.
func (t *telling) after(f func()) { t.undo = append(t.undo, f) }

// word is text that no correct region says, in a form that the seed picks.
func (t *telling) word() string {
	words := []string{"\x1b[2J\x1b]0;owned\x07", "a\r\nb", "ok\x00", "<script>alert(1)</script>\u202e", strings.Repeat("\x1b[31m", 400), "x\u0085y"}
	return words[t.rng.IntN(len(words))]
}

// topic is the one that the lie has to itself.
func (t *telling) topic() string { return ownTopic(t.number) }

// own opens a flow of the liar's own log of a topic.
func (t *telling) own(topic string) regions.MirrorOpen {
	slot := api.HomeSlot
	if topic == "orders" || topic == "health" {
		slot = traitor
	}
	return regions.MirrorOpen{Log: api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: slot}, Incarnation: incarnationOf(topic), Epoch: api.StaticEpoch(traitor),
		Head: 1 << 40, Digest: t.world.federation.TopicDigest(topic)}
}

// item is the n-th honest record of one of the liar's logs.
func (t *telling) item(topic string, n int) regions.Item {
	class := "order"
	if topic == "health" {
		class = "health"
	}
	return regions.Item{Sequence: uint64(n), Epoch: api.StaticEpoch(traitor), Term: 1, Time: time.Now(), Revision: t.theirs(t.victim).PolicyRevision,
		Record: api.Record{ID: fmt.Sprintf("own-%d-%d", t.rng.Uint64(), n), Topic: topic, Body: []byte("a book"),
			Tags: []api.Tag{{Name: "class", Value: class}, {Name: regions.ResidencyTag, Value: regions.GlobalResidency}}}}
}

// batch is a batch of one of the liar's logs, judged under the policy that the victim has.
func (t *telling) batch(topic string, items ...regions.Item) regions.MirrorBatch {
	h := t.theirs(t.victim)
	return regions.MirrorBatch{Incarnation: incarnationOf(topic), Serial: h.PolicySerial, Revision: h.PolicyRevision, Items: items}
}

// tells says a lie to one honest region. What it put into the liar's mouth stays there until
// undo.
func (w *world) tells(t *testing.T, l lie, number int, seed uint64) *telling {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	q := &telling{liar: w.liar, rng: rng, victim: honest()[rng.IntN(2)], number: number}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q.ctx = ctx
	if err := w.liar.link(ctx, honest()...); err != nil {
		w.broken("the lie can't be told: %v", err)
		return q
	}
	l.tell(q)
	return q
}

// undone has the liar speak as before, and notes what was taken.
func (w *world) undone(q *telling) {
	for _, f := range q.undo {
		f()
	}
	for _, what := range q.took {
		w.found("%s took it: %s", q.victim, what)
	}
	for _, wrong := range w.trade.takeWrong() {
		w.found("%s", wrong)
	}
}

// say tells a lie and judges the honest regions.
func (w *world) say(t *testing.T, l lie, number int, seed uint64) []string {
	before, since := w.mark(t.Context()), time.Now()
	q := w.tells(t, l, number, seed)
	told := time.Since(since)
	counted := []string{q.victim}
	switch {
	case l.mute != "":
		counted = nil
	case l.lane == "council":
		counted = honest() // its leader judges, wherever it was told
	}
	w.check(t.Context(), before, time.Now(), counted...)
	w.undone(q)
	t.Logf("%-55s to %-10s %5.2f s, judged %5.2f s; %s", l, q.victim, told.Seconds(), (time.Since(since) - told).Seconds(), q.heard)
	return w.take()
}
