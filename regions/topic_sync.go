package regions

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
)

// checkSync refuses what could not be kept: every log of the topic needs its whole set.
func (t *Topic) checkSync(f *state, field func(string) string) error {
	s := t.Sync
	if s == nil {
		return nil
	}
	area, ok := f.boundaries[s.Within]
	switch {
	case !ok:
		return bad(field("sync.within"), s.Within, suggest("unknown boundary", s.Within, f.boundaryNames()))
	case s.Copies < 2:
		return bad(field("sync.copies"), fmt.Sprint(s.Copies), "at least 2: the home and one more")
	case s.Copies > len(area.Regions):
		return bad(field("sync.copies"), fmt.Sprint(s.Copies), fmt.Sprintf("boundary %s has %d regions", s.Within, len(area.Regions)))
	case s.WhenShort == "degrade":
		return notYet(field("sync.when_short"), s.WhenShort, "this version refuses records while a copy is missing: write refuse")
	case s.WhenShort != "refuse":
		return bad(field("sync.when_short"), s.WhenShort, "write refuse: records are refused while a copy is missing")
	case t.Durability == Relaxed:
		return bad(field("sync"), Relaxed, "durability: relaxed acknowledges before the disk has the record, sync only after two regions have it: choose one")
	}
	for _, home := range t.Regions {
		if !slices.Contains(area.Regions, home) {
			return bad(field("sync.within"), s.Within, "the home "+home+" lies outside of it: every log needs its copies inside its own boundary")
		}
		if members := t.members(f, home, home); len(members) < s.Copies {
			return bad(field("sync.copies"), fmt.Sprint(s.Copies), fmt.Sprintf("of the log in %s only %s in %s: name more under mirror, and link them with %s",
				home, haveIt(members), s.Within, home))
		}
	}
	return nil
}

func haveIt(members []string) string {
	if len(members) == 1 {
		return members[0] + " holds the records"
	}
	return strings.Join(members, " and ") + " hold the records"
}

// members lists the home and the regions of the sync boundary that get a copy from it, by
// name, at most as many as the topic asks for. first is where the manifest puts the log.
func (t *Topic) members(f *state, home, first string) []string {
	members := []string{home}
	for _, r := range f.boundaries[t.Sync.Within].Regions {
		if len(members) < t.Sync.Copies && r != home && slices.Contains(t.holders(first), r) && slices.Contains(f.links[home], r) {
			members = append(members, r)
		}
	}
	return members
}

// SyncSet lists the regions that have a record of the log before it is acknowledged: its
// home, then the others by name. nil for a log whose acks wait for the home alone.
func (f *Federation) SyncSet(log api.LogID) []string {
	now := f.now.Load()
	t := now.topics[log.Topic]
	if t == nil || t.Sync == nil {
		return nil
	}
	home, _, ok := now.home(log)
	if !ok {
		return nil
	}
	first, _ := now.firstHome(log)
	return t.members(now, home, first)
}

func (s *Sync) text() string {
	return fmt.Sprintf("%d copies within %s, when short %s", s.Copies, s.Within, s.WhenShort)
}

func equalSync(a, b *Topic) bool {
	if a.Sync == nil || b.Sync == nil {
		return a.Sync == b.Sync
	}
	return *a.Sync == *b.Sync && slices.Equal(a.Mirror, b.Mirror) && slices.Equal(a.Regions, b.Regions)
}
