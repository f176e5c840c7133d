package mirror

import (
	"errors"

	"domicile/api"
	"domicile/regions"
)

// denial is the code a refused record's gap carries. wait is set when nobody could
// judge, or what came is no verdict: that is a state, and a gap would make it final. So
// it is with a policy that does not know the topic: the topic is on its way out.
func denial(err error) (code api.Code, wait bool) {
	var e *api.Error
	if !errors.As(err, &e) {
		return "", true
	}
	return e.Code, e.Code == api.PolicyUnavailable || e.Code == api.UnknownTopic
}

// gapOf stands in for a record that policy withheld. It names no id and no key.
func gapOf(i *regions.Item, code api.Code, side, revision string) regions.Item {
	return regions.Item{Sequence: i.Sequence, Epoch: i.Epoch, Term: i.Term, Time: i.Time,
		Gap: &regions.Gap{Kind: regions.Withheld, From: i.Sequence, To: i.Sequence, Code: code, Side: side, Revision: revision}}
}

// appendItem appends i, joined with the last item if both are the same kind of gap.
func appendItem(items []regions.Item, i regions.Item) []regions.Item {
	if n := len(items); n > 0 && i.Gap != nil && items[n-1].Gap != nil {
		last := &items[n-1]
		a, b := *last.Gap, *i.Gap
		if a.To+1 == b.From && last.Epoch == i.Epoch && last.Term == i.Term &&
			a.Kind == b.Kind && a.Code == b.Code && a.Side == b.Side && a.Revision == b.Revision {
			a.To = b.To
			last.Gap, last.Sequence, last.Time = &a, i.Sequence, i.Time
			return items
		}
	}
	return append(items, i)
}

// batch is a run of judged items on its way out, under one pass.
type batch struct {
	pass    Pass // nil while the batch is empty
	items   []regions.Item
	records int // data records
	bytes   int
	span    uint64 // sequences covered
	last    uint64
}

func (b *batch) leave() {
	if b.pass != nil {
		b.pass.Leave()
	}
	*b = batch{}
}

// full reports whether the topic's bounds are reached. A run of withheld records
// costs nothing to send, but must not keep the cursor from moving.
func (b *batch) full(limit regions.Batch) bool {
	return len(b.items) >= limit.Records || b.bytes >= limit.Bytes || b.span >= 16*uint64(limit.Records)
}

func (b *batch) room(limit regions.Batch) regions.ReadLimit {
	return regions.ReadLimit{Records: max(1, limit.Records-len(b.items)), Bytes: max(1, limit.Bytes-b.bytes)}
}

// first is the first sequence an item covers.
func first(i *regions.Item) uint64 {
	if i.Gap != nil {
		return i.Gap.From
	}
	return i.Sequence
}

// egress judges one item on leaving. It returns what is sent in its place, and
// whether that is the record itself.
func (f *flow) egress(pass Pass, i regions.Item) (regions.Item, bool, error) {
	if i.Gap != nil {
		return i, false, nil
	}
	if f.source.skipEgress(f.id, f.target) {
		return i, true, nil
	}
	err := pass.Egress(&i.Record, f.source.cfg.Self, f.target)
	if err == nil {
		return i, true, nil
	}
	code, wait := denial(err)
	if wait {
		why := "no policy is active in this region"
		if code == api.UnknownTopic {
			why = "this region's policy does not know the topic"
		}
		var e *api.Error
		if errors.As(err, &e) && code == api.PolicyUnavailable && e.Revision != "" { // a policy says so
			why = e.Hint
		}
		return i, false, &stop{trouble: trouble{regions.LagStalled, why}}
	}
	return gapOf(&i, code, sideEgress, pass.Revision()), false, nil
}

// judge adds what was read to the batch and to the tally.
func (f *flow) judge(b *batch, items []regions.Item) error {
	run := f.newRun()
	for _, raw := range items {
		item, eligible, err := f.egress(b.pass, raw)
		if err != nil {
			return err
		}
		if eligible {
			b.records++
		}
		run.count(&raw, eligible)
		b.span += item.Sequence - first(&item) + 1
		b.last = item.Sequence
		before := len(b.items)
		if b.items = appendItem(b.items, item); len(b.items) > before {
			b.bytes += item.Size()
		}
	}
	f.addRun(run)
	return nil
}

// run is a chunk in the making; what the tally has already is not counted again.
type run struct {
	chunk
	after uint64
}

func (r *run) count(i *regions.Item, eligible bool) {
	if i.Sequence <= r.after {
		return
	}
	r.last = i.Sequence
	if !eligible {
		return
	}
	r.records++
	r.bytes += uint64(i.Record.Size())
	if r.oldest.IsZero() {
		r.oldest = i.Time
	}
}

func (f *flow) newRun() run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return run{after: f.tally.upto}
}

func (f *flow) addRun(r run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally.add(r.chunk)
}
