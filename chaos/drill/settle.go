package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/drill/history"
)

// catchUp waits until every copy is complete up to the end of the cut, and the oracle's
// readers have all that has to be where they read.
func (r *run) catchUp(ctx context.Context) error {
	if err := r.complete(ctx); err != nil || len(r.moved) > 0 {
		return err // what a move left void is published anew before the way back
	}
	return r.settle(ctx)
}

// settle ends the oracle's publishing and waits until its readers have everything.
func (r *run) settle(ctx context.Context) error {
	if lacking, err := r.oracle.Settle(ctx); err != nil {
		return fmt.Errorf("%d rows of records have not arrived: %w", len(lacking), err)
	}
	return nil
}

// complete waits until every copy is complete up to the end of the cut.
func (r *run) complete(ctx context.Context) error {
	for {
		behind, err := r.behind(ctx)
		if err == nil && behind == "" {
			r.note(history.Event{Measured: &history.Figure{Name: history.CatchUpTime, Value: r.Clock.Now().Sub(r.healed).Seconds(), Unit: "s"}})
			return nil
		}
		if ended := pass(ctx, watchEvery/4); ended != nil {
			if err == nil {
				err = errors.New(behind)
			}
			return fmt.Errorf("copies are not complete up to %s: %w", r.healed.UTC().Format(time.RFC3339), err)
		}
	}
}

// behind names a copy that is not known to be complete up to the end of the cut, "" if
// there is none.
func (r *run) behind(ctx context.Context) (behind string, err error) {
	err = r.lags(ctx, func(region string, l *pb.LogLag) {
		id := wire.LogFromProto(l.GetLog()).String()
		if l.GetTarget() == region && l.GetHome() != region && !wire.TimeFromProto(l.GetSafeTimeUnixNano()).After(r.healed) {
			behind = fmt.Sprintf("%s in %s, %s", id, region, l.GetState())
		}
	})
	return behind, err
}

// lags asks the regions one after the other for everything they know of lags.
func (r *run) lags(ctx context.Context, take func(region string, l *pb.LogLag)) error {
	for _, region := range r.found.regions() {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		n, err := r.seat(ctx, region)
		if err == nil {
			err = n.Admin.Lag(ctx, &pb.LagRequest{}, func(m *pb.LagResponse) error {
				for _, l := range m.GetLogs() {
					take(region, l)
				}
				return nil
			})
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", region, err)
		}
	}
	return nil
}

// reconcile accounts for every record of every log in every region. What nothing accounts
// for may still be on its way: that is waited for.
func (r *run) reconcile(ctx context.Context) error {
	if len(r.moved) > 0 {
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	for {
		rows, open, err := r.account(ctx)
		if err == nil && open == 0 {
			for _, e := range rows {
				r.note(e)
			}
			return nil
		}
		if ended := pass(ctx, watchEvery/4); ended != nil {
			for _, e := range rows {
				r.note(e)
			}
			if err == nil {
				err = fmt.Errorf("%d records are not accounted for", open)
			}
			return err
		}
	}
}

// account is one row for each log in each region that holds it, and how many records none
// of them explains.
func (r *run) account(ctx context.Context) (rows []history.Event, open int64, err error) {
	home := map[string]bool{}
	err = r.lags(ctx, func(region string, l *pb.LogLag) {
		id, sum := wire.LogFromProto(l.GetLog()).String(), l.GetLedger()
		if l.GetHome() == region {
			if !home[id] {
				home[id] = true
				rows = append(rows, history.Event{Region: region, Reconcile: &history.Reconcile{Log: id, Home: region, Head: l.GetHead(), Cursor: l.GetHead(), Mirrored: l.GetHead()}})
			}
			return
		}
		if l.GetTarget() != region {
			return
		}
		row := &history.Reconcile{Log: id, Home: l.GetHome(), Head: l.GetHead(), Cursor: l.GetCursor(), Mirrored: sum.GetMirrored(), Withheld: sum.GetWithheld(),
			Expired: sum.GetExpired(), Purged: sum.GetPurged(), Erased: sum.GetErased(), Void: sum.GetVoid(), Damaged: sum.GetDamaged()}
		row.Unexplained = int64(row.Head) - int64(row.Mirrored+row.Withheld+row.Expired+row.Purged+row.Erased+row.Void+row.Damaged)
		if row.Unexplained != 0 {
			row.Text = "records that are still on their way count as not explained"
		}
		open += max(row.Unexplained, -row.Unexplained)
		rows = append(rows, history.Event{Region: region, Reconcile: row})
	})
	return rows, open, err
}
