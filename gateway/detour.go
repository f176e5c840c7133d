package gateway

import (
	"slices"

	"domicile/api"
	"domicile/regions"
)

// choose is the route of a record whose topic says route: within_boundary. What an earlier
// try may have left in a log goes there and nowhere else. Else the first choice is taken,
// and another log only while that one's home is cut off, in the order of FindDetours.
func (w *walk) choose(first Route) (Route, error) {
	g := w.gateway
	w.first = first.Log
	log, held := g.trails.find(w.record.Topic, w.record.ID)
	if !held && w.retry.Again && w.retry.Log != (api.LogID{}) {
		log, held = w.retry.Log, true
	}
	if !held && (first.Home == g.Self || !g.cutOff(first.Home)) {
		return first, nil
	}
	detours := FindDetours(w.topic, g.Federation, g.Placement, w.admission, first)
	if held {
		return w.stay(log, append(detours, first))
	}
	if w.retry.Again || !g.trails.complete() {
		return first, nil // an earlier try may be there: forward refuses it
	}
	for _, r := range detours {
		if g.reachable(w.topic, r.Home) == nil {
			return r, nil
		}
	}
	return first, nil
}

// stay is the route to the log that may hold an earlier try.
func (w *walk) stay(log api.LogID, routes []Route) (Route, error) {
	if i := slices.IndexFunc(routes, func(r Route) bool { return r.Log == log }); i >= 0 {
		return routes[i], nil
	}
	return Route{}, &api.Error{Code: api.HomeOutsideBoundary, Op: "route", Topic: w.topic.Name, Region: w.gateway.Self,
		Field: "retry.log", Revision: w.admission.Revision,
		Hint: "an earlier try may be in a log that may not keep the record any more: read that log before you send it again as a new record"}
}

// cutOff reports whether nothing can be sent to a region: its link is down, or there is
// none. What is slow is not cut off, nor is a region that declares the topic otherwise.
func (g *Gateway) cutOff(peer string) bool {
	s, ok := g.Links.Status(peer)
	return !ok || !s.Up
}

// leaveTrail notes where the record goes, before it does. over must be called with the
// outcome before that is told. false: it may only go to its first choice.
func (w *walk) leaveTrail() (over func(error), ok bool) {
	if w.topic.Route != regions.RouteWithinBoundary {
		return func(error) {}, true
	}
	return w.gateway.trails.begin(w.record.Topic, w.record.ID, w.route.Log, w.route.Log != w.first)
}

// noDetour refuses a record that went another way if that could be remembered.
func (g *Gateway) noDetour(w *walk) error {
	return &api.Error{Code: api.HomeUnreachable, Op: "forward", Topic: w.topic.Name, Region: w.route.Home, RetryAfter: g.Pace.Of(retryDetour),
		Hint: "the record's log cannot be remembered just now, so it might be stored in two; nothing was stored; send it again with the same id"}
}
