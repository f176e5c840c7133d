package regions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"domicile/api"
)

// Role is what a region keeps of a log.
type Role string

// The roles. A region without one holds nothing of the log.
const (
	RoleNone Role = ""
	RoleHome Role = "home"
	RoleCopy Role = "copy"
)

// Role is what the manifest gives a region of a log.
func (f *Federation) Role(log api.LogID, region string) Role {
	now := f.now.Load()
	home, _, ok := now.home(log)
	switch {
	case ok && home == region:
		return RoleHome
	case ok && slices.Contains(now.targets(log), region):
		return RoleCopy
	}
	return RoleNone
}

// The kinds of TopicChange and of LogStep.
const (
	Declare = "declare" // a topic, or this region's part of a log, is new
	Alter   = "alter"   // it is declared otherwise
	Remove  = "remove"  // it is not served any more; its data stays
)

// TopicChange is one topic that two manifests declare differently.
type TopicChange struct {
	Topic  string
	Do     string   // Declare, Alter or Remove
	Fields []string // of Alter: "field: before | after", sorted
}

// LogStep is what one region does with one log to carry out a change.
type LogStep struct {
	Log  api.LogID
	Do   string // Declare: open it; Alter: give it other bounds; Remove: close it
	Role Role   // what the region is to have of it; of Remove: what it had
}

// Plan is how a region gets from one manifest to the next while it runs.
type Plan struct {
	Topics []TopicChange // by name
	Logs   []LogStep     // by log; only what this region holds
	// Shortened lists the home logs of this region that keep less than before: what is
	// not copied yet may be lost by it.
	Shortened []api.LogID
}

// Texts names what becomes of each topic, for an audit: "orders: alter (hold: false | true)".
func (p *Plan) Texts() []string {
	out := make([]string, len(p.Topics))
	for i, t := range p.Topics {
		out[i] = t.Topic + ": " + t.Do
		if len(t.Fields) > 0 {
			out[i] += " (" + strings.Join(t.Fields, "; ") + ")"
		}
	}
	return out
}

// PlanChange compares two manifests for region self. It refuses with ConfigInvalid,
// naming the field, what a running node cannot change: the federation, the regions,
// boundaries, links and voters, and whatever would make another region the home of a log.
// Logs are where now has them placed.
func PlanChange(now, next *Federation, self string) (Plan, error) {
	a := now.Snapshot()
	b := newFederation(next.now.Load().with(a.now.Load().placed))
	if err := fixed(a.now.Load(), b.now.Load()); err != nil {
		return Plan{}, err
	}
	var p Plan
	names := slices.Concat(a.Topics(), b.Topics())
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if a.TopicDigest(name) == b.TopicDigest(name) {
			continue
		}
		before, _ := a.Topic(name)
		after, _ := b.Topic(name)
		change, err := changeOf(name, before, after)
		if err != nil {
			return Plan{}, err
		}
		p.Topics = append(p.Topics, change)
		p.steps(a, b, self, before, after)
	}
	slices.SortFunc(p.Logs, func(x, y LogStep) int { return strings.Compare(x.Log.String(), y.Log.String()) })
	return p, nil
}

// fixed refuses a change of what a node opens with.
func fixed(a, b *state) error {
	restart := func(field, value string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "reload manifest", Field: field, Value: value,
			Hint: "a running node changes topics only: restart the nodes of this region with the new federation.yaml; nothing was changed"}
	}
	if a.name != b.name {
		return restart("federation", b.name)
	}
	for _, part := range []struct {
		field         string
		before, after map[string]string
	}{
		{"regions", a.regionTexts(), b.regionTexts()},
		{"boundaries", a.boundaryTexts(), b.boundaryTexts()},
		{"links", a.linkTexts(), b.linkTexts()},
	} {
		if diffs := Differences(part.before, part.after); len(diffs) > 0 {
			name, values, _ := strings.Cut(diffs[0], ": ")
			return restart(part.field+"."+name, values)
		}
	}
	if !slices.Equal(a.voters, b.voters) {
		return restart("authority.voters", quoteEmpty(strings.Join(a.voters, ","))+" | "+quoteEmpty(strings.Join(b.voters, ",")))
	}
	if a.witness != b.witness {
		return restart("authority.witness", quoteEmpty(a.witness.Name+" "+a.witness.Link)+" | "+quoteEmpty(b.witness.Name+" "+b.witness.Link))
	}
	if before, after := drillsText(a.drills), drillsText(b.drills); before != after {
		return restart("drills", quoteEmpty(before)+" | "+quoteEmpty(after))
	}
	return nil
}

