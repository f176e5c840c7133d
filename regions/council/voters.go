package council

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

// changeVoters changes who votes and notes it in the audit. If the note is not taken, the
// change stands all the same and the error says so.
func (v *Voter) changeVoters(ctx context.Context, name, actor, reason string, change func(time.Duration) raft.IndexFuture) error {
	if leader := v.leader(); leader != v.mark.Region {
		return &api.Error{Code: api.NotReady, Op: "change voters", Region: leader, Field: "leader", Hint: "ask the leader's region"}
	}
	if err := v.contested(); err != nil {
		return err
	}
	left := askTimeout
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	f := change(left)
	if err := f.Error(); err != nil {
		return unknown(err)
	}
	voters := v.voters()
	slices.Sort(voters)
	note := placement.Command{Verb: placement.Voters, ID: fmt.Sprintf("voters/%s/%d", v.mark.Authority, f.Index()), Actor: actor, Reason: reason, Regions: voters}
	if _, err := v.Submit(ctx, note); err != nil {
		return fmt.Errorf("%s: the voters are changed, the audit has no entry of it: %w", name, err)
	}
	return nil
}

// Snapshot shortens the voters' log on this voter, after it has exported the audit.
func (v *Voter) Snapshot() error {
	if err := v.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return err
	}
	return nil
}
