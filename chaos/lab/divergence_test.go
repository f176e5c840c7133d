package lab_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/link"
	"domicile/regions/loss"
	"domicile/regions/placement"
)

// desk is a client of a region's operators' door.
func (m *moved) desk(region string) *client.Client {
	m.Helper()
	c, err := m.Region(region).Desk()
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { c.Close() })
	return c
}

// send publishes one order at a region's door until it is acknowledged.
func (m *moved) send(c *client.Client, id string) api.Ack {
	m.Helper()
	var ack api.Ack
	r := orderOf("global", id)
	m.until("order "+id+" is acknowledged", func() (err error) {
		ctx, cancel := context.WithTimeout(m.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if ack, err = c.Publish(ctx, &r); err == nil {
			m.note(id, began, ack, nil)
		}
		return err
	})
	return ack
}

// report is the report of the last forced move, as a region gives it.
func (m *moved) report(region string, first []byte) (text []byte, signed loss.Signed) {
	m.Helper()
	text, err := m.desk(region).ReportLoss(m.Context(), &pb.ReportLossRequest{Topic: "orders", First: first})
	if err == nil {
		signed, err = loss.Parse(text)
	}
	if err != nil {
		m.Fatal(region, ": ", err)
	}
	return text, signed
}

// tail leaves records behind in a home that is cut off: named of them the new home is told
// of before, the others nobody heard of there. It answers all acks of the old home that are
// void, once the home is back.
func (m *moved) tail(named, unheard int) []api.Ack {
	m.Helper()
	west := door(m.T, m.Lab, "eu-west", 1)
	for n := range 10 {
		m.send(west, fmt.Sprintf("before-%d", n))
	}
	m.until("the copy has them", func() error {
		if have := len(m.holds("us-east")); have < 10 {
			return fmt.Errorf("%d records", have)
		}
		return nil
	})
	gates := m.node("eu-west").Gates()
	var held []uint64
	for _, peer := range []string{"us-east", "eu-central"} { // else the one would have it from the other
		payload, err := gates.Cut(peer, []link.Plane{link.Data}, []regions.Direction{regions.Out}, link.BlackHole, time.Hour)
		if err != nil {
			m.Fatal(err)
		}
		held = append(held, payload)
	}
	var void []api.Ack
	for n := range named {
		void = append(void, m.send(west, fmt.Sprintf("tail-%d", n)))
	}
	m.until("us-east was told of some of them", func() error {
		if k := m.node("us-east").Told(m.id); len(k.Entries) < min(3, named) {
			return fmt.Errorf("%d entries, head %d", len(k.Entries), k.Head)
		}
		return nil
	})
	if err := m.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		m.Fatal(err)
	}
	for _, payload := range held {
		gates.Heal(payload)
	}
	m.until("the cut is seen", func() error { return down(m.Context(), m.Lab, "us-east", "eu-west") })
	for n := range unheard {
		void = append(void, m.send(west, fmt.Sprintf("tail-%d", named+n)))
	}
	return void
}