func drillsText(d *Drills) string {
	if d == nil {
		return ""
	}
	return d.String()
}

// changeOf names what becomes of a topic; before or after is nil for one that is new
// or removed.
func changeOf(name string, before, after *Topic) (TopicChange, error) {
	switch {
	case before == nil:
		return TopicChange{Topic: name, Do: Declare}, nil
	case after == nil:
		return TopicChange{Topic: name, Do: Remove}, nil
	}
	refuse := func(field, old, next, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "reload manifest", Topic: name, Field: "topics." + name + "." + field,
			Value: quoteEmpty(old) + " | " + quoteEmpty(next), Hint: hint + "; nothing was changed"}
	}
	const moves = "a manifest moves no log to another home: have the authority move it, or declare a topic of another name"
	switch {
	case before.Writes != after.Writes:
		return TopicChange{}, refuse("writes", string(before.Writes), string(after.Writes), moves)
	case before.Home != after.Home:
		return TopicChange{}, refuse("home", before.Home, after.Home, moves)
	case before.Movable() != after.Movable():
		return TopicChange{}, refuse("failover.mode", before.Failover.Mode, after.Failover.Mode, "whether a log may move is settled when it is opened: restart the region's nodes")
	case before.Durability != after.Durability:
		return TopicChange{}, refuse("durability", before.Durability, after.Durability, "a log's class is fixed while it is open: restart the region's nodes")
	case !equalSync(before, after):
		return TopicChange{}, refuse("sync", before.Fields()["sync"], after.Fields()["sync"],
			"the regions whose copies an ack waits for are fixed while a log is open, and with them its mirror list and regions: restart the region's nodes")
	}
	return TopicChange{Topic: name, Do: Alter, Fields: Differences(before.Fields(), after.Fields())}, nil
}

// steps adds what region self does with the logs of one topic.
func (p *Plan) steps(a, b *Federation, self string, before, after *Topic) {
	logs := map[api.LogID]bool{}
	for f, t := range map[*Federation]*Topic{a: before, b: after} {
		if t != nil {
			for _, id := range f.Logs(t) {
				logs[id] = true
			}
		}
	}
	for id := range logs {
		had, has := a.Role(id, self), b.Role(id, self)
		switch {
		case had == has && has == RoleNone:
		case had == RoleNone:
			p.Logs = append(p.Logs, LogStep{Log: id, Do: Declare, Role: has})
		case has == RoleNone:
			p.Logs = append(p.Logs, LogStep{Log: id, Do: Remove, Role: had})
		default: // the home never changes, so had is has
			p.Logs = append(p.Logs, LogStep{Log: id, Do: Alter, Role: has})
			if has == RoleHome && Shorter(before, after) {
				p.Shortened = append(p.Shortened, id)
			}
		}
	}
	slices.SortFunc(p.Shortened, func(x, y api.LogID) int { return strings.Compare(x.String(), y.String()) })
}

// Shorter reports whether after lets retention take records that before keeps: a bound
// is lower, or mirrors are not waited for any more.
func Shorter(before, after *Topic) bool {
	return after.Retention.MaxAge < before.Retention.MaxAge || after.Retention.MaxBytes < before.Retention.MaxBytes ||
		before.Hold && !after.Hold
}

func (s *state) regionTexts() map[string]string {
	texts := map[string]string{}
	for name, r := range s.regions {
		texts[name] = "link " + strings.Join(r.Links(), ",")
		if r.Quorum() {
			texts[name] = fmt.Sprintf("gateways %v", r.Gateways)
		}
	}
	return texts
}

func (s *state) boundaryTexts() map[string]string {
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.boundaries)) {
		texts[name] = strings.Join(s.boundaries[name].Regions, ",")
	}
	return texts
}

func (s *state) linkTexts() map[string]string {
	texts := map[string]string{}
	for name, peers := range s.links {
		texts[name] = strings.Join(peers, ",")
	}
	return texts
}
