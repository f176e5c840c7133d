package placement

import (
	"fmt"
	"slices"

	"domicile/api"
	"domicile/regions"
)

// end closes the log's present epoch.
func (l *Log) end(e Ended) {
	e.Epoch, e.Home = l.Epoch, l.Home
	if e.Lost != nil {
		lost := e.Lost.clone()
		e.Lost = &lost
	}
	if e.EndKnown {
		l.settle(e.End)
	}
	l.History = append(l.History, e)
	if n := len(l.History) - maxHistory; n > 0 {
		l.History = slices.Delete(l.History, 0, n)
	}
}

// settle gives earlier epochs of which the end was never reported the end of what
// followed: nothing beyond it stands.
func (l *Log) settle(end uint64) {
	for i := range l.History {
		if h := &l.History[i]; !h.EndKnown {
			h.End, h.EndKnown = end, true
		}
	}
}

// began checks where the present epoch begins against where the last one ended, and
// settles that if it was open.
func (l *Log) began(start uint64) error {
	last := l.lastStanding()
	if last == nil {
		return nil
	}
	if last.EndKnown && last.End != start {
		return broken(RuleNoReopen, fmt.Sprintf("the epoch before ended at %d, so this one begins there", last.End))
	}
	for i := len(l.History) - 1; i >= 0; i-- {
		if h := l.History[i]; h.EndKnown && h.How != AsLoser {
			if start < h.End {
				return broken(RuleNoReopen, fmt.Sprintf("what stands goes up to %d", h.End))
			}
			break
		}
	}
	l.settle(start)
	return nil
}

func (l *Log) lastStanding() *Ended {
	for i := len(l.History) - 1; i >= 0; i-- {
		if l.History[i].How != AsLoser {
			return &l.History[i]
		}
	}
	return nil
}

// EpochEnd is the last sequence of an epoch that stands. What a region holds of the epoch
// beyond it is void. It is an error, and never a guess, for the present epoch, for one
// whose end is not known yet, and for one that the log never had or that is forgotten.
func (l *Log) EpochEnd(e api.Epoch) (uint64, error) {
	if l.Status == Contested {
		return 0, contested(l)
	}
	i := slices.IndexFunc(l.History, func(h Ended) bool { return h.Epoch == e })
	switch {
	case e == l.Epoch:
		return 0, conflict("epoch", e.String(), "the epoch has not ended")
	case i < 0:
		return 0, bad("epoch", "the log never had this epoch, or it ended too long ago to say where")
	case !l.History[i].EndKnown:
		return 0, &api.Error{Code: api.NotReady, Op: "end of epoch", Field: "epoch", Value: e.String(),
			Hint: "its successor has not opened yet; ask again then"}
	}
	end := l.History[i].End
	if l.History[i].How == AsLoser {
		return end, nil
	}
	for _, h := range l.History[i+1:] {
		if h.EndKnown && h.How != AsLoser {
			end = min(end, h.End)
		}
	}
	return end, nil
}

// Epochs is the row of the log's epochs as a store goes by it: those that stand, each with
// its end, and the present one. As long as the end of one is not known, or the log is
// contested, the row stops before it and has no present epoch: nobody may guess.
func (l *Log) Epochs() regions.History {
	if l.Status == Contested {
		return nil
	}
	var row regions.History
	for _, h := range l.History {
		if h.How == AsLoser {
			continue
		}
		end, err := l.EpochEnd(h.Epoch)
		if err != nil {
			return row
		}
		row = append(row, regions.EpochEnd{Epoch: h.Epoch, End: end})
	}
	return append(row, regions.EpochEnd{Epoch: l.Epoch, Open: true})
}

func (l *Log) openTail() bool {
	return slices.ContainsFunc(l.Divergences, func(d Divergence) bool { return d.Fate == Kept })
}

// diverged records what a region holds beyond an epoch's end.
func diverged(l *Log, c *Command) error {
	d := *c.Divergence
	end, err := l.EpochEnd(d.Epoch)
	switch {
	case err != nil:
		return err
	case d.Region != c.Region || d.Region == "" || !plain(d.Region):
		return notHome(c.Region, d.Region)
	case d.From <= end || d.To < d.From || d.Count == 0 || d.Count > d.To-d.From+1 || d.Fate != Kept || d.Root == "" || !plain(d.Root):
		return bad("divergence", fmt.Sprintf("it begins beyond %d, is not empty, and is open", end))
	}
	for _, known := range l.Divergences {
		if known.Epoch == d.Epoch && known.Region == d.Region {
			return conflict("divergence", "", "this region has reported this tail; close it before another report")
		}
	}
	if len(l.Divergences) >= maxDivergences {
		i := slices.IndexFunc(l.Divergences, func(k Divergence) bool { return k.Fate != Kept })
		if i < 0 {
			return &api.Error{Code: api.Overloaded, Op: "place log", Field: "divergences", Value: fmt.Sprint(maxDivergences), Hint: "close the ones that are open"}
		}
		l.Divergences = slices.Delete(l.Divergences, i, i+1)
	}
	l.Divergences = append(l.Divergences, d)
	return nil
}

// closed says what became of a tail.
func closed(l *Log, c *Command) error {
	d := c.Divergence
	if d.Fate != Republished && d.Fate != Discarded {
		return bad("fate", "republished or discarded")
	}
	for i := range l.Divergences {
		if k := &l.Divergences[i]; k.Epoch == d.Epoch && k.Region == d.Region && k.Root == d.Root && k.Fate == Kept {
			k.Fate = d.Fate
			return nil
		}
	}
	return conflict("divergence", "", "no such tail is open")
}
