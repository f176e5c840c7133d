package regions

import (
	"fmt"

	"domicile/api"
)

// EpochEnd says where an epoch of a log ended.
type EpochEnd struct {
	Epoch api.Epoch `json:"epoch"`
	// End is the last sequence up to which the log counts in this epoch; the next epoch goes
	// on at End+1. All epochs share one row of sequences.
	End uint64 `json:"end"`
	// Open: it is the present epoch and has no end yet; End means nothing.
	Open bool `json:"open,omitempty"`
}

// History is the row of a log's epochs, in order, as the placement authority wrote it
// down: the only answer to "where did that epoch end?". It may begin with a later epoch
// than the log's first. A History is read only.
type History []EpochEnd

// Fate says whether a record counts.
type Fate int

// The three answers of a history.
const (
	Unsettled Fate = iota // the history does not reach that far: nobody may guess
	Counts
	Beyond // it lies beyond the end of its epoch, or its epoch never was the log's: void
)

// Check reports what makes the history none: epochs that do not ascend, an end that falls,
// an epoch without an end that is not the last.
func (h History) Check() error {
	for i, e := range h {
		switch {
		case e.Epoch == (api.Epoch{}):
			return fmt.Errorf("epoch %d of the history has no name", i+1)
		case e.Open && i < len(h)-1:
			return fmt.Errorf("epoch %s has no end, and %s follows it", e.Epoch, h[i+1].Epoch)
		case i > 0 && h[i-1].Epoch.Compare(e.Epoch) >= 0:
			return fmt.Errorf("epoch %s does not come after %s", e.Epoch, h[i-1].Epoch)
		case i > 0 && !e.Open && h[i-1].End > e.End:
			return fmt.Errorf("epoch %s ends at %d, %s before it at %d", e.Epoch, e.End, h[i-1].Epoch, h[i-1].End)
		}
	}
	return nil
}

// Last is the latest epoch of the history; zero: it has none.
func (h History) Last() api.Epoch {
	if len(h) == 0 {
		return api.Epoch{}
	}
	return h[len(h)-1].Epoch
}

// Find is the line of an epoch; false: the history has none.
func (h History) Find(e api.Epoch) (EpochEnd, bool) {
	for _, line := range h {
		if line.Epoch == e {
			return line, true
		}
	}
	return EpochEnd{}, false
}

// At is the epoch in which a sequence counts; false: the history does not reach it.
func (h History) At(sequence uint64) (api.Epoch, bool) {
	for _, line := range h {
		if line.Open || sequence <= line.End {
			return line.Epoch, true
		}
	}
	return api.Epoch{}, false
}

// Judge says what becomes of a sequence that was stored in an epoch.
func (h History) Judge(e api.Epoch, sequence uint64) Fate {
	line, ok := h.Find(e)
	switch {
	case ok && (line.Open || sequence <= line.End):
		return Counts
	case ok:
		return Beyond
	case len(h) == 0 || e.Compare(h[0].Epoch) < 0 || e.Compare(h[len(h)-1].Epoch) > 0:
		return Unsettled
	}
	return Beyond // another authority's, or one that was never given
}

// Leads reports whether a log that ends at sequence last of epoch from may go on in epoch
// to: every epoch from the one to before the other ends at last or, where a gap of the
// later epoch reaches up to upTo, at most there. For a record upTo is last.
func (h History) Leads(from api.Epoch, last uint64, to api.Epoch, upTo uint64) bool {
	_, begins := h.Find(from)
	_, goesOn := h.Find(to)
	if !begins || !goesOn || from.Compare(to) >= 0 {
		return false
	}
	for _, line := range h {
		if line.Epoch.Compare(from) >= 0 && line.Epoch.Compare(to) < 0 && (line.End < last || line.End > upTo) {
			return false
		}
	}
	return true
}

// Contradicts names the first epoch to which the history gives another end than an earlier
// one; false: there is none. That a later epoch ended lower, which the earlier history does
// not know of, lowers the ends before it and contradicts nothing.
func (h History) Contradicts(earlier History) (api.Epoch, bool) {
	for _, line := range h {
		its, ok := earlier.Find(line.Epoch)
		if ok && !line.Open && !its.Open && line.End != its.End && !h.lowered(line, earlier) {
			return line.Epoch, true
		}
	}
	return api.Epoch{}, false
}

// lowered: an epoch behind the line ended where the line does by now, after all that the
// earlier history knows.
func (h History) lowered(line EpochEnd, earlier History) bool {
	if its, _ := earlier.Find(line.Epoch); line.End > its.End {
		return false
	}
	known := false // that the earlier history's later epochs are this one's too
	for _, its := range earlier {
		if its.Epoch.Compare(line.Epoch) <= 0 {
			continue
		}
		if _, known = h.Find(its.Epoch); !known {
			return false
		}
	}
	for _, later := range h {
		its, _ := earlier.Find(later.Epoch)
		if known && later.Epoch.Compare(line.Epoch) > 0 && !later.Open && later.End == line.End && (its == EpochEnd{} || its.Open) {
			return true
		}
	}
	return false
}

// Overrules reports whether the history comes from a later authority than the other one: it
// is what people decided between two, where they contradict each other.
func (h History) Overrules(other History) bool {
	return len(h) > 0 && (len(other) == 0 || h[len(h)-1].Epoch.Term > other[len(other)-1].Epoch.Term)
}

// From is the history from epoch e on, at most most lines, the latest.
func (h History) From(e api.Epoch, most int) History {
	at := 0
	for at < len(h) && h[at].Epoch.Compare(e) < 0 {
		at++
	}
	return h[max(at, len(h)-most):]
}
