package gateway

import (
	"context"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
)

// forward hands an admitted record to the link to its home, or refuses it at once.
// The record stays in memory, within the link's bounds for that one region.
func (g *Gateway) forward(ctx context.Context, w *walk) {
	if err := g.reachable(w.topic, w.route.Home); err != nil {
		w.settle(api.Ack{}, err)
		return
	}
	over, ok := w.leaveTrail()
	if !ok {
		w.settle(api.Ack{}, g.noDetour(w))
		return
	}
	f := regions.Forward{
		Record: w.record, Log: w.route.Log, Principal: w.who, Deadline: g.deadline(ctx),
		Serial: w.pass.Serial(), Revision: w.pass.Revision(),
	}
	g.Links.Forward(w.route.Home, f, func(ack api.Ack, err error) {
		if err == nil {
			err = w.verify(ack)
		}
		if err != nil {
			err = mayBeIn(w.route.Log, ours(err, "forward", w.record.Topic, w.route.Home))
		}
		over(err) // before the outcome is told: a retry may follow at once
		if err != nil {
			w.settle(api.Ack{}, err)
			return
		}
		ack.Forwarded, ack.Drill = true, "" // drills are told by the region that was asked
		w.settle(ack, nil)
	})
}

// verify refuses to pass on an ack of another region's that can't be true: it is not the answer to
// what was sent, or claims more than the region can do by our manifest. What became of the record
// nobody knows then.
func (w *walk) verify(ack api.Ack) error {
	field := w.untrue(&ack)
	if field == "" {
		return nil
	}
	g, home := w.gateway, w.route.Home
	if link, _ := g.Links.Status(home); link.Hello != nil && link.Hello.ManifestDigest == g.Federation.Digest() {
		g.Refused.Add(home, regions.LaneForward, regions.Impossible)
	}
	return &api.Error{Code: api.OutcomeUnknown, Op: "forward", Topic: w.record.Topic, Region: home, Field: field,
		Hint: "the home's answer does not fit the record and the manifest, and is not believed; send it again with the same id, and look at the region"}
}

// untrue is the part of an ack that can't be so; "": none.
func (w *walk) untrue(a *api.Ack) string {
	switch {
	case a.ID != w.record.ID:
		return "ack.id"
	case a.Log != w.route.Log:
		return "ack.log"
	case a.Region != w.route.Home:
		return "ack.region"
	case a.Sequence == 0:
		return "ack.sequence"
	case !api.IsWord(a.Incarnation, maxAckWord):
		return "ack.incarnation"
	case a.Epoch != (api.Epoch{}) && !api.IsWord(a.Epoch.Issuer, maxAckWord):
		return "ack.epoch"
	case a.PolicyRevision != "" && !api.IsWord(a.PolicyRevision, maxAckWord):
		return "ack.policy_revision"
	case !w.durable(a.Durability):
		return "ack.durability"
	case !w.copied(a.Copies):
		return "ack.copies"
	case a.Position != "" && !isPosition(a):
		return "ack.position"
	}
	return ""
}

const maxAckWord = 128 // bytes; see mirror

// durable reports whether the home can have done what an ack says before it was sent.
func (w *walk) durable(d api.Durability) bool {
	switch d {
	case api.OS1:
		return w.topic.Durability == regions.Relaxed
	case api.Disk2of3:
		home, _ := w.gateway.Federation.Region(w.route.Home)
		return home.Quorum()
	}
	return d == api.Disk1
}

// copied reports whether a record of the topic can have the copies that an ack names.
func (w *walk) copied(copies []string) bool {
	var within regions.Boundary
	if s := w.topic.Sync; s != nil {
		within, _ = w.gateway.Federation.Boundary(s.Within)
	}
	for i, region := range copies {
		if region == w.route.Home || !slices.Contains(within.Regions, region) || slices.Contains(copies[:i], region) {
			return false
		}
	}
	return true
}

// isPosition reports whether an ack's position is that of its record.
func isPosition(a *api.Ack) bool {
	at, err := api.DecodePosition(a.Position)
	return err == nil && len(at) == 1 && at[0] == api.Cursor{Log: a.Log, Incarnation: a.Incarnation, Epoch: a.Epoch, Sequence: a.Sequence}
}

// reachable says whether a topic's records may be sent to a region now: the link is
// up and both sides declare the topic alike.
func (g *Gateway) reachable(t *regions.Topic, peer string) error {
	s, ok := g.Links.Status(peer)
	if !ok {
		return &api.Error{Code: api.HomeUnreachable, Op: "forward", Topic: t.Name, Region: peer,
			Hint: "federation.yaml has no link to the region; publish there instead"}
	}
	if !s.Up {
		return g.homeUnreachable(t, s)
	}
	return g.agreed(t, s)
}

func (g *Gateway) homeUnreachable(t *regions.Topic, s regions.LinkStatus) error {
	e := &api.Error{Code: api.HomeUnreachable, Op: "forward", Topic: t.Name, Region: s.Peer, RetryAfter: time.Second,
		Hint: "nothing was stored; send it again with the same id once the link is up"}
	if !s.Since.IsZero() {
		e.For = max(g.Clock.Now().Sub(s.Since), time.Millisecond)
	}
	if o := t.OnHomeLoss; o != nil {
		e.Hint += "; " + o.Owner + " says: " + o.Text
	}
	return e
}

// agreed compares the declarations of a topic on both sides of a link. What is not
// known is not equal.
func (g *Gateway) agreed(t *regions.Topic, s regions.LinkStatus) error {
	if s.Hello == nil {
		return &api.Error{Code: api.HomeUnreachable, Op: "forward", Topic: t.Name, Region: s.Peer, RetryAfter: time.Second,
			Hint: "the region's manifest is not known yet; send it again with the same id"}
	}
	if s.Hello.TopicDigests[t.Name] == g.Federation.TopicDigest(t.Name) {
		return nil
	}
	e := &api.Error{Code: api.ManifestMismatch, Op: "forward", Topic: t.Name, Region: s.Peer, Field: "topics." + t.Name,
		Hint: "give both regions the same federation.yaml"}
	theirs, known := s.Hello.TopicFields[t.Name]
	if !known {
		e.Value = "not declared there"
	} else if diffs := regions.Differences(t.Fields(), theirs); len(diffs) > 0 {
		field, values, _ := strings.Cut(diffs[0], ": ")
		e.Field, e.Value = "topics."+t.Name+"."+field, values
	}
	return e
}

// Forwarded takes a record that a peer region sent here as its home. It never
// blocks; done is called exactly once and must not block. The record is judged again
// as published in the peer's region: the peer's word is taken only for who published
// it there.
func (g *Gateway) Forwarded(_ context.Context, peer string, f regions.Forward, done func(api.Ack, error)) {
	if !g.enter() {
		done(api.Ack{}, errShuttingDown)
		return
	}
	a := &arrival{gateway: g, peer: peer, Forward: f, done: done}
	if err := a.check(); err != nil {
		a.settle(api.Ack{}, err)
		return
	}
	for {
		pass := g.Gate.Enter()
		route, revision, err := a.judge(pass)
		if pass.Stale() {
			pass.Leave()
			continue
		}
		a.leave = pass.Leave
		if err != nil {
			a.settle(api.Ack{}, err)
			return
		}
		g.store(f.Record, route, revision, a.settle)
		return
	}
}
