package council

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

// VoterChange gives a region a vote, or takes it away.
type VoterChange struct {
	Region    string
	Remove    bool
	Actor     string
	Reason    string
	Approvals []placement.Approval
	// Born is the name of the folder of the voter that asks to join; "": of whichever answers
	// for the region.
	Born string
}

// Members are the regions that vote as the leader has it, wherever it is asked.
func (v *Voter) Members(ctx context.Context) (voters []string, err error) {
	err = again(ctx, v.cfg.Pace.Of(retryEvery), func() (bool, error) {
		if err := v.contested(); err != nil {
			return false, err
		}
		switch leader := v.leader(); leader {
		case "":
			return false, noLeader()
		case v.mark.Region:
			if err := v.raft.VerifyLeader().Error(); err != nil {
				return false, noLeader()
			}
			voters = v.voters()
			return false, nil
		default:
			a, _, err := ask(ctx, v.cfg.Lines, leader, v.greeting(), v.heard, request{Members: true, Forwarded: true})
			voters = a.Voters
			return false, err
		}
	})
	return voters, err
}

// Members are the regions that vote as the leader has it.
func (f *Follower) Members(ctx context.Context) (voters []string, err error) {
	err = f.ask(ctx, same(request{Members: true}), func(a reply) { voters = a.Voters })
	return voters, err
}

// ChangeVoters changes who votes, at the leader, wherever it is asked, and notes it in the
// audit. One change at a time: the next one waits until this one is agreed on. It refuses
// what would leave fewer voters in reach than decide anything, and what Config.MayChange
// does. A region that gets a vote must run a voter that joins this authority.
// OUTCOME_UNKNOWN: the status of a voter says whether it is done.
func (v *Voter) ChangeVoters(ctx context.Context, c VoterChange) error {
	return again(ctx, v.cfg.Pace.Of(retryEvery), func() (bool, error) {
		if err := v.contested(); err != nil {
			return false, err
		}
		switch leader := v.leader(); leader {
		case "":
			return v.askToJoin(ctx, c)
		case v.mark.Region:
			return v.changeHere(ctx, c)
		default:
			_, sent, err := ask(ctx, v.cfg.Lines, leader, v.greeting(), v.heard, request{Change: &c, Forwarded: true})
			return sent, err
		}
	})
}

// askToJoin brings the change to a voter that this one, which votes nowhere yet, is to join.
func (v *Voter) askToJoin(ctx context.Context, c VoterChange) (sent bool, err error) {
	if len(v.voters()) > 0 || len(v.mark.Join) == 0 {
		return false, noLeader()
	}
	c.Born = v.mark.Born
	for _, region := range v.mark.Join {
		var maybe bool
		_, maybe, err = ask(ctx, v.cfg.Lines, region, v.greeting(), v.heard, request{Change: &c})
		sent = sent || maybe
		if err == nil || definite(err) && api.CodeOf(err) != api.Contested {
			break // else it may be one that was overtaken itself
		}
	}
	return sent, err
}

// changeHere is ChangeVoters at the leader.
func (v *Voter) changeHere(ctx context.Context, c VoterChange) (sent bool, err error) {
	if !v.enter() {
		return false, &api.Error{Code: api.ShuttingDown, Op: "change voters", Hint: "ask another voter"}
	}
	defer v.wg.Done()
	v.changing.Lock()
	defer v.changing.Unlock()
	if err := v.contested(); err != nil {
		return false, err
	}
	if v.raft.State() != raft.Leader {
		return false, noLeader()
	}
	before := v.voters()
	if slices.Contains(before, c.Region) != c.Remove {
		if born, _ := v.born(c.Region); !c.Remove && c.Born != "" && c.Born != born {
			return false, &api.Error{Code: api.PlacementRefused, Op: "change voters", Region: c.Region, Field: "voters",
				Hint: "it is one of the voters already, by another voter than the one that asks: take its vote away first, then add it"}
		}
		return false, v.noteChange(ctx, c, before) // done already; perhaps its note is not
	}
	born, err := v.mayChange(ctx, c, before)
	if err != nil {
		return false, err
	}
	if c.Remove && c.Region == v.mark.Region {
		if err := v.raft.LeadershipTransfer().Error(); err != nil {
			return false, &api.Error{Code: api.NotReady, Op: "change voters", Region: c.Region, Field: "leader", Err: err, Hint: "the leader's vote is taken away by the next leader, and no other voter could take over"}
		}
		return false, noLeader()
	}
	left := askTimeout
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	var f raft.IndexFuture
	if c.Remove {
		f = v.raft.RemoveServer(raft.ServerID(c.Region), 0, left)
	} else {
		f = v.raft.AddVoter(raft.ServerID(c.Region), raft.ServerAddress(addressOf(c.Region, born)), 0, left)
	}
	if err := f.Error(); err != nil {
		return true, unknown(err)
	}
	return true, v.noteChange(ctx, c, v.voters())
}

