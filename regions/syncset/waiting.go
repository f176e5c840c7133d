package syncset

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// waiter is an append that is durable at home and not known to be common.
type waiter struct {
	regions.Stored
	done func(regions.Stored)
	late time.Time
}

func unknown(s regions.Stored, why string) regions.Stored {
	s.Err = &api.Error{Code: api.OutcomeUnknown, Op: "append", Hint: why + "; send it again with the same id"}
	return s
}

// waiting is a heap by sequence.
type waiting []waiter

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].Position.Sequence < w[j].Position.Sequence }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }

// Push is for container/heap.
func (w *waiting) Push(x any) { *w = append(*w, x.(waiter)) }

// Pop is for container/heap.
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	(*w)[len(*w)-1] = waiter{}
	*w = (*w)[:len(*w)-1]
	return last
}

// upTo takes out what is common.
func (w *waiting) upTo(seq uint64) (out []waiter) {
	for len(*w) > 0 && (*w)[0].Position.Sequence <= seq {
		out = append(out, heap.Pop(w).(waiter))
	}
	return out
}

// overdue takes out what has waited too long.
func (w *waiting) overdue(now time.Time) (out []waiter) {
	*w = slices.DeleteFunc(*w, func(x waiter) bool {
		late := now.After(x.late)
		if late {
			out = append(out, x)
		}
		return late
	})
	heap.Init(w)
	return out
}

// span is the sequences after one, up to and with another.
type span struct{ after, to uint64 }

// doubts are spans in which a copy has a gap somewhere, at most maxDoubts of them: the
// oldest are joined, over what lies between them.
type doubts []span

const maxDoubts = 1024

func (d *doubts) add(s span) {
	if *d = append(*d, s); len(*d) > maxDoubts {
		a, b := (*d)[0], (*d)[1]
		*d = append(doubts{{min(a.after, b.after), max(a.to, b.to)}}, (*d)[2:]...)
	}
}

func (d doubts) hold(seq uint64) bool {
	return slices.ContainsFunc(d, func(s span) bool { return s.after < seq && seq <= s.to })
}

// state puts a log's place in its set into words.
func state(head uint64, m *Mark, short string) string {
	text := "how far the set has it is not known"
	if seq, _, known := m.Get(); known {
		text = fmt.Sprintf("common up to %d", seq)
		if head > seq {
			text += fmt.Sprintf(", %d more here", head-seq)
		}
	}
	if short != "" {
		text += "; short: " + short
	}
	return text
}

// State says how much of a copy is common.
func (v *View) State() string { return state(v.log.Head().Sequence, v.mark, "") }
