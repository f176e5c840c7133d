package failover

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/loss"
	"domicile/regions/placement"
)

// leftBehind is how many acknowledged records the new home must not have, and of how many
// of them it must have been told, before the old home is killed.
const leftBehind = 100

func (s *story) tell(ctx context.Context) error {
	var seen seen
	for _, part := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"three regions found an authority", s.begin},
		{"records are published", s.steady},
		{"switchover to us-east", func(ctx context.Context) (string, error) { return s.switchover(ctx, west, east) }},
		{"switchover back", func(ctx context.Context) (string, error) { return s.switchover(ctx, east, west) }},
		{"payload is held, lists pass", func(ctx context.Context) (string, error) { return s.hold(ctx, &seen) }},
		{"eu-west is cut off", func(ctx context.Context) (string, error) { return s.cut(ctx, &seen) }},
		{"eu-west is killed", func(context.Context) (string, error) { s.rest(); return "SIGKILL", s.world.kill(west) }},
		{"forced failover to us-east", func(ctx context.Context) (string, error) { return s.force(ctx, &seen) }},
		{"report at the cut", func(ctx context.Context) (string, error) { return s.first(ctx, &seen) }},
		{"eu-west comes back", func(ctx context.Context) (string, error) { return s.back(ctx, &seen) }},
		{"its tail is republished", func(ctx context.Context) (string, error) { return s.republish(ctx, &seen) }},
		{"report after the return", func(ctx context.Context) (string, error) { return s.second(ctx, &seen) }},
		{"failback to eu-west", func(ctx context.Context) (string, error) { return s.switchover(ctx, east, west) }},
		{"all is read back", s.readBack},
	} {
		if err := s.step(ctx, part.name, part.do); err != nil {
			return err
		}
	}
	return nil
}

// seen is what one part of the story hands to later ones.
type seen struct {
	heal   func()
	key    regions.TailKey
	ended  placement.Ended
	report []byte // at the cut
	void   []api.Ack
}

func (s *story) begin(ctx context.Context) (string, error) {
	for _, region := range []string{west, east, south} {
		if err := s.world.start(ctx, region); err != nil {
			return "", err
		}
	}
	if err := reachable(ctx, s.world.places[west].listen.Door); err != nil {
		return "", err
	}
	err := s.placedAt(ctx, west)
	return "home " + west, err
}

// placedAt waits until the log writes at a region, by the word of both that live here.
func (s *story) placedAt(ctx context.Context, home string) error {
	return poll(ctx, func() error {
		for _, by := range []string{east, south} {
			if l := s.world.placed(by); l.Home != home || l.Status != placement.Active {
				return fmt.Errorf("%s says: home %q, %s", by, l.Home, l.Status)
			}
		}
		return nil
	})
}

// produce has the producer publish at a region's door, until rest.
func (s *story) produce(ctx context.Context, region string) error {
	c, err := s.world.door(region)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); s.ledger.produce(ctx, c, s.Rate) }()
	s.stop = func() { cancel(); <-done; _ = c.Close() }
	return nil
}

// rest ends the producer and waits until each of its records has an outcome.
func (s *story) rest() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// more waits until so many more records are acknowledged.
func (s *story) more(ctx context.Context, n int) error {
	want := s.ledger.acked() + n
	return poll(ctx, func() error {
		if have := s.ledger.acked(); have < want {
			return fmt.Errorf("%d of %d acknowledged; refused: %v", have, want, s.ledger.refused())
		}
		return nil
	})
}

func (s *story) steady(ctx context.Context) (string, error) {
	if err := s.produce(ctx, west); err != nil {
		return "", err
	}
	err := s.more(ctx, 2*s.Rate)
	return fmt.Sprintf("%d acknowledged", s.ledger.acked()), err
}

// switchover moves the log while it is written to, and measures for how long nothing was.
func (s *story) switchover(ctx context.Context, from, to string) (string, error) {
	if err := s.near(ctx, from, to); err != nil {
		return "", err
	}
	epoch := s.world.placed(east).Epoch
	err := poll(ctx, func() error { // a plan is refused while the target lags, or the last move is not over
		_, err := s.world.move(ctx, east, &pb.MoveRequest{Topic: topic, Kind: string(placement.Planned), Target: to}, "maintenance")
		return err
	})
	if err != nil {
		return "", err
	}
	if err := s.placedAt(ctx, to); err != nil {
		return "", err
	}
	if err := s.more(ctx, s.Rate); err != nil {
		return "", err
	}
	l := s.world.placed(east)
	ended := l.History[len(l.History)-1]
	var before, after api.Ack
	for _, a := range s.ledger.all() {
		switch a.Epoch {
		case epoch:
			before = a
		case l.Epoch:
			if after.ID == "" {
				after = a
			}
		}
	}
	pause := after.IngestTime.Sub(before.IngestTime)
	s.result.PauseMS = append(s.result.PauseMS, pause.Milliseconds())
	left := s.ledger.beyond(epoch, ended.End)
	s.check("a planned switchover from "+from+" leaves nothing behind", len(left) == 0 && ended.Lost != nil && ended.Lost.Span != nil && *ended.Lost.Span == 0,
		"%d acknowledged behind the cut %d", len(left), ended.End)
	s.check("nothing is acknowledged in two epochs at one place", after.Sequence > before.Sequence && after.Sequence > ended.End, "the epochs meet between %d and %d", before.Sequence, after.Sequence)
	return fmt.Sprintf("nothing was written for %d ms", pause.Milliseconds()), nil
}

