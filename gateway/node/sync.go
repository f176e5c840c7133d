package node

import (
	"maps"
	"slices"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/syncset"
)

// synced is a log of a topic whose acks wait for other regions, at its home or in a region
// of its sync set.
type synced struct {
	home *syncset.Home // nil: this region has a copy
	mark *syncset.Mark // of a copy
	view *syncset.View // of a copy; nil until it is open
}

func (s *synced) close() {
	if s != nil && s.home != nil {
		s.home.Close()
	}
}

func (s *synced) state() string {
	switch {
	case s == nil:
	case s.home != nil:
		return s.home.State()
	case s.view != nil:
		return s.view.State()
	}
	return ""
}

// wait makes the acks of a home log wait for the rest of its sync set, if it has one. b.mu
// is held.
func (b *logBook) wait(id api.LogID, log regions.HomeLog, f *regions.Federation) {
	set := f.SyncSet(id)
	if len(set) == 0 {
		return
	}
	b.synced[id] = &synced{home: syncset.NewHome(syncset.Config{
		Log: log, Members: set[1:], Clock: b.clock, Pace: b.pace,
		Missing: func(member string) string {
			if s := b.source.Load(); s != nil {
				return s.Missing(id, member)
			}
			return "this region is opening its logs"
		},
	})}
}

// writable finds a log that this region owns as publishes see it.
func (b *logBook) writable(id api.LogID) (regions.HomeLog, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if log, ok := b.leased[id]; ok {
		return log, true
	}
	log := b.whole(id)
	return log, log != nil
}

// whole is a log that this region owns with all that its acks wait for; nil: it owns none.
// b.mu is held.
func (b *logBook) whole(id api.LogID) regions.HomeLog {
	if s := b.synced[id]; s != nil && s.home != nil {
		return s.home
	}
	return b.homes[id]
}

// shown is a home log as regions outside its sync set see it.
func (b *logBook) shown(log regions.HomeLog) regions.HomeLog {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if shown := b.whole(log.ID()); shown != nil {
		return shown
	}
	return log
}

// confirmed takes in where a copy in another region ends.
func (b *logBook) confirmed(id api.LogID, target string, c regions.Cursor) {
	b.mu.RLock()
	s := b.synced[id]
	b.mu.RUnlock()
	if s != nil && s.home != nil {
		s.home.Confirmed(target, c)
	}
}

// common is how far a copy here is common; nil: this region is not in the log's sync set.
func (b *logBook) common(id api.LogID) *syncset.Mark {
	set := b.federation.SyncSet(id)
	if len(set) == 0 || set[0] == b.self || !slices.Contains(set, b.self) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copyInSet(id).mark
}

// copyInSet is the state of a copy here that is in a sync set. b.mu is held.
func (b *logBook) copyInSet(id api.LogID) *synced {
	s := b.synced[id]
	if s == nil {
		s = &synced{mark: &syncset.Mark{}}
		b.synced[id] = s
	}
	return s
}

// readable lists the logs of a topic as readers see them: up to what is common.
func (b *logBook) readable(topic string) []regions.Log {
	logs := b.ofTopic(topic)
	for i, log := range logs {
		id := log.ID()
		mark := b.common(id)
		b.mu.Lock()
		switch s := b.synced[id]; {
		case s == nil:
		case s.home != nil:
			logs[i] = s.home
		case mark != nil && s.mark == mark:
			if s.view == nil {
				s.view = syncset.NewView(log, mark)
			}
			logs[i] = s.view
		}
		b.mu.Unlock()
	}
	return logs
}

// closeSynced tells what waits for other regions that nobody knows.
func (b *logBook) closeSynced() {
	b.mu.RLock()
	all := slices.Collect(maps.Values(b.synced))
	b.mu.RUnlock()
	for _, s := range all {
		s.close()
	}
}
