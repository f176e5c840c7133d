package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/strict"
)

// Publish walks one record to its home and returns as soon as it was handed over;
// it never waits for another region. done is called exactly once, possibly before
// Publish returns and from any goroutine, and must not block. away, unless it is nil, is
// called, at most once, when the record was handed to another region: this region holds
// nothing of it any more, although its outcome is open.
//
// A deadline of ctx shortens the forward; the end of ctx alone takes nothing back.
func (g *Gateway) Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
	w := &walk{gateway: g, record: r, who: who, done: done}
	if !g.enter() {
		done(api.Ack{}, errShuttingDown)
		return
	}
	if err := w.check(); err != nil {
		w.settle(api.Ack{}, err)
		return
	}
	for {
		w.pass = g.Gate.Enter()
		route, err := w.judge()
		if w.pass.Stale() {
			w.pass.Leave()
			continue
		}
		if err != nil {
			w.settle(api.Ack{}, err)
			return
		}
		w.route = route
		if route.Home == g.Self {
			g.store(w.record, w.route, w.admission.Revision, w.settle)
			return
		}
		g.forward(ctx, w)
		if away != nil {
			away()
		}
		return
	}
}

// walk is one record on its way. It belongs to one goroutine until it is handed
// over; then to whoever settles it.
type walk struct {
	gateway   *Gateway
	record    api.Record
	who       regions.Principal
	topic     *regions.Topic
	made      bool // we made the id
	retry     api.Retry
	first     api.LogID // of a topic with route: within_boundary: the log of its first choice
	pass      *policy.Pass
	admission policy.Admission
	route     Route
	done      func(api.Ack, error)
}

// check refuses what breaks the public contract, and gives the record an id if it
// has none.
func (w *walk) check() error {
	t, err := w.gateway.topic(w.record.Topic)
	if err != nil {
		return err
	}
	w.topic = t
	w.retry, w.record.Retry = w.record.Retry, api.Retry{}
	if err := w.record.Check(); err != nil {
		return err
	}
	if w.record.ID == "" {
		w.record.ID, w.made = rand.Text(), true
	}
	return nil
}

// judge asks the policy and finds the route, all under one generation.
func (w *walk) judge() (Route, error) {
	g := w.gateway
	var err error
	if w.admission, err = w.pass.Admit(&w.record, w.who, g.Self); err != nil {
		return Route{}, err
	}
	route, err := FindRoute(w.topic, g.Placement, w.admission, g.Self)
	if err == nil && w.topic.Route == regions.RouteWithinBoundary {
		route, err = w.choose(route)
	}
	if err == nil {
		err = InSet(w.topic, g.Federation, w.admission, route)
	}
	if err != nil || route.Home == g.Self {
		return route, err
	}
	return route, w.pass.Transit(&w.record, w.who)
}

// settle tells the outcome, once.
func (w *walk) settle(ack api.Ack, err error) {
	name := ""
	if w.topic != nil {
		name = w.topic.Name
	}
	ack.IDMade = w.made && err == nil
	w.gateway.Counters.Published(name, w.route.Home, api.CodeOf(err))
	w.done(ack, err)
	if w.pass != nil {
		w.pass.Leave() // a new policy is reported active once this outcome was told
	}
	w.gateway.leave()
}

// store hands an admitted record to the writer of its log in this region.
func (g *Gateway) store(r api.Record, route Route, revision string, settle func(api.Ack, error)) {
	log, ok := g.Homes(route.Log)
	if !ok && g.Shut != nil && g.Shut(route.Log) != nil {
		settle(api.Ack{}, &api.Error{Code: api.StorageFailed, Op: "store", Topic: r.Topic, Region: g.Self,
			Hint: "the log is damaged on the disk of its home and stays shut; nothing was stored: domicile status there says why"})
		return
	}
	if !ok {
		settle(api.Ack{}, &api.Error{Code: api.NotReady, Op: "store", Topic: r.Topic, Region: g.Self,
			Hint: "the log is not open yet; send it again with the same id"})
		return
	}
	log.Append(regions.Draft{Record: r, Revision: revision}, func(s regions.Stored) {
		if s.Err != nil {
			settle(api.Ack{}, mayBeIn(route.Log, ours(s.Err, "store", r.Topic, g.Self)))
			return
		}
		settle(g.ackOf(&r, route, s), nil)
	})
}

func (g *Gateway) ackOf(r *api.Record, route Route, s regions.Stored) api.Ack {
	away := r.EventTime.Sub(s.Time).Abs()
	var position api.Position
	if s.Position.Epoch != (api.Epoch{}) { // else nothing can be read from there any more
		position = api.EncodePosition([]api.Cursor{{Log: route.Log, Incarnation: s.Position.Incarnation,
			Epoch: s.Position.Epoch, Sequence: s.Position.Sequence}})
	}
	return api.Ack{
		ID: r.ID, Topic: r.Topic, Log: route.Log, Region: g.Self,
		Incarnation: s.Position.Incarnation, Epoch: s.Position.Epoch, WriterTerm: s.Term, Sequence: s.Position.Sequence,
		IngestTime: s.Time, Durability: s.Done, Duplicate: s.Duplicate, PolicyRevision: s.Revision, Copies: s.Copies, Unconfirmed: s.Unconfirmed,
		EventTimeOdd: !r.EventTime.IsZero() && away > api.EventTimeSlack,
		Position:     position,
	}
}

// ours makes sure that an error has a code: what has none says nothing about the
// record, so its outcome is unknown.
func ours(err error, op, topic, region string) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.OutcomeUnknown, Op: op, Topic: topic, Region: region, Err: err, Hint: "send it again with the same id"}
}

// mayBeIn names, in an error that leaves the outcome open, the log that may hold the
// record.
func mayBeIn(log api.LogID, err error) error {
	e, ok := err.(*api.Error)
	if !ok || e.Code.Stored() != api.StoredUnknown || e.Log == log {
		return err
	}
	named := *e
	named.Log = log
	return &named
}

// topic finds a topic's declaration, or says why there is none.
func (g *Gateway) topic(name string) (*regions.Topic, error) {
	if t, ok := g.Federation.Topic(name); ok {
		return t, nil
	}
	if err := regions.CheckName(name); err != nil {
		return nil, &api.Error{Code: api.BadName, Op: "find topic", Field: "topic", Hint: err.Error()}
	}
	hint := "declare it in federation.yaml and in the policy's catalog"
	if near := strict.Nearest(name, g.Federation.Topics()); near != "" {
		hint = `did you mean "` + near + `"?`
	}
	return nil, &api.Error{Code: api.UnknownTopic, Op: "find topic", Field: "topic", Hint: hint}
}

// deadline is the time a forward has, on our clock.
func (g *Gateway) deadline(ctx context.Context) time.Time {
	left := g.Pace.Of(ForwardDeadline)
	if d, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(d))
	}
	return g.Clock.Now().Add(left)
}