// near waits until the target's copy is behind by less than a second's records, by the word
// of the home: what is missing when the home stops writing is what the pause is made of.
func (s *story) near(ctx context.Context, home, target string) error {
	c, err := s.world.desk(home)
	if err != nil {
		return err
	}
	defer c.Close()
	return poll(ctx, func() error {
		why := fmt.Errorf("%s does not know how far %s is", home, target)
		err := c.Lag(ctx, &pb.LagRequest{Topic: topic}, func(m *pb.LagResponse) error {
			for _, l := range m.GetLogs() {
				if l.GetTarget() != target {
					continue
				}
				if why = nil; !l.GetRecordsKnown() || l.GetRecords() > uint64(s.Rate) {
					why = fmt.Errorf("%s is %d records behind", target, l.GetRecords())
				}
			}
			return nil
		})
		return errors.Join(err, why)
	})
}

// hold lets no payload through, while lists of what is on its way go on.
func (s *story) hold(ctx context.Context, seen *seen) (string, error) {
	heal, err := s.world.cut([]link.Plane{link.Data}, regions.In)
	if err != nil {
		return "", err
	}
	var first, head uint64 // what it lacks, and how far it was told when that was seen first
	err = poll(ctx, func() error {
		known := s.world.nodes[east].Told(log())
		seen.key = known.Key
		switch {
		case len(known.Entries) < leftBehind:
			return fmt.Errorf("us-east was told of %d records", len(known.Entries))
		case known.Entries[0].From != first: // it works off what had come before
			first, head = known.Entries[0].From, known.Head
			return errors.New("us-east still takes what it had")
		case known.Head < head+leftBehind:
			return errors.New("us-east is told of nothing more")
		}
		return nil
	})
	seen.heal = heal
	return fmt.Sprintf("us-east was told of %d records that it has not", len(s.world.nodes[east].Told(log()).Entries)), err
}

// cut lets nothing through at all: what is stored from now on nobody hears of.
func (s *story) cut(ctx context.Context, seen *seen) (string, error) {
	release := seen.heal
	var err error
	if seen.heal, err = s.world.cut(link.Planes(), regions.In, regions.Out); err != nil {
		return "", err
	}
	release()
	epoch := s.world.placed(east).Epoch
	err = poll(ctx, func() error {
		if l, _ := s.world.nodes[east].LinkTo(west); l.Up {
			return fmt.Errorf("the link is up")
		}
		if n := len(s.ledger.beyond(epoch, s.world.nodes[east].Told(log()).Head)); n < leftBehind {
			return fmt.Errorf("%d acknowledged that nobody else has heard of", n)
		}
		return nil
	})
	return "it goes on acknowledging", err
}

// force takes the log over, and measures how long it took from the word to the first ack.
func (s *story) force(ctx context.Context, seen *seen) (string, error) {
	span := int64(time.Hour)
	began, err := s.world.move(ctx, east, &pb.MoveRequest{Topic: topic, Kind: string(placement.Forced), Target: east, AcceptDivergence: true, AcceptSpanNano: &span,
		Overrides: []string{placement.RuleCutFirst, placement.RuleUnknown}}, "eu-west is lost")
	if err != nil {
		return "", err
	}
	s.result.AnswerMS = time.Since(began).Milliseconds()
	if err := s.produce(ctx, east); err != nil {
		return "", err
	}
	if err := s.more(ctx, 1); err != nil {
		return "", err
	}
	s.result.RTOMS = time.Since(began).Milliseconds()
	if err := s.placedAt(ctx, east); err != nil {
		return "", err
	}
	if err := s.more(ctx, s.Rate); err != nil {
		return "", err
	}
	l := s.world.placed(east)
	seen.ended = l.History[len(l.History)-1]
	seen.void = s.ledger.beyond(seen.ended.Epoch, seen.ended.End)
	s.result.Void = len(seen.void)
	s.check("at least 100 acknowledged records were left behind", len(seen.void) >= leftBehind, "%d behind the cut %d", len(seen.void), seen.ended.End)
	return fmt.Sprintf("the first ack after %d ms, of which the authority took %d to take the word; %d acknowledged records are in eu-west only",
		s.result.RTOMS, s.result.AnswerMS, len(seen.void)), nil
}

