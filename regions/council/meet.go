package council

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

// Meet fetches the state of another founding from a region that belongs to it, and takes
// in what it says of each log: one that grew out of ours is taken over, two children of
// one parent are CONTESTED until somebody resolves them; what cannot be taken in is named in the
// error, and the rest is. It is for the leader of the later generation; a voter of the
// earlier one refuses.
func (v *Voter) Meet(ctx context.Context, region, actor, reason string) (placement.Comparison, error) {
	theirs, err := v.fetch(ctx, region)
	if err != nil {
		return placement.Comparison{}, err
	}
	mine := &placement.State{}
	whole, _ := v.machine.since(0, "")
	if err := mine.Follow(whole); err != nil {
		return placement.Comparison{}, err
	}
	c := placement.Compare(mine, theirs)
	if c.Authority != placement.Newer {
		return c, &api.Error{Code: api.Contested, Op: "meet authority", Region: region, Field: "authority", Value: string(c.Authority),
			Hint: "only a later generation takes an earlier one in; found one anew"}
	}
	var failed error
	for _, name := range slices.Sorted(maps.Keys(c.Logs)) {
		other, known := theirs.Log(name)
		if !known || c.Logs[name] == placement.Newer {
			continue
		}
		own, _ := mine.Log(name)
		if own.Status == placement.Contested {
			continue // until people decide
		}
		data, err := placement.Command{
			Verb: placement.Meet, ID: fmt.Sprintf("meet/%s/%d/%s", theirs.Authority(), theirs.Version(), name), Log: name, Expect: own.Epoch,
			Region: v.mark.Region, Actor: actor, Reason: reason, Other: &other,
		}.Encode()
		if err == nil {
			_, _, err = v.propose(ctx, data)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("log %s: %w", name, err))
		}
	}
	return c, failed
}

// fetch reads a region's whole state.
func (v *Voter) fetch(ctx context.Context, region string) (*placement.State, error) {
	conn, err := open(ctx, v.cfg.Lines, region, hello{For: follow}, v.heard)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // read, or given up
	deadline := time.Now().Add(askTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	var d placement.Delta
	if err := errors.Join(conn.SetDeadline(deadline), readFrame(conn, &d, maxAnswer)); err != nil {
		return nil, err
	}
	s := &placement.State{}
	return s, s.Follow(d)
}
