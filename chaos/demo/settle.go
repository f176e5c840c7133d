package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
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
		r.say("%d producers had been told that the outcome is unknown. They ask again, with the same ids.", n)
	}
	r.again(ctx)
	if err := r.caughtUp(ctx); err != nil {
		return err
	}
	r.say("All copies have caught up.")
	return ctx.Err()
}

// again publishes what was kept once more. Every answer must be an ack that says
// duplicate and names the place of the first.
func (r *run) again(ctx context.Context) {
	kept := r.traffic.takeKept()
	first := map[string]ledger.Entry{}
	for _, e := range r.book.Entries() {
		if e.Outcome == ledger.Acked && !e.Duplicate {
			first[e.ID] = e
		}
	}
	for _, d := range r.doors {
		d.fresh = r.o.Hooks.FreshIDs
		defer func() { d.fresh = false }()
	}
	same := 0
	left := kept
	for range askRounds {
		var unknown []parcel
		for i, e := range r.traffic.each(ctx, r.doors, left) {
			switch {
			case e.Outcome == ledger.Unknown:
				unknown = append(unknown, left[i])
			case e.Outcome == ledger.Acked && e.Duplicate && e.Log == first[e.ID].Log && e.Sequence == first[e.ID].Sequence:
				same++
			}
		}
		if left = unknown; len(left) == 0 {
			break
		}
	}
	r.result.verdict(CheckDedupe, same == len(kept) && same > 0,
		fmt.Sprintf("%d of %d records sent again were answered as the first time", same, len(kept)))
	if len(kept) == 0 {
		return
	}
	changed := kept[0]
	changed.record.Body = append([]byte("changed: "), changed.record.Body...)
	changed.want = api.IDReused
	ack, err := r.doors[changed.entry.Asked].Publish(ctx, changed.record)
	r.result.verdict(CheckDedupe, api.CodeOf(err) == api.IDReused,
		fmt.Sprintf("another body under a used id: %s, sequence %d", api.CodeOf(err), ack.Sequence))
	r.result.Codes[api.CodeOf(err)]++
	r.say("%d acknowledged records were sent again: %d were answered as the first time.", len(kept), same)
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
