package council

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

const (
	retryEvery     = 200 * time.Millisecond
	enqueueTimeout = time.Second
)

// Submit brings a command to the authority and waits for what it came to, until ctx ends.
// A refusal is the authority's own. AUTHORITY_UNREACHABLE: nothing was changed;
// OUTCOME_UNKNOWN: it may have been, and the same command sent again says so.
func (v *Voter) Submit(ctx context.Context, c placement.Command) (placement.Result, error) {
	if err := submittable(c); err != nil {
		return placement.Result{}, err
	}
	data, err := c.Encode()
	if err != nil {
		return placement.Result{}, err
	}
	if _, err := placement.DecodeCommand(data, v.cfg.reads); err != nil {
		return placement.Result{}, err
	}
	return v.submit(ctx, &c, data, func() (*proof, error) { return v.proven(v.cfg.Identity, &c, data) })
}

func (v *Voter) proven(by identity.Signer, c *placement.Command, data []byte) (p *proof, err error) {
	v.machine.read(func(s *placement.State) { p, err = prove(by, s, c, data) })
	return p, err
}

// submittable refuses what only the authority itself may say.
func submittable(c placement.Command) error {
	if c.Owned() {
		return &api.Error{Code: api.PermissionDenied, Op: "place log", Field: "verb", Value: string(c.Verb), Hint: "only the authority's leader says that"}
	}
	return nil
}

// submit brings an encoded command to the leader; proven is asked before each try.
func (v *Voter) submit(ctx context.Context, c *placement.Command, data []byte, proven func() (*proof, error)) (placement.Result, error) {
	var r placement.Result
	err := again(ctx, v.cfg.Pace.Of(retryEvery), func() (bool, error) {
		if err := v.contested(); err != nil {
			return false, err
		}
		leader := v.leader()
		if leader == "" {
			return false, noLeader()
		}
		p, err := proven()
		if err != nil {
			return false, err
		}
		if leader == v.mark.Region {
			var sent bool
			r, sent, err = v.offer(ctx, c, data, p)
			return sent, err
		}
		answer, sent, err := ask(ctx, v.cfg.Lines, leader, v.greeting(), v.heard, request{Command: data, Proof: p, Forwarded: true})
		r = answer.Result
		return sent, err
	})
	return r, err
}

func (v *Voter) leader() string {
	_, id := v.raft.LeaderWithID()
	return string(id)
}

func noLeader() error {
	return &api.Error{Code: api.NotReady, Op: "place log", Field: "leader", Hint: "the voters have no leader at this moment"}
}

// propose puts a command into the log, if this voter leads, and waits for what it came to.
func (v *Voter) propose(ctx context.Context, data []byte) (r placement.Result, sent bool, err error) {
	if err := v.contested(); err != nil {
		return r, false, err
	}
	if err := v.readByAll(data); err != nil {
		return r, false, err
	}
	if !v.enter() {
		return r, false, &api.Error{Code: api.ShuttingDown, Op: "place log", Hint: "ask another voter"}
	}
	f := v.raft.Apply(data, v.cfg.Pace.Of(enqueueTimeout))
	done := make(chan error, 1)
	go func() {
		defer v.wg.Done()
		done <- f.Error()
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return r, true, unknown(ctx.Err())
	}
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return r, false, noLeader()
	case err != nil:
		return r, true, unknown(err)
	}
	o, ok := f.Response().(outcome)
	if !ok {
		return r, true, unknown(errors.New("no outcome"))
	}
	return o.result, false, o.err
}

func unknown(cause error) error {
	return &api.Error{Code: api.OutcomeUnknown, Op: "place log", Err: cause, Hint: "send the same command again"}
}
