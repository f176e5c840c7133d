package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
)

// askRounds is how often what nobody knew is asked again.
const askRounds = 3

// settle asks again about what was left unknown, sends some acknowledged records
// again, one of them changed, and lets the mirrors catch up.
func (r *run) settle(ctx context.Context) error {
	if err := r.lab.Linked(ctx); err != nil {
		return err
	}
	for range askRounds {
		n := r.traffic.askAgain(ctx, r.doors)
		if n == 0 {
			break
		}
		r.say("Of %d records nobody could say whether they are stored. Their producers ask again,", n)
		r.say("with the same ids.")
	}
	r.again(ctx)
	if err := r.caughtUp(ctx); err != nil {
		return err
	}
	r.say("All copies have caught up.")
	return ctx.Err()
}

// again publishes what was kept once more. Every answer must be an ack that says
// duplicate and names the place that an earlier ack named.
func (r *run) again(ctx context.Context) {
	kept := r.traffic.takeKept()
	first := map[string]ledger.Entry{}
	for _, e := range r.book.Entries() {
		if _, known := first[e.ID]; !known && e.Outcome == ledger.Acked {
			first[e.ID] = e
		}
	}
	same, other := 0, ""
	for left, round := kept, 0; len(left) > 0; round++ {
		var passing []shop.Parcel
		for i, a := range r.traffic.each(ctx, r.doors, left) {
			switch before := first[a.ID]; {
			case a.Outcome == ledger.Acked && a.Duplicate && a.Log == before.Log && a.Sequence == before.Sequence:
				same++
			case a.Outcome != ledger.Acked && a.Code.Retryable() && round < askRounds:
				passing = append(passing, left[i])
			default:
				other = fmt.Sprintf("%s %s, duplicate %v, %s sequence %d; at first %s sequence %d", a.Outcome, a.Code, a.Duplicate, a.Log, a.Sequence, before.Log, before.Sequence)
			}
		}
		left = passing
	}
	r.result.verdict(CheckDedupe, same == len(kept) && same > 0,
		fmt.Sprintf("%d of %d records sent again were answered as the first time; another answer: %s", same, len(kept), other))
	r.say("%d acknowledged records were sent again: %d were answered as the first time.", len(kept), same)
	if len(kept) > 0 {
		r.reuse(ctx, kept[0])
	}
}

// reuse publishes another body under an id that is taken.
func (r *run) reuse(ctx context.Context, p shop.Parcel) {
	p.Record.Body = append([]byte("changed: "), p.Record.Body...)
	ctx, cancel := context.WithTimeout(ctx, r.traffic.wait)
	defer cancel()
	ack, err := r.doors[p.Entry.Asked].Publish(ctx, p.Record)
	code := api.CodeOf(err)
	r.result.verdict(CheckDedupe, code == api.IDReused, fmt.Sprintf("another body under a used id: %s, sequence %d", code, ack.Sequence))
	r.reused = code
}

// caughtUp waits until every copy is complete up to now.
func (r *run) caughtUp(ctx context.Context) error {
	if err := r.lab.CaughtUp(ctx, r.clock.Now(), catchUp); err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	return nil
}

// stop writes down what each region tells the world, into the region's own directory
// where the scan will find it, and stops all regions: what is judged is on disk.
func (r *run) stop(ctx context.Context) error {
	for _, region := range r.lab.Regions() {
		if err := keepWords(ctx, region); err != nil {
			return fmt.Errorf("keep what %s tells: %w", region.Name, err)
		}
	}
	if err := r.closeDoors(ctx); err != nil {
		return err
	}
	return r.lab.Stop(ctx)
}

// keepWords saves a region's metrics page, status and topics.
func keepWords(ctx context.Context, region *lab.Region) error {
	page, err := region.Page(ctx)
	if err != nil {
		return err
	}
	desk, err := region.Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	status, err := desk.Status(ctx)
	if err != nil {
		return err
	}
	topics, err := desk.Topics(ctx, "")
	if err != nil {
		return err
	}
	words := fmt.Appendf(page, "\n%s\n%s\n", status, topics)
	return os.WriteFile(filepath.Join(region.Dir, "told.txt"), words, 0o600)
}

// homeOf is the home of a log, by the manifest.
func (r *run) homeOf(log string) string {
	id, err := api.ParseLogID(log)
	if err != nil {
		return ""
	}
	home, _, _ := r.lab.Federation.Home(id)
	return home
}

// boundary is the residency value of a region's own records.
func (r *run) boundary(region string) string {
	reg, _ := r.lab.Federation.Region(region)
	return reg.Boundary
}
