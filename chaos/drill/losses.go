package drill

import (
	"context"
	"fmt"
	"math"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/regions/loss"
)

// losses notes what the regions themselves say that a forced move left behind: the new home
// when it began, and the old one now that it is back. They speak of everybody's records, by
// sequence; what is lost of the drill's own is known without them.
func (r *run) losses(ctx context.Context, m moved) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	q := &pb.ReportLossRequest{Topic: m.log.Topic, Slot: m.log.Slot}
	report := func(c *client.Client) ([]byte, error) { return c.ReportLoss(ctx, q) }
	first, err := atSeat(ctx, r, m.to, report)
	if err != nil {
		return fmt.Errorf("what %s left behind, at %s: %w", m.log, m.to, err)
	}
	q.First = first
	second, err := atSeat(ctx, r, m.from, report)
	if err != nil {
		return fmt.Errorf("what %s left behind, at %s: %w", m.log, m.from, err)
	}
	for _, text := range [][]byte{first, second} {
		s, err := loss.Parse(text)
		if err != nil {
			return err
		}
		l := lossOf(&s.Report)
		if r.Trust != nil {
			if _, err := s.Verify(r.Trust); err != nil {
				return err
			}
			l.Signed = true
		}
		r.note(history.Event{Region: s.Report.By, Loss: l})
	}
	return nil
}

// lossOf is a region's report in the words of a history.
func lossOf(p *loss.Report) *history.Loss {
	l := &history.Loss{Log: p.Move.Log, By: p.By, Version: p.Version, Epoch: p.Move.Old.Epoch.String(), Cut: p.Move.Cut, AtMost: p.AtMost}
	if t := p.Truth; t != nil {
		bytes := uint64(0)
		for i := range t.Records {
			bytes += miss(l, &t.Records[i].Record)
		}
		l.AtMost, l.Bytes = &t.Tail.Records, &bytes
		return l
	}
	for i := range p.Missing {
		miss(l, &p.Missing[i])
	}
	for _, u := range p.Unknown {
		l.Unknown = append(l.Unknown, history.Range{From: u.From, To: u.To})
	}
	last := p.Move.Cut
	if p.Head != nil {
		last = max(last, *p.Head)
	}
	l.Unknown = append(l.Unknown, history.Range{From: last + 1, To: math.MaxUint64}) // what it was not told of
	return l
}

// miss adds one record that is missing, in the order of their sequences, and answers its
// size.
func miss(l *history.Loss, m *loss.Record) uint64 {
	if l.Oldest.IsZero() || m.Time.Before(l.Oldest) {
		l.Oldest = m.Time
	}
	if n := len(l.Missing); n > 0 && l.Missing[n-1].To+1 == m.Sequence {
		l.Missing[n-1].To = m.Sequence
	} else {
		l.Missing = append(l.Missing, history.Range{From: m.Sequence, To: m.Sequence})
	}
	return uint64(m.Bytes)
}
