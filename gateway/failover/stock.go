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

// atOnce bounds what is read of a log at one time.
var atOnce = regions.ReadLimit{Records: 1000, Bytes: 4 << 20}

// Stock is what the logs of this region hold, as far as it is stored: which tags, and a
// digest of the records. It reads each record once. What a log holds does not depend on any
// policy, and a policy asks for nothing but tags: so a policy that came into force since is
// asked about the tags, and nothing is read again. The zero value is ready; it is safe for
// concurrent use.
type Stock struct {
	mu   sync.Mutex
	logs map[api.LogID]*holding
}

// holding is what one log was found to hold, for whoever has the turn.
type holding struct {
	turn chan struct{} // cap 1: one reads at a time
	found
}

// found is what a log holds up to a place in it.
type found struct {
	incarnation string
	upTo        place
	tags        map[string]uint64 // api.TagString → the last sequence with these tags
	digest      digest
	doubt       *place // the last before the first item that could not be read; nil: all could
}

// place is an item of a log. A log that has the same item at the same sequence holds the
// same before it: within an epoch and a writer's term a sequence is given once.
type place struct {
	sequence uint64
	epoch    api.Epoch
	term     uint64
	at       int64 // ingest time, in nanoseconds
	gap      regions.GapKind
}

func placeOf(it *regions.Item) place {
	p := place{sequence: it.Sequence, epoch: it.Epoch, term: it.Term, at: it.Time.UnixNano()}
	if it.Gap != nil {
		p.gap = it.Gap.Kind
	}
	return p
}

// Tags lists the tags of what a log stores now, each as api.TagString, sorted. It reads
// what came since it was asked last, until ctx ends.
func (s *Stock) Tags(ctx context.Context, log regions.Log) (tags []string, err error) {
	err = s.with(ctx, log, func(h *holding, head regions.Head) {
		tags = slices.Sorted(maps.Keys(h.tags))
	})
	return tags, err
}

// Sum names the records that a log holds, from some sequence to its end, in a form that is
// the same wherever they are held. "": it can't say, there are too few.
func (s *Stock) Sum(ctx context.Context, log regions.Log) (sum string, err error) {
	err = s.with(ctx, log, func(h *holding, head regions.Head) { sum = h.digest.sum(head.First, h.upTo.sequence) })
	return sum, err
}

// Match is what a log was found to be beside another one of the same records.
type Match string

// The three answers. NotCompared: this log no longer has the beginning of what the other
// one named, or the other one named nothing.
const (
	NotCompared Match = ""
	Same        Match = "same"
	Different   Match = "different"
)

// Matches holds what a log holds against the sum of another one that ends where it does.
func (s *Stock) Matches(ctx context.Context, log regions.Log, sum string) (m Match, err error) {
	err = s.with(ctx, log, func(h *holding, _ regions.Head) { m = h.digest.matches(sum, h.upTo.sequence) })
	return m, err
}

// warmReads bounds what one call of Warm reads.
const warmReads = 4

// Warm reads a little of what came since a log was read last, so that whoever asks finds
// little left to read. read: there was something.
func (s *Stock) Warm(ctx context.Context, log regions.Log) (read bool, err error) {
	h := s.of(log.ID())
	if err := h.enter(ctx); err != nil {
		return false, err
	}
	defer h.leave()
	head := log.Head()
	if h.incarnation == head.Incarnation && h.upTo.sequence == head.Sequence {
		return false, nil
	}
	return true, h.read(ctx, log, head, warmReads)
}

// with has f look at what a log holds, once all of it was read.
func (s *Stock) with(ctx context.Context, log regions.Log, f func(*holding, regions.Head)) error {
	h := s.of(log.ID())
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	if h.doubt != nil { // perhaps it can be read now
		h.upTo, h.doubt = *h.doubt, nil
		h.digest = digest{}
		h.digest.restart(h.upTo.sequence)
	}
	head := log.Head()
	if err := h.read(ctx, log, head, 0); err != nil {
		return err
	}
	f(h, head)
	return nil
}

func (s *Stock) of(id api.LogID) *holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs == nil {
		s.logs = map[api.LogID]*holding{}
	}
	h := s.logs[id]
	if h == nil {
		h = &holding{turn: make(chan struct{}, 1)}
		s.logs[id] = h
	}
	return h
}

// Retain forgets the logs that keep does not name, but for those that are being read now.
// One that is asked for again is read anew.
func (s *Stock) Retain(keep func(api.LogID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.logs, func(id api.LogID, h *holding) bool { return !keep(id) && len(h.turn) == 0 })
}

func (h *holding) enter(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &api.Error{Code: api.NotReady, Op: "read log", Err: ctx.Err(), Hint: "somebody else is reading the log; try again"}
	}
}

func (h *holding) leave() { <-h.turn }

// read reads on up to head, by so many reads at most; 0: by as many as it takes.
func (h *holding) read(ctx context.Context, log regions.Log, head regions.Head, most int) error {
	r, err := h.resume(ctx, log, head)
	if err != nil {
		return err
	}
	defer r.Close()
	h.prune(head.First)
	for n := 0; h.upTo.sequence < head.Sequence && (most == 0 || n < most); n++ {
		items, err := r.Next(ctx, atOnce)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return &api.Error{Code: api.NotReady, Op: "read log", Topic: log.ID().Topic, Hint: "the log gives less than it says that it has; try again"}
		}
		for i := range items {
			if !h.take(&items[i]) {
				return &api.Error{Code: api.Overloaded, Op: "read log", Topic: log.ID().Topic, Hint: "its records carry too many different tags to judge them all"}
			}
		}
	}
	return nil
}

// prune forgets the tags of which retention has taken all records.
func (h *holding) prune(first uint64) {
	maps.DeleteFunc(h.tags, func(_ string, last uint64) bool { return last < first })
}

// resume opens a reader that goes on where the log was read to, or at its first item if the
// log does not hold there what it held then: it went back to the end of an epoch, or
// retention has passed the place.
func (h *holding) resume(ctx context.Context, log regions.Log, head regions.Head) (regions.Reader, error) {
	if h.incarnation == head.Incarnation && h.upTo.sequence > 0 && h.upTo.sequence <= head.Sequence {
		r, err := log.Reader(ctx, h.upTo.sequence-1)
		if err != nil {
			return nil, err
		}
		items, err := r.Next(ctx, regions.ReadLimit{Records: 1, Bytes: 1})
		if err == nil && len(items) == 1 && placeOf(&items[0]) == h.upTo {
			return r, nil
		}
		r.Close()
		if err != nil {
			return nil, err
		}
	}
	before := max(head.First, 1) - 1
	h.found = found{incarnation: head.Incarnation, tags: map[string]uint64{}}
	h.digest.restart(before)
	return log.Reader(ctx, before)
}

// take notes an item; false: its tags are one set more than are kept, and it is left to be
// read again.
func (h *holding) take(it *regions.Item) bool {
	switch {
	case it.Gap == nil:
		tags := api.TagString(it.Record.Tags)
		if _, known := h.tags[tags]; !known && len(h.tags) >= maxTags {
			return false
		}
		h.tags[tags] = it.Sequence
		h.digest.add(it)
	case it.Gap.Kind == regions.Damaged:
		if h.doubt == nil {
			before := h.upTo
			h.doubt = &before
		}
		h.digest.damaged = it.Sequence
	case it.Gap.Kind != regions.Withheld && it.Gap.Kind != regions.Void:
		h.digest.restart(it.Sequence) // it was here, and was taken
	}
	h.upTo = placeOf(it)
	return true
}
