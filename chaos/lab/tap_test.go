package lab_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/tap"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/link"
)

// tapped is a federation of two regions of one boundary and one of another, with a tap on all
// its links, and producers of records that are tokens in every place.
type tapped struct {
	*testing.T
	*lab.Lab
	tokens *canary.Set
	tap    *tap.Tap
	clock  regions.Clock
	book   *ledger.Book
	leak   atomic.Bool // egress judges nothing

	mu    sync.Mutex
	holds map[int]string // token → mark of its record's id
	acked int
}

const tappedManifest = `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

func tapping(t *testing.T) *tapped {
	m := &tapped{T: t, tokens: &canary.Set{}, clock: regions.NewSteadyClock(), holds: map[int]string{}}
	m.book = &ledger.Book{Clock: m.clock}
	m.tap = tap.New(m.tokens, m.clock)
	m.Lab = open(t, lab.Options{Policies: boundedPolicies("eu, us, global"), Manifest: []byte(tappedManifest), Seams: func(region string, s *node.Seams) {
		s.Hooks.Link = m.tap.Hooks(region)
		s.Hooks.Mirror.SkipEgress = func(api.LogID, string) bool { return m.leak.Load() }
	}})
	return m
}

// restIn is where a record of that residency rests, by the map alone.
var restIn = map[string][]string{"eu": {"eu-central", "eu-west"}, "us": {"us-east"}, "global": {"eu-central", "eu-west", "us-east"}}

// order makes a record whose id, key, header and body are tokens of its own. Every
// fourth has a body of many frames.
func (m *tapped) order(residency string) (api.Record, []int) {
	token := func(mint func() string, place string) (string, int) {
		text := mint()
		return text, m.tokens.Add(text, residency+"/"+place)
	}
	id, n0 := token(canary.Plain, "id")
	key, n1 := token(canary.Plain, "key")
	header, n2 := token(canary.Awkward, "header")
	body, n3 := token(canary.Awkward, "body")
	r := orderOf(residency, id)
	r.Key, r.Headers = key, []api.Header{{Name: "x-customer", Value: header}}
	r.Body = []byte(body)
	if n0%16 == 0 {
		r.Body = []byte(strings.Repeat("-", 40_000) + body + strings.Repeat("-", 40_000))
	}
	return r, []int{n0, n1, n2, n3}
}

func (m *tapped) publish(region, residency string) (string, error) {
	r, tokens := m.order(residency)
	m.mu.Lock()
	for _, n := range tokens {
		m.holds[n] = ledger.Mark(r.ID)
	}
	m.mu.Unlock()
	c, err := m.Region(region).Door(1)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(m.Context(), 10*time.Second)
	defer cancel()
	e := ledger.Entry{ID: r.ID, Hash: ledger.Hash(r.Body), Key: r.Key, Topic: r.Topic, Residency: residency, Size: r.Size(), Asked: region, Rests: restIn[residency], Started: m.clock.Now()}
	ack, err := c.Publish(ctx, &r)
	e.Answer(ack, err, m.clock.Now())
	m.book.Enter(e)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.acked++
	}
	return r.ID, err
}

// trade publishes records of all kinds at all doors until stop is called.
func (m *tapped) trade() (stop func()) {
	ctx, cancel := context.WithCancel(m.Context())
	var work sync.WaitGroup
	for _, r := range m.Regions() {
		for _, residency := range []string{"eu", "us", "global"} {
			work.Go(func() {
				for lab.Pass(ctx, 20*time.Millisecond) == nil {
					_, _ = m.publish(r.Name, residency) // the book has what came of it
				}
			})
		}
	}
	return func() { cancel(); work.Wait() }
}

func (m *tapped) more(n int) {
	m.Helper()
	count := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.acked
	}
	want := count() + n
	within(m.T, "more orders are acknowledged", func() error {
		if have := count(); have < want {
			return fmt.Errorf("%d of %d", have, want)
		}
		return nil
	})
}

// verdict judges what was heard so far, with what is on the disks.
func (m *tapped) verdict(shelves []ledger.Shelf) *invariant.Verdict {
	book := &ledger.Book{Clock: m.clock}
	for _, e := range m.book.Entries() {
		book.Enter(e)
	}
	m.tap.Note(book, func(token int) []string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return []string{m.holds[token]}
	})
	return invariant.Check(book.History(), shelves, invariant.Usual(quick))
}

// shelves stops all regions and reads their disks.
func (m *tapped) shelves() (all []ledger.Shelf) {
	m.Helper()
	if err := m.Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
	for _, r := range m.Regions() {
		s, err := lab.Shelves(m.Context(), m.Federation, r.Name, r.Data())
		if err != nil {
			m.Fatal(err)
		}
		all = append(all, s...)
	}
	return all
}

// TestRP2_NothingResidentOnALinkButTowardsItsBoundary listens to all lanes of all links while
// records of each kind are handed in everywhere, a region is cut off, heals, and another one
// starts again. Then egress lets go what it should not: arrival refuses it, so that nothing
// is stored, and the tap has seen it all the same.
func TestRP2_NothingResidentOnALinkButTowardsItsBoundary(t *testing.T) {
	t.Parallel()
	m := tapping(t)
	stop := m.trade()
	m.more(30)
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	within(t, "an order finds its home cut off", func() error {
		for _, e := range m.book.Entries() {
			if e.Code == api.HomeUnreachable {
				return nil
			}
		}
		return fmt.Errorf("none was refused")
	})
	m.Heal()
	if err := m.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.more(30)
	if err := m.Region("us-east").Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.more(30)
	stop()
	if err := m.CaughtUp(t.Context(), time.Now(), soon); err != nil {
		t.Fatal(err)
	}
	shelves := m.shelves()
	v := m.verdict(shelves)
	if n := v.Broken[invariant.Crossed]; n != 0 || v.Judged[invariant.Crossed] < 100 {
		t.Errorf("judged %d times, broken %d: %v", v.Judged[invariant.Crossed], n, only(v, invariant.Crossed))
	}
	m.heardAll()

	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.leak.Store(true)
	id, err := m.publish("eu-west", "eu")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CaughtUp(t.Context(), time.Now(), soon); err != nil {
		t.Fatal(err)
	}
	m.leaked(m.verdict(shelves), id)
}

func only(v *invariant.Verdict, number int) []invariant.Violation {
	return slices.DeleteFunc(slices.Clone(v.Violations), func(x invariant.Violation) bool { return x.Number != number })
}

// heardAll: each kind of record was seen where it has to pass, and every lane was listened to.
func (m *tapped) heardAll() {
	m.Helper()
	seen := map[string]bool{}
	for _, c := range m.tap.Crossings() {
		residency, _, _ := strings.Cut(m.tokens.Place(c.Token), "/")
		seen[fmt.Sprint(c.From, ">", c.To, " ", c.Lane, " ", c.Call, " ", residency)] = true
	}
	for _, want := range []string{
		"us-east>eu-west data Forward eu", "eu-west>us-east data Forward us", "eu-central>us-east data Forward us",
		"eu-west>eu-central data Mirror eu", "eu-central>eu-west data Mirror eu", "us-east>eu-central data Mirror global",
		"us-east>eu-west data Mirror global", "eu-west>us-east data Mirror global", "eu-central>us-east data Mirror global",
	} {
		if !seen[want] {
			m.Errorf("not seen: %s; seen: %v", want, seen)
		}
	}
	lines := m.tap.Lines()
	if len(lines) != 6*len(link.Planes()) {
		m.Errorf("%d lines: %v", len(lines), lines)
	}
	for _, l := range lines {
		m.Logf("%s to %s, %s: %d connections, %d bytes", l.From, l.To, l.Lane, l.Conns, l.Bytes)
		if l.Bytes == 0 || l.Opaque > 0 {
			m.Errorf("%+v", l)
		}
	}
}

// leaked: the tokens of one record, and of no other, were seen going to us-east.
func (m *tapped) leaked(v *invariant.Verdict, id string) {
	m.Helper()
	found := only(v, invariant.Crossed)
	if len(found) == 0 {
		m.Fatal("what egress let go was not seen")
	}
	for _, x := range found {
		m.Log(x)
	}
	for _, c := range m.tap.Crossings() {
		residency, place, _ := strings.Cut(m.tokens.Place(c.Token), "/")
		if residency == "eu" && c.To == "us-east" && m.holds[c.Token] != ledger.Mark(id) {
			m.Errorf("the %s of another record was seen: %+v", place, c)
		}
	}
}
