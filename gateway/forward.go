package gateway

import (
	"context"
	"errors"
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
		ack.Forwarded = true
		w.settle(ack, nil)
	})
}

// verify refuses to pass on an ack that is not the answer to what was sent.
func (w *walk) verify(ack api.Ack) error {
	if ack.ID == w.record.ID && ack.Log == w.route.Log && ack.Region == w.route.Home && ack.Sequence > 0 {
		return nil
	}
	return errors.New("the home's answer does not fit the record")
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
