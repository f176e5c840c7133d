package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
)

// threeAndOne is a federation of a region with three gateways and of one that is not
// there.
const threeAndOne = `
version: 1
federation: three
regions: {eu-west: {gateways: {a: "%s", b: "%s", c: "%s"}}, us-east: {link: "127.0.0.1:1"}}
boundaries: {eu: [eu-west]}
links: [[eu-west, us-east]]
topics:
  orders: {writes: local, mirror: [all], retention: {max_bytes: 8MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// newTrioAndOne makes its three nodes.
func newTrioAndOne(t *testing.T) *trio {
	t.Helper()
	r := newTrioOf(t, threeAndOne)
	r.policy(1, soloRules+"\ndestination contains \"eu-west\" if input.tags.residency == \"eu\"\n")
	return r
}

// desk is a node's desk, dialled once: a door takes so many connections.
func (r *trio) desk(name string) *client.Client {
	if r.desks[name] == nil {
		r.desks[name] = dial(r.t, r.configs[name].Listen.Admin)
	}
	return r.desks[name]
}

// soon polls until a question has the answer that is wanted.
func (r *trio) soon(ask func() error) {
	r.t.Helper()
	if err := lab.Poll(r.t.Context(), patience, ask); err != nil {
		r.t.Fatal(err)
	}
}

// lagAt is what a node says of lags, as text, and whose words these are.
func (r *trio) lagAt(name string) (rows []string, from string, err error) {
	err = r.desk(name).Lag(r.t.Context(), &pb.LagRequest{Topic: "orders"}, func(m *pb.LagResponse) error {
		from = m.GetFrom()
		for _, l := range m.GetLogs() {
			rows = append(rows, fmt.Sprintf("%s %s %s %s %d", l.GetLog().GetSlot(), l.GetHome(), l.GetTarget(), l.GetState(), l.GetHead()))
		}
		return nil
	})
	return rows, from, err
}

// R14d: lag, status and topics say the same at every node, those without the seat name
// whose words these are, and when the seat moves they are another's.
func TestR14d_LagAndStatusAtEveryNode(t *testing.T) {
	t.Parallel()
	r := newTrioAndOne(t)
	r.run(names[:]...)
	holder := r.holder()
	for i := range 3 {
		r.insistOn(names[i], euOrder(fmt.Sprint("id-", i)))
	}
	r.sameEverywhere(holder, names[:]...)
	r.halt(holder)
	next := r.holder()
	r.sameEverywhere(next, r.others(holder)...)
	r.halt(next)
	last := r.others(holder)
	if last[0] == next {
		last = last[1:]
	}
	r.soon(func() error { // alone it knows nothing, and says so
		if _, _, err := r.lagAt(last[0]); api.CodeOf(err) != api.NotReady {
			return fmt.Errorf("lag at the last node: %v", err)
		}
		s, err := r.desk(last[0]).Status(t.Context())
		if err != nil || s.GetLevel() != "failed" || s.GetFrom() != "" || s.GetLinks()[0].GetState() != "unknown" {
			return fmt.Errorf("status of the last node: %v %v", s, err)
		}
		return nil
	})
}

func (r *trio) sameEverywhere(holder string, nodes ...string) {
	r.t.Helper()
	var want []string
	for _, name := range append([]string{holder}, r.others(holder)...) {
		from := holder
		if name == holder {
			from = ""
		}
		for _, n := range nodes {
			if n == name {
				r.soon(func() error { return r.saysTheSame(name, from, &want) })
			}
		}
	}
}

// saysTheSame compares what a node says with what the holder, asked before, said.
func (r *trio) saysTheSame(name, from string, want *[]string) error {
	rows, whose, err := r.lagAt(name)
	if err != nil || whose != from || len(rows) < 2 || !strings.Contains(strings.Join(rows, ";"), "eu-west eu-west us-east") {
		return fmt.Errorf("lag at %s: %q from %q, want %q: %v", name, rows, whose, from, err)
	}
	s, err := r.desk(name).Status(r.t.Context())
	if err != nil || s.GetFrom() != from || s.GetLogs() != 2 || s.GetLinks()[0].GetState() != "down" || len(s.GetTroubles()) == 0 {
		return fmt.Errorf("status at %s: %v %v", name, s, err)
	}
	m, err := r.desk(name).Topics(r.t.Context(), "orders")
	if err != nil || m.GetFrom() != from {
		return fmt.Errorf("topics at %s: %v %v", name, m, err)
	}
	for _, h := range m.GetTopics()[0].GetLogs() {
		rows = append(rows, fmt.Sprintf("%s %s %v %d %d", h.GetLog().GetSlot(), h.GetRole(), h.GetKnown(), h.GetHead(), h.GetFirst()))
	}
	if from == "" {
		*want = rows
	}
	if got := fmt.Sprint(rows); got != fmt.Sprint(*want) {
		return fmt.Errorf("at %s: %s, at the holder: %v", name, got, *want)
	}
	return nil
}

// declare changes a node's own federation.yaml.
func (r *trio) declare(name, old, next string) {
	r.t.Helper()
	path := r.configs[name].Federation
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), old) != 1 {
		r.t.Fatalf("%q is there %d times: %v", old, strings.Count(string(text), old), err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, next, 1)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *trio) acts(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.configs[name].Data, "acts.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(text)
}

// refused asks until a node refuses with a code and these words.
func (r *trio) refused(code api.Code, words string, do func() error) {
	r.t.Helper()
	r.soon(func() error {
		if err := do(); api.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
			return fmt.Errorf("want %s and %q, got %v", code, words, err)
		}
		return nil
	})
}

// ordersIn is the part of a region of three that a node has of the log orders@eu-west.
func (r *trio) ordersAt(name string) (h *pb.LogHolding) {
	m, err := r.desk(name).Topics(r.t.Context(), "orders")
	if err != nil {
		return &pb.LogHolding{}
	}
	for _, l := range m.GetTopics()[0].GetLogs() {
		if l.GetLog().GetSlot() == "eu-west" {
			h = l
		}
	}
	return h
}

// B12: purge, reload and delete in a region of three. A node without the seat refuses
// what takes records away and names the holder; what the holder did holds at the next
// one; a node whose files differ is named by the others, and while they differ the stricter
// one counts and nothing acknowledged is lost.
func TestB12_TopicActsInARegionOfThree(t *testing.T) {
	t.Parallel()
	r := newTrioAndOne(t)
	r.run(names[:]...)
	holder := r.holder()
	for i := range 9 {
		r.insistOn(names[i%3], euOrder(fmt.Sprint("id-", i)))
	}
	purge := &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", ToSequence: 4}
	at := func(name string) error { _, err := r.desk(name).PurgeTopic(t.Context(), purge); return err }
	for _, other := range r.others(holder) {
		r.refused(api.NotReady, "gateway "+holder+" holds the region's seat", func() error { return at(other) })
	}
	r.refused(api.NotCopied, "us-east, which was not heard", func() error { return at(holder) })
	purge.Force, purge.Reason = true, "test data"
	r.soon(func() error { return at(holder) })
	for _, name := range names {
		if got := r.acts(name); (got != "") != (name == holder) {
			t.Errorf("the audit of %s: %s", name, got)
		}
	}
	r.halt(holder)
	next := r.holder()
	for _, name := range r.others(holder) {
		r.soon(func() error {
			if h := r.ordersAt(name); h.GetFirst() != 5 || h.GetHead() != 9 {
				return fmt.Errorf("at %s after the purge and another holder: %v", name, h)
			}
			return nil
		})
	}
	r.run(holder)
	stored := r.differ(next, 9)

	// The topic goes, node by node, the holder first.
	const declared = "  orders: {writes: local, mirror: [all], retention: {max_bytes: 8MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}"
	reload := func(name string) error {
		r.declare(name, declared, "#")
		_, err := r.desk(name).ReloadManifest(t.Context(), &pb.ReloadManifestRequest{})
		return err
	}
	if err := reload(next); err != nil {
		t.Fatal(err)
	}
	other := r.others(next)[0]
	r.soon(func() error {
		s, err := r.desk(other).Status(t.Context())
		if err != nil || s.GetLevel() == "ok" || !strings.Contains(s.GetVerdict(), "node "+next+" of this region has another federation.yaml in force") {
			return fmt.Errorf("%s %v", s.GetVerdict(), err)
		}
		return nil
	})
	rec := euOrder("of no topic") // there the door still has it
	r.refused(api.UnknownTopic, "", func() error { _, err := dial(t, r.configs[other].Listen.Door).Publish(t.Context(), &rec); return err })
	for _, name := range r.others(next) {
		if err := reload(name); err != nil {
			t.Fatal(err)
		}
	}
	del := &pb.TopicActRequest{Topic: "orders", Slot: "eu-west"}
	r.refused(api.NotReady, "gateway "+next+" holds the region's seat", func() error { _, err := r.desk(other).DeleteTopic(t.Context(), del); return err })
	r.refused(api.NotCopied, "us-east", func() error { _, err := r.desk(next).DeleteTopic(t.Context(), del); return err })
	del.Force, del.Reason = true, "the shop is closed"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, err := r.desk(next).DeleteTopic(ctx, del); err != nil || len(d.GetLogs()) != 1 || int(d.GetLogs()[0].GetRecords()) != stored-4 {
		t.Fatalf("deleted: %v %v", d, err)
	}
	r.halt(next)
	last := r.holder()
	r.refused(api.UnknownTopic, "orders@eu-west was deleted at", func() error { _, err := r.desk(last).DeleteTopic(t.Context(), del); return err })
}
