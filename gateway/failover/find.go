package failover

import (
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions/placement"
)

// LogOf finds the log that people mean by a topic and a slot; "" is the only log of a topic
// that has one.
func (s *Service) LogOf(topic, slot string) (api.LogID, error) {
	t, ok := s.Federation.Topic(topic)
	if !ok {
		return api.LogID{}, &api.Error{Code: api.UnknownTopic, Op: "find log", Field: "topic", Hint: "known: " + strings.Join(s.Federation.Topics(), ", ")}
	}
	logs := s.Federation.Logs(t)
	if slot == "" && len(logs) == 1 {
		return logs[0], nil
	}
	var slots []string
	for _, id := range logs {
		if id.Slot == slot {
			return id, nil
		}
		slots = append(slots, id.Slot)
	}
	return api.LogID{}, &api.Error{Code: api.BadRequest, Op: "find log", Topic: topic, Field: "log", Hint: "say which log of the topic: " + strings.Join(slots, ", ")}
}

// Placed is one log that may move, and what the authority was last heard to say of it.
type Placed struct {
	ID api.LogID
	placement.Log
}

// Placed lists the placements of one topic's logs, or of all, in the order of their names,
// and a channel that is closed when one is another.
func (s *Service) Placed(topic, slot string) ([]Placed, <-chan struct{}) {
	all, changed := s.Placements.Placements()
	var out []Placed
	for id, l := range all {
		if (topic == "" || id.Topic == topic) && (slot == "" || id.Slot == slot) {
			out = append(out, Placed{id, l})
		}
	}
	slices.SortFunc(out, func(a, b Placed) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return out, changed
}

// Offers lists the regions that a log may be moved to from where it is, by name: those that
// its topic names, and in which all of it may rest.
func Offers(l *placement.Log) []string {
	return slices.DeleteFunc(slices.Clone(l.Terms.Targets), func(r string) bool {
		return r == l.Home || !slices.Contains(l.Terms.Allowed, r)
	})
}
