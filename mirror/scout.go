package mirror

import (
	"context"
	"time"

	"domicile/regions"
)

const scoutRecords, scoutBytes = 256, 1 << 20

// scout keeps the exposure right while nothing can be sent: it reads on from where
// the tally ends and counts what is eligible. It ends when it is nudged, and when
// there has been nothing to count for a while.
func (f *flow) scout(ctx context.Context) pause {
	f.mu.Lock()
	met, cursor, from := f.met, f.cursor.Sequence, f.tally.upto
	f.mu.Unlock()
	if !met {
		return pause{} // where the copy ends is not known: nothing can be counted
	}
	s := &scouting{flow: f}
	defer s.close()
	for {
		n, upto, err := s.count(ctx, cursor, from)
		from = upto
		if err != nil {
			// Without a policy or a readable log the exposure is unknown, and shown so.
			if ctx.Err() == nil {
				f.source.arm(f, f.backoff())
			}
			return pause{}
		}
		if n > 0 {
			select {
			case <-ctx.Done():
				return pause{}
			case <-f.kick:
				return pause{again: true}
			default:
				continue
			}
		}
		idle := time.NewTimer(f.source.cfg.Pace.Of(idleAfter))
		select {
		case <-ctx.Done():
			idle.Stop()
			return pause{}
		case <-f.kick:
			idle.Stop()
			return pause{again: true}
		case <-f.moreAfter(upto):
			idle.Stop()
		case <-idle.C:
			return pause{watch: true, seen: upto}
		}
	}
}

// scouting is one run of scout: its reader, and the revision it counts under.
type scouting struct {
	flow   *flow
	reader regions.Reader
}

func (s *scouting) close() {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}

// count reads once. Few flows read at a time, so that a cut link does not make every
// log read its backlog at once.
func (s *scouting) count(ctx context.Context, cursor, from uint64) (n int, upto uint64, err error) {
	f := s.flow
	ctx, cancel := context.WithTimeout(ctx, f.source.cfg.Pace.Of(watchdogAfter))
	defer cancel()
	select {
	case f.source.scouts <- struct{}{}:
		defer func() { <-f.source.scouts }()
	case <-ctx.Done():
		return 0, from, ctx.Err()
	}
	pass := f.source.cfg.Enter()
	defer pass.Leave()
	if !f.judgedUnder(pass.Revision()) {
		f.mu.Lock()
		f.tally.reset(cursor, pass.Revision())
		f.mu.Unlock()
		from = cursor
		s.close()
	}
	if s.reader == nil {
		if s.reader, err = f.log.Reader(ctx, from); err != nil {
			return 0, from, err
		}
	}
	items, err := s.reader.Next(ctx, regions.ReadLimit{Records: scoutRecords, Bytes: scoutBytes})
	if err != nil || len(items) == 0 {
		return 0, from, err
	}
	r := f.newRun()
	for i := range items {
		_, eligible, err := f.egress(pass, items[i])
		if err != nil {
			return 0, from, err
		}
		r.count(&items[i], eligible)
	}
	f.addRun(r)
	return len(items), items[len(items)-1].Sequence, nil
}
