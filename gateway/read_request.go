package gateway

import (
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// checkRequest fills in defaults and refuses what cannot be meant.
func (s *stream) checkRequest() error {
	q := &s.request
	bad := func(field, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "read", Topic: s.topic.Name, Field: field, Hint: hint}
	}
	if q.Records == 0 {
		q.Records = DefaultReadRecords
	}
	if q.Bytes == 0 {
		q.Bytes = DefaultReadBytes
	}
	starts := 0
	for _, set := range []bool{q.Position != "", !q.Time.IsZero(), q.Latest} {
		if set {
			starts++
		}
	}
	switch {
	case q.Records < 0 || q.Records > MaxReadRecords:
		return bad("max_records", "1 to 5000")
	case q.Bytes < 0 || q.Bytes > MaxReadBytes:
		return bad("max_bytes", "1 to 2097152")
	case starts > 1:
		return bad("from", "give a position, a time or latest, not two of them")
	case q.Position == "":
		return nil
	}
	cursors, err := api.DecodePosition(q.Position)
	if err != nil {
		return err
	}
	for _, c := range cursors {
		if c.Log.Topic != s.topic.Name {
			return &api.Error{Code: api.PositionInvalid, Op: "read", Topic: s.topic.Name, Field: "position", Hint: "it belongs to another topic"}
		}
		s.from[c.Log] = c
	}
	return nil
}

// nothingHere says why a topic has no log to read in this region.
func (g *Gateway) nothingHere(t *regions.Topic, slot string) *api.Error {
	e := &api.Error{Code: api.NotReady, Op: "read", Topic: t.Name, Region: g.Self, Field: "slot", Value: slot, RetryAfter: time.Second,
		Hint: "this region's copy is not open yet"}
	logs := g.Federation.Logs(t)
	if slot != "" {
		logs = slices.DeleteFunc(logs, func(l api.LogID) bool { return l.Slot != slot })
		if len(logs) == 0 {
			e.Code, e.RetryAfter, e.Hint = api.UnknownRegion, 0, "the topic has no log of this name"
			return e
		}
	}
	var homes []string
	for _, l := range logs {
		home, _, _ := g.Placement.Home(l)
		if home == g.Self || slices.Contains(g.Federation.Targets(l), g.Self) {
			return e
		}
		homes = append(homes, home)
	}
	e.Code, e.RetryAfter, e.Hint = api.BadRequest, 0, "no copy of it is kept in this region; read it in "+homes[0]
	return e
}