// back ends the cut, and waits until the old home has said what is void there.
func (m *moved) back() {
	m.Helper()
	m.Heal()
	m.tailOf("eu-west")
	m.until("the old home follows the new one", func() error {
		if l := m.at("eu-west"); l.Home != "us-east" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
}

func (m *moved) divergence(region string) *pb.Divergence {
	m.Helper()
	r, err := m.desk(region).Divergences(m.Context(), &pb.ListDivergencesRequest{})
	if err != nil || len(r.GetDivergences()) != 1 {
		m.Fatal(r, err)
	}
	return r.GetDivergences()[0]
}

func fatesOf(d *pb.Divergence) map[loss.Fate]uint64 {
	out := map[loss.Fate]uint64{}
	for _, f := range d.GetFates() {
		if f.GetRecords() > 0 {
			out[loss.Fate(f.GetFate())] = f.GetRecords()
		}
	}
	return out
}

// checkFirst holds the report at the cut against what producers were told.
func (m *moved) checkFirst(r *loss.Report, void []api.Ack) {
	m.Helper()
	missing := map[uint64]bool{}
	for _, a := range void {
		missing[a.Sequence] = true
	}
	heard := 0
	for _, a := range void {
		if r.Head != nil && a.Sequence <= *r.Head {
			heard++
		}
	}
	for _, x := range r.Missing {
		if !missing[x.Sequence] {
			m.Errorf("sequence %d is named missing, and no order was acknowledged there", x.Sequence)
		}
	}
	if r.AtMost == nil || uint64(heard) > *r.AtMost || len(r.Missing) == 0 || heard == len(void) || r.Whole() || r.Stopped != nil {
		m.Errorf("of %d void orders %d had been heard of, and it is reported:\n%s", len(void), heard, r.Markdown())
	}
}

// TestS17_WhatProducersSentAgainIsThereAlready leaves forty records behind of which
// producers send thirty again at the new home. Ten are published anew from the old home,
// thirty are there already; what was said at the cut was true, and what is said now is what
// producers were told, record by record. Then nothing keeps the log from going back.
func TestS17_WhatProducersSentAgainIsThereAlready(t *testing.T) {
	m := moving(t, "", lab.Options{})
	void := m.tail(20, 20)
	m.move("us-east", "away", "us-east", forced)
	m.settled("us-east", "us-east", "eu-central")
	first, report := m.report("us-east", nil)
	m.checkFirst(&report.Report, void)
	east := door(t, m.Lab, "us-east", 1)
	for n := range 30 {
		m.send(east, fmt.Sprintf("tail-%d", n))
	}
	m.back()
	d := m.divergence("eu-west")
	ask := &pb.RepublishDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "eu-west is back", DryRun: true}
	republish := func() (last *pb.RepublishDivergenceResponse) {
		m.until("it is republished", func() error { // the link may not be up yet
			return m.desk("eu-west").RepublishDivergence(t.Context(), ask, func(r *pb.RepublishDivergenceResponse) error { last = r; return nil })
		})
		return last
	}
	if r := republish(); r.GetPreview() == "" || fatesOf(r.GetDivergence())[loss.Open] != d.GetRecords() {
		t.Errorf("a dry run: %v", r)
	}
	ask.DryRun = false
	for range 2 { // the second time there is nothing left to do
		got := republish().GetDivergence()
		if fates := fatesOf(got); fates[loss.Present] != 30 || fates[loss.Republished] < 10 || fates[loss.Open]+fates[loss.Refused]+fates[loss.Kept] != 0 || got.GetSettled() != "republished" {
			t.Errorf("%v, %q", fates, got.GetSettled())
		}
	}
	m.others(d)
	_, second := m.report("eu-west", first)
	m.checkSecond(&second.Report, void)
	m.until("the authority knows that it is settled", func() error {
		for _, d := range m.at("us-east").Divergences {
			if d.Fate != placement.Republished {
				return fmt.Errorf("%+v", d)
			}
		}
		return nil
	})
	m.everywhere("us-east", 50)
	m.move("us-east", "back", "eu-west")
	m.settled("eu-west", "us-east", "eu-west")
	m.everywhere("eu-west", 50)
}

// others republishes what the third copy had ahead of the new home: all of it is there.
func (m *moved) others(first *pb.Divergence) {
	m.Helper()
	r, err := m.desk("eu-central").Divergences(m.Context(), &pb.ListDivergencesRequest{})
	if err != nil {
		m.Fatal(err)
	}
	for _, d := range r.GetDivergences() {
		var last *pb.Divergence
		ask := &pb.RepublishDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "it was ahead"}
		m.until("it is republished", func() error {
			return m.desk("eu-central").RepublishDivergence(m.Context(), ask, func(r *pb.RepublishDivergenceResponse) error { last = r.GetDivergence(); return nil })
		})
		if fates := fatesOf(last); fates[loss.Present] != d.GetRecords() || d.GetTo() > first.GetTo() {
			m.Errorf("%v of %v", fates, d)
		}
	}
}

