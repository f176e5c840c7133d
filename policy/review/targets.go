package review

import (
	"slices"
	"strings"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// Target is a region that a log may move to under one of two policies and not under the
// other, from the home that the manifest gives it. A log that has moved since is asked
// anew when a move of it is planned.
type Target struct {
	Log    string `json:"log"`
	Home   string `json:"home"`
	Region string `json:"region"`
	Gained bool   `json:"gained"` // false: it may take the log no longer
	Why    string `json:"why"`    // not, under the policy that keeps the log from it
}

// targets lists what a policy gives to and takes from the declared targets of failover.
func targets(old, now *Table, f *regions.Federation) []Target {
	out := []Target{}
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, log := range f.Logs(topic) {
			home, ok := f.FirstHome(log)
			if !ok || !topic.Movable() {
				continue
			}
			for _, region := range topic.TargetsOf(home) {
				before, after := old.against(f, topic, log, home, region), now.against(f, topic, log, home, region)
				if (before == "") != (after == "") {
					out = append(out, Target{log.String(), home, region, after == "", before + after})
				}
			}
		}
	}
	return out
}

// against says why a region may not become the home of a log, "" if it may: what
// policy.Generation.MayHold says, from the answers alone, which are all that is known of a
// policy in force elsewhere.
func (t *Table) against(f *regions.Federation, topic *regions.Topic, log api.LogID, home, region string) string {
	var tags []string
	known := false
	for i := range t.Answers {
		a := &t.Answers[i]
		q := &a.Question
		if q.Point != policy.Admit || q.Topic != topic.Name {
			continue
		}
		known = true
		if !a.Allow || !policy.RoutedTo(f, topic, a.Regions, a.Destination, q.Origin, log.Slot) {
			continue
		}
		text := tagsOf(*q)
		if !slices.Contains(a.Regions, region) {
			return text + ": rests in " + strings.Join(a.Regions, " or ") + " only"
		}
		if slices.Contains(tags, text) {
			continue
		}
		tags = append(tags, text)
		if why := t.stops(q, f, home, region); why != "" {
			return text + ": " + why
		}
	}
	if !known {
		return "the policy does not know the topic"
	}
	return ""
}

// stops says what keeps records with a question's tags from going from one region to
// another and resting there.
func (t *Table) stops(q *policy.Question, f *regions.Federation, from, to string) string {
	if !f.MayRest(residencyOf(*q), to) {
		return policy.ReasonBoundary + ": they rest in their boundary only"
	}
	for _, point := range []policy.Point{policy.MirrorEgress, policy.MirrorIngress} {
		crossing := policy.Question{Point: point, Topic: q.Topic, Tags: q.Tags, Class: policy.None, Place: policy.None, Origin: from, Target: to}
		a, ok := t.find(crossing.String())
		if !ok || !a.Allow || len(a.obliged()) > 0 {
			return point.String() + " " + a.Says()
		}
	}
	return ""
}
