package mirror

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Tails keeps what homes say of their logs' tails, with where the copy here ends.
// *tail.Book is one.
type Tails interface {
	Hear(l regions.TailList, cursor uint64)
}

const (
	tailAhead     = 16_384 // sequences beyond the target's cursor that are told at most
	tailEntrySize = 32     // bytes on the wire, about
	tailListSize  = 128    // of a list without entries, about
	tailWithin    = 250 * time.Millisecond
)

// telling is what a target was told of a log's tail since the link came up.
type telling struct {
	link time.Time // since when it was up
	upto uint64
	seen uint64 // the head at the last look: what has waited since then is worth telling
}

// TellTail tells a target which records it does not have yet of the logs that may be
// moved there, those that were not told before, in lists of about budget bytes together.
// Each record is judged by the active policy, as if it left itself, and a list is
// sent under the policy it was judged by or not at all. Calls for one target come one at a
// time.
func (s *Source) TellTail(ctx context.Context, target string, budget int, send func(context.Context, regions.TailList) error) {
	for _, f := range s.tailsOf(target) {
		for budget > tailListSize+tailEntrySize && ctx.Err() == nil {
			n, err := f.tellTail(ctx, budget, send)
			if budget -= n; err != nil {
				s.cfg.Logger.Debug("a log's tail was not told", f.attrs("err", err)...)
			}
			if err != nil || n == 0 {
				break
			}
		}
	}
}

// tailsOf lists the flows to a target whose logs may be moved there, in random order: none
// comes always last.
func (s *Source) tailsOf(target string) []*flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	var flows []*flow
	for key, f := range s.flows {
		if key.Target == target && !f.ended && s.cfg.Movable(key.Log, target) {
			flows = append(flows, f)
		}
	}
	return flows
}

// tellTail sends one list and answers how many bytes it took, about; 0: there is nothing.
func (f *flow) tellTail(ctx context.Context, budget int, send func(context.Context, regions.TailList) error) (int, error) {
	from, to, ok := f.untold()
	if !ok {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.source.cfg.Pace.Of(tailWithin))
	defer cancel()
	pass := f.source.cfg.Enter()
	defer pass.Leave()
	entries, err := f.readTail(ctx, pass, from, to, min((budget-tailListSize)/tailEntrySize, regions.MaxTailEntries))
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	closed, head := f.log.ClosedInstant(), f.log.Head()
	if pass.Stale() {
		return 0, errAgain
	}
	if err := send(ctx, regions.TailList{Log: f.id, Incarnation: head.Incarnation, Epoch: head.Epoch, Key: f.source.cfg.TailKey(head.Incarnation),
		Head: head.Sequence, HeadTime: head.Time, Closed: closed, Entries: entries}); err != nil {
		return 0, err
	}
	f.mu.Lock()
	f.told.upto = max(f.told.upto, entries[len(entries)-1].Sequence)
	f.mu.Unlock()
	return tailListSize + len(entries)*tailEntrySize, nil
}

// untold is what the target was not told and does not have: the sequences (from, to].
// What came since the last look is left for the next: it may be there by then.
func (f *flow) untold() (from, to uint64, ok bool) {
	head := f.log.Head()
	link, _ := f.source.cfg.Link(f.target)
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.told
	if !t.link.Equal(link.Since) {
		*t = telling{link: link.Since} // what was on its way may be lost
	}
	to = min(t.seen, f.cursor.Sequence+tailAhead)
	t.seen = head.Sequence
	from = max(f.cursor.Sequence, t.upto)
	return from, to, f.met && link.Up && !head.Unsure && from < to
}

// readTail reads entries of the sequences (from, to].
func (f *flow) readTail(ctx context.Context, pass Pass, from, to uint64, most int) (entries []regions.TailEntry, err error) {
	reader, err := f.log.Reader(ctx, from)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	key := f.source.cfg.TailKey(f.log.Head().Incarnation)
	for last := from; last < to && len(entries) < most; {
		items, err := reader.Next(ctx, regions.ReadLimit{Records: min(scoutRecords, most-len(entries)), Bytes: scoutBytes})
		if err != nil || len(items) == 0 {
			return entries, err
		}
		for i := range items {
			item, _, err := f.egress(pass, items[i])
			if err != nil {
				return nil, err
			}
			last = item.Sequence
			entries = appendEntry(entries, &item, key)
		}
	}
	return entries, nil
}

// appendEntry appends what stands for an item, joined with the last one if both are gaps of
// one kind.
func appendEntry(entries []regions.TailEntry, i *regions.Item, key regions.TailKey) []regions.TailEntry {
	e := regions.TailEntry{From: first(i), Sequence: i.Sequence, Time: i.Time}
	if i.Gap == nil {
		e.ID, e.Bytes = key.Hash(i.Record.ID), uint32(i.Record.Size())
		return append(entries, e)
	}
	e.Kind = i.Gap.Kind
	if n := len(entries); n > 0 && entries[n-1].Kind == e.Kind && entries[n-1].Sequence+1 == e.From {
		entries[n-1].Sequence, entries[n-1].Time = e.Sequence, e.Time
		return entries
	}
	return append(entries, e)
}

// HearTail takes a peer's list of a log that this region has a copy of. One that is not
// of the copy's home and epoch is left aside.
func (t *Target) HearTail(peer string, l regions.TailList) {
	c := t.copyOf(l.Log)
	if c == nil || c.home != peer || c.epoch != l.Epoch {
		t.claims(peer, regions.LaneTail, l.Log, l.Epoch)
		return
	}
	if e := checkLog(l.Incarnation, l.Epoch, l.Head); e != nil {
		c.distrust(peer, regions.LaneTail, e)
		return
	}
	c.mu.Lock()
	cursor, fits := c.stored.Sequence, c.fits(l.Incarnation)
	c.mu.Unlock()
	if fits {
		t.cfg.Tails.Hear(l, cursor)
	}
}

// fits reports whether a log of an incarnation can be the one that this is a copy of. c.mu
// is held.
func (c *copied) fits(incarnation string) bool {
	return c.stored.Sequence == 0 || c.stored.Incarnation == incarnation
}

// noteEnd keeps where the home's log ended by its last mark: over a restart, too, it is then
// known how much is missing at least.
func (c *copied) noteEnd() {
	t := c.target
	if !t.cfg.Movable(c.id, t.cfg.Self) {
		return
	}
	c.mu.Lock()
	m, cursor := c.knowledge.mark, c.stored.Sequence
	counts := c.knowledge.listed && !c.knowledge.alarm.alarm() && m.Epoch == c.epoch && c.fits(m.Incarnation)
	c.mu.Unlock()
	if counts {
		t.cfg.Tails.Hear(regions.TailList{Log: c.id, Incarnation: m.Incarnation, Epoch: m.Epoch,
			Head: m.Head, HeadTime: m.HeadTime, Closed: m.Closed}, cursor)
	}
}

type noTails struct{}

func (noTails) Hear(regions.TailList, uint64) {}

func neverMoves(api.LogID, string) bool { return false }