func (s *story) report(ctx context.Context, region string, first []byte) ([]byte, loss.Signed, error) {
	c, err := s.world.desk(region)
	if err != nil {
		return nil, loss.Signed{}, err
	}
	defer c.Close()
	text, err := c.ReportLoss(ctx, &pb.ReportLossRequest{Topic: topic, First: first})
	if err != nil {
		return nil, loss.Signed{}, err
	}
	signed, err := loss.Parse(text)
	return text, signed, err
}

// first holds what is said at the cut against what producers were told.
func (s *story) first(ctx context.Context, seen *seen) (string, error) {
	text, signed, err := s.report(ctx, east, nil)
	if err != nil {
		return "", err
	}
	seen.report = text
	r := &signed.Report
	void := map[uint64]string{}
	heard := uint64(0)
	for _, a := range seen.void {
		h := seen.key.Hash(a.ID)
		void[a.Sequence] = hex.EncodeToString(h[:])
		if r.Head != nil && a.Sequence <= *r.Head {
			heard++
		}
	}
	wrong := 0
	for _, m := range r.Missing {
		if h, told := void[m.Sequence]; told && h != m.Hash {
			wrong++
		}
	}
	known := 0
	for sequence := range void {
		for _, m := range r.Missing {
			if m.Sequence == sequence {
				known++
				break
			}
		}
	}
	unheard := len(seen.void) - int(heard)
	s.result.Named, s.result.Unknown = len(r.Missing), unheard+int(loss.Count(r.Unknown))
	s.check("what was named missing at the cut was", len(r.Missing) > 0 && wrong == 0 && known > 0, "%d named, of which producers were told %d", len(r.Missing), known)
	s.check("no more was missing than was said", r.AtMost != nil && heard <= *r.AtMost && !r.Whole(),
		"%d acknowledged of what had been heard of, the bound is %s; %d more behind it, said to be unknown", heard, number(r.AtMost), unheard)
	s.check("something was named, and something unknown", len(r.Missing) > 0 && s.result.Unknown > 0, "%d named, %d not", len(r.Missing), s.result.Unknown)
	return fmt.Sprintf("%d named, at most %s up to what was heard, the rest unknown", len(r.Missing), number(r.AtMost)), nil
}

func number(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

// back starts the old home again, and waits until it has said what is void there.
func (s *story) back(ctx context.Context, seen *seen) (string, error) {
	seen.heal()
	if err := s.world.start(ctx, west); err != nil {
		return "", err
	}
	var d placement.Divergence
	err := poll(ctx, func() error {
		for _, d = range s.world.placed(east).Divergences {
			if d.Region == west {
				return nil
			}
		}
		return fmt.Errorf("eu-west has not said what is void there")
	})
	return fmt.Sprintf("it keeps %d records, sequences %d to %d, that nobody reads", d.Count, d.From, d.To), err
}

// republish publishes anew what every region holds beyond the cut.
func (s *story) republish(ctx context.Context, _ *seen) (string, error) {
	saw := ""
	for _, region := range []string{west, south} {
		c, err := s.world.desk(region)
		if err != nil {
			return "", err
		}
		defer c.Close()
		all, err := c.Divergences(ctx, &pb.ListDivergencesRequest{})
		if err != nil {
			return "", err
		}
		for _, d := range all.GetDivergences() {
			q := &pb.RepublishDivergenceRequest{Topic: topic, Epoch: d.GetEpoch(), Hash: d.GetHash(), Reason: "the region is back", PrincipalClass: "app"}
			var last *pb.Divergence
			err := poll(ctx, func() error {
				return c.RepublishDivergence(ctx, q, func(r *pb.RepublishDivergenceResponse) error { last = r.GetDivergence(); return nil })
			})
			if err != nil {
				return "", err
			}
			s.check("all that "+region+" kept is at the new home", last.GetSettled() == "republished", "%s", fates(last))
			if region == west {
				saw = fates(last)
			}
		}
	}
	return saw, poll(ctx, func() error {
		for _, d := range s.world.placed(east).Divergences {
			if d.Fate == placement.Kept {
				return fmt.Errorf("the tail in %s is open", d.Region)
			}
		}
		return nil
	})
}

func fates(d *pb.Divergence) (saw string) {
	for _, f := range d.GetFates() {
		if f.GetRecords() > 0 {
			saw += fmt.Sprintf("%d %s, ", f.GetRecords(), f.GetFate())
		}
	}
	return saw + "of " + fmt.Sprint(d.GetRecords())
}