// mayChange refuses a change after which too few voters would be in reach. born is the
// folder's name of the voter that gets a vote.
func (v *Voter) mayChange(ctx context.Context, c VoterChange, before []string) (born string, err error) {
	after := slices.DeleteFunc(slices.Clone(before), func(r string) bool { return r == c.Region })
	if !c.Remove {
		after = append(after, c.Region)
	}
	if len(after) == 0 {
		return "", &api.Error{Code: api.PlacementRefused, Op: "change voters", Region: c.Region, Field: "voters", Hint: "it is the only voter"}
	}
	if v.cfg.MayChange != nil {
		if err := v.cfg.MayChange(c, before); err != nil {
			return "", err
		}
	}
	var silent []string
	for _, region := range after {
		if region == v.mark.Region {
			continue
		}
		theirs, ok := v.answers(ctx, region)
		if region == c.Region {
			born, ok = theirs.Born, ok && (c.Born == "" || c.Born == theirs.Born)
			if reads := max(theirs.Reads, 1); ok && reads < v.cfg.reads {
				return "", unread(region, reads, v.cfg.reads)
			}
		}
		if !ok {
			silent = append(silent, region)
		}
	}
	slices.Sort(silent)
	switch {
	case !c.Remove && slices.Contains(silent, c.Region):
		return "", &api.Error{Code: api.PlacementRefused, Op: "change voters", Region: c.Region, Field: "voters", Hint: "its voter does not answer, is another one than the one that asks, or belongs to another founding; it has to be there before it gets a vote"}
	case 2*(len(after)-len(silent)) <= len(after):
		return "", &api.Error{Code: api.PlacementRefused, Op: "change voters", Region: c.Region, Field: "voters", Value: strings.Join(silent, ","),
			Hint: "they do not answer: without them fewer voters than a majority of the new ones would be left, and nothing could be decided any more"}
	}
	return born, nil
}

// answers reports whether a region's voter of this founding is in reach, and what it says.
func (v *Voter) answers(ctx context.Context, region string) (theirs hello, ok bool) {
	conn, err := open(ctx, v.cfg.Lines, region, v.hello(greet), func(name string, h hello) {
		v.heard(name, h)
		theirs, ok = h, h.Authority == v.mark.Authority
	})
	if err != nil {
		return hello{}, false
	}
	_ = conn.Close() // greeted
	return theirs, ok
}

// noteChange writes into the audit who votes, once for each set that was reached.
func (v *Voter) noteChange(ctx context.Context, c VoterChange, voters []string) error {
	voters = slices.Sorted(slices.Values(voters))
	var noted []string
	v.machine.read(func(s *placement.State) { noted = s.Voters() })
	if slices.Equal(noted, voters) {
		return nil
	}
	data, err := placement.Command{Verb: placement.Voters, ID: "voters/" + rand.Text(), Actor: c.Actor, Reason: c.Reason, Regions: voters, Approvals: c.Approvals}.Encode()
	if err == nil {
		_, _, err = v.propose(ctx, data)
	}
	if err != nil {
		return fmt.Errorf("%s: the voters are changed, the audit has no entry of it: %w", c.Region, err)
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
