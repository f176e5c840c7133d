package failover

import (
	"context"
	"encoding/hex"
	"fmt"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// second holds what is said after the return against what producers were told, record by
// record.
func (s *story) second(ctx context.Context, seen *seen) (string, error) {
	_, signed, err := s.report(ctx, west, seen.report)
	if err != nil {
		return "", err
	}
	truth := signed.Report.Truth
	for _, c := range truth.Claims {
		s.check("at the cut: "+c.Claim, c.Holds, "%s", c.Why)
	}
	ids := map[string]string{}
	for _, id := range s.ledger.ids() {
		h := seen.key.Hash(id)
		ids[hex.EncodeToString(h[:])] = id
	}
	found, strangers := map[uint64]string{}, 0
	for _, r := range truth.Records {
		id, ok := ids[r.Hash]
		if !ok {
			strangers++
		}
		found[r.Sequence] = id
	}
	missing := 0
	for _, a := range seen.void {
		if found[a.Sequence] != a.ID {
			missing++
		}
		delete(found, a.Sequence)
	}
	unacked := 0
	for _, id := range found {
		if a, told := s.ledger.ackOf(id); told && a.Epoch == seen.ended.Epoch {
			strangers++ // acknowledged there, and at another place
		}
		unacked++
	}
	s.check("after the return every record that was left behind is named, and no other", missing == 0 && strangers == 0 && truth.Lost == 0,
		"%d named, %d acknowledged there, %d whose acks the kill took; %d acknowledged and not named, %d named and never sent", len(truth.Records), len(seen.void), unacked, missing, strangers)
	return fmt.Sprintf("%d records, each by its id; lost %d", len(truth.Records), truth.Lost), nil
}

// readBack reads the log in every region once nothing is written any more, and looks for
// each acknowledged record.
func (s *story) readBack(ctx context.Context) (string, error) {
	s.rest()
	if s.Hooks.Invent {
		s.ledger.take("update-invented", api.Ack{ID: "update-invented"}, nil)
	}
	last := uint64(0)
	for _, a := range s.ledger.all() {
		last = max(last, a.Sequence)
	}
	for _, region := range []string{west, east, south} {
		seen, end := map[string]int{}, uint64(0)
		err := poll(ctx, func() error {
			clear(seen)
			err := s.read(ctx, region, func(r *pb.ReadRecord) { seen[r.GetRecord().GetId()]++; end = max(end, r.GetSequence()) })
			if err == nil && end < last {
				err = fmt.Errorf("%s has read up to %d of %d", region, end, last)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		lost, doubled := 0, 0
		for _, a := range s.ledger.all() {
			if seen[a.ID] == 0 {
				lost++
			}
		}
		for _, n := range seen {
			if n > 1 {
				doubled++
			}
		}
		s.result.Lost, s.result.Doubled = max(s.result.Lost, lost), max(s.result.Doubled, doubled)
		s.check("every acknowledged record is in "+region+", once", lost == 0 && doubled == 0, "%d acknowledged, %d lost, %d twice", s.ledger.acked(), lost, doubled)
	}
	s.writers()
	s.result.Acked = s.ledger.acked()
	return fmt.Sprintf("%d acknowledged, %d lost, %d twice", s.result.Acked, s.result.Lost, s.result.Doubled), nil
}

func (s *story) read(ctx context.Context, region string, on func(*pb.ReadRecord)) error {
	c, err := s.world.door(region)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Read(ctx, &pb.ReadRequest{Topic: topic}, func(b *pb.ReadResponse) error {
		for _, r := range b.GetRecords() {
			on(r)
		}
		return nil
	})
}

// writers: in no epoch did two regions acknowledge.
func (s *story) writers() {
	by, two := map[string]string{}, 0
	for _, a := range s.ledger.all() {
		if a.Duplicate { // it names where the record was stored first, and is told by who has it now
			continue
		}
		e := a.Epoch.String()
		if was := by[e]; was != "" && was != a.Region {
			two++
		}
		by[e] = a.Region
	}
	s.check("no two regions acknowledged in one epoch", two == 0 && len(by) >= 4, "%d epochs", len(by))
}
