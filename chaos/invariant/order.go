package invariant

import (
	"fmt"

	"domicile/api"
	"domicile/chaos/ledger"
)

// order: every log is stored in the order of its sequences, its epochs and terms never
// fall, every copy has at each sequence what its home has there, and every reader gets
// a log in its order. Order per key follows from that and from the ledger's own check.
// It judges 8 as well: no sequence comes twice on one stream, no id twice in one log.
func order(e *evidence) {
	for i := range e.final {
		e.orderOfShelf(&e.final[i])
	}
	type stream struct{ reader, log string }
	last := map[stream]uint64{}
	for i := range e.history.Events {
		b := e.history.Events[i].Batch
		if b == nil {
			continue
		}
		for _, got := range b.Items {
			s := stream{b.Reader, got.Log}
			e.judged(Order)
			e.judged(NoRepeat)
			v := Violation{Log: got.Log, Region: b.Region, Sequence: got.Sequence, At: e.history.Events[i].At}
			switch before := last[s]; {
			case got.Sequence == before:
				v.Number, v.Text = NoRepeat, "a reader got it twice on one stream"
				e.broken(v)
			case got.Sequence < before:
				v.Number, v.Text = Order, fmt.Sprintf("a reader got it after sequence %d", before)
				e.broken(v)
			}
			last[s] = max(last[s], got.Sequence)
		}
	}
}

func (e *evidence) orderOfShelf(s *ledger.Shelf) {
	home := map[uint64]*ledger.Item{}
	if h := e.homes[s.Log]; h != nil {
		for i := range h.Items {
			home[h.Items[i].Sequence] = &h.Items[i]
		}
	}
	var before *ledger.Item
	for i := range s.Items {
		item := &s.Items[i]
		e.judged(Order)
		v := Violation{Number: Order, Log: s.Log, Region: s.Region, Sequence: item.Sequence}
		if before != nil {
			if item.Sequence <= before.Sequence {
				v.Text = fmt.Sprintf("stored after sequence %d", before.Sequence)
				e.broken(v)
			}
			if item.Term < before.Term || epochFalls(before.Epoch, item.Epoch) {
				v.Text = fmt.Sprintf("epoch %s term %d after epoch %s term %d", item.Epoch, item.Term, before.Epoch, before.Term)
				e.broken(v)
			}
		}
		if h := home[item.Sequence]; h != nil && ledger.Mark(h.ID) != ledger.Mark(item.ID) {
			v.Text = "another record than its home has at this sequence"
			e.broken(v)
		}
		before = item
	}
}

// epochFalls: an epoch that cannot be read is no order.
func epochFalls(before, after string) bool {
	b, err1 := api.ParseEpoch(before)
	a, err2 := api.ParseEpoch(after)
	return err1 == nil && err2 == nil && a.Compare(b) < 0
}