// checkSecond: the report after the return holds exactly what producers were told, by id.
func (m *moved) checkSecond(r *loss.Report, void []api.Ack) {
	m.Helper()
	if !r.Truth.Holds() || r.Truth.Lost != 0 {
		m.Errorf("%s", r.Markdown())
	}
	key := m.node("eu-west").TailKey(r.Move.Incarnation)
	have := map[uint64]string{}
	for _, f := range r.Truth.Records {
		have[f.Sequence] = f.Hash
	}
	for _, a := range void {
		h := key.Hash(a.ID)
		if have[a.Sequence] != hex.EncodeToString(h[:]) {
			m.Errorf("order %s was acknowledged at %d, and the report has %q there", a.ID, a.Sequence, have[a.Sequence])
		}
		delete(have, a.Sequence)
	}
	if len(have) > 2 { // stored, and their acks lost with the link
		m.Errorf("%d records that nobody was told of: %v", len(have), have)
	}
}

// everywhere: each order that was ever acknowledged is in every region once.
func (m *moved) everywhere(home string, orders int) {
	m.Helper()
	m.until("every order is in every region", func() error {
		for _, r := range m.Regions() {
			seen := map[string]int{}
			for _, rec := range m.holds(r.Name) {
				seen[rec.GetRecord().GetId()]++
			}
			m.mu.Lock()
			for id := range m.acks {
				if seen[id] != 1 {
					m.mu.Unlock()
					return fmt.Errorf("%s has %s %d times", r.Name, id, seen[id])
				}
			}
			m.mu.Unlock()
		}
		return nil
	})
	if have := len(m.holds(home)); have < orders {
		m.Errorf("%d orders, of %d", have, orders)
	}
}

// TestR14g_TwoPeopleDiscard: what is not wanted is given up by two people and nobody less,
// for exactly what was looked at, and stays readable in the old home.
func TestR14g_TwoPeopleDiscard(t *testing.T) {
	m := moving(t, "", lab.Options{})
	void := m.tail(4, 4)
	m.move("us-east", "away", "us-east", forced)
	m.settled("us-east", "us-east", "eu-central")
	m.back()
	d := m.divergence("eu-west")
	ask := &pb.DiscardDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "test data"}
	what := "discard:" + d.GetHash()
	for name, approvals := range map[string][]string{
		"nobody":            nil,
		"the same person":   {m.consent("dev", what, approval.Incident)},
		"of something else": {m.consent("anna", "discard:another", approval.Incident)},
		"in another role":   {m.consent("anna", what, approval.Operator)},
	} {
		ask.Approvals = approvals
		if _, err := m.desk("eu-west").DiscardDivergence(t.Context(), ask); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	ask.Approvals = []string{m.consent("anna", what, approval.Incident)}
	for range 2 {
		r, err := m.desk("eu-west").DiscardDivergence(t.Context(), ask)
		if err != nil || r.GetDivergence().GetSettled() != "discarded" {
			t.Fatal(r, err)
		}
	}
	var ids []string
	err := m.desk("eu-west").ReadDivergence(t.Context(), &pb.ReadDivergenceRequest{Topic: "orders", Whole: true}, func(r *pb.ReadDivergenceResponse) error {
		for _, rec := range r.GetRecords() {
			if rec.GetFate() != string(loss.Discarded) {
				t.Errorf("%v", rec)
			}
			ids = append(ids, rec.GetRecord().GetId())
		}
		return nil
	})
	for _, a := range void {
		if err != nil || !slices.Contains(ids, a.ID) {
			t.Errorf("%s is not to be read any more: %v", a.ID, err)
		}
	}
	again := &pb.RepublishDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "after all"}
	if err := m.desk("eu-west").RepublishDivergence(t.Context(), again, func(*pb.RepublishDivergenceResponse) error { return nil }); api.CodeOf(err) != api.Conflict {
		t.Errorf("republished after all: %v", err)
	}
}
