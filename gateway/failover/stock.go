package failover

import (
	"context"
	"maps"
	"slices"
	"sync"

	"domicile/api"
	"domicile/regions"
)

// maxTags bounds the different sets of tags that are kept of a log.
const maxTags = 10_000

// Stock is which tags the records of a log carry, as far as they are stored. It reads each
// record once. The zero value is ready; it is safe for concurrent use.
type Stock struct {
	mu   sync.Mutex
	logs map[api.LogID]*stocked
}

type stocked struct {
	incarnation string
	upTo        uint64
	last        map[string]uint64 // api.TagString → the last sequence with these tags
}

// Tags lists the tags of what a log stores now, each as api.TagString, sorted. It reads
// what came since it was asked last, until ctx ends.
func (s *Stock) Tags(ctx context.Context, log regions.Log) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs == nil {
		s.logs = map[api.LogID]*stocked{}
	}
	head := log.Head()
	have := s.logs[log.ID()]
	if have == nil || have.incarnation != head.Incarnation || have.upTo > head.Sequence {
		have = &stocked{incarnation: head.Incarnation, last: map[string]uint64{}}
		s.logs[log.ID()] = have
	}
	if err := have.read(ctx, log, head); err != nil {
		return nil, err
	}
	maps.DeleteFunc(have.last, func(_ string, last uint64) bool { return last < head.First })
	return slices.Sorted(maps.Keys(have.last)), nil
}

func (h *stocked) read(ctx context.Context, log regions.Log, head regions.Head) error {
	if h.upTo >= head.Sequence {
		return nil
	}
	r, err := log.Reader(ctx, h.upTo)
	if err != nil {
		return err
	}
	defer r.Close()
	for h.upTo < head.Sequence {
		items, err := r.Next(ctx, regions.ReadLimit{Records: 1_000, Bytes: 4 << 20})
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return &api.Error{Code: api.NotReady, Op: "read log", Topic: log.ID().Topic, Hint: "the log gives less than it says that it has; try again"}
		}
		for i := range items {
			if it := &items[i]; it.Gap == nil {
				h.last[api.TagString(it.Record.Tags)] = it.Sequence
			}
			h.upTo = items[i].Sequence
		}
		if len(h.last) > maxTags {
			return &api.Error{Code: api.Overloaded, Op: "read log", Topic: log.ID().Topic, Hint: "its records carry too many different tags to judge them all"}
		}
	}
	return nil
}
