package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/regions/placement"
)

// startFlags say what is begun, why, and with whose consent.
type startFlags struct {
	moveFlags
	plan, reason string
	dryRun       bool
	approvals    []string // files
	wait         time.Duration
}

func (f *startFlags) register(cmd *cobra.Command, dryRun bool) {
	f.where(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.plan, "plan", "", "id of the plan, as failover plan printed it")
	flags.StringVar(&f.reason, "reason", "", "why; kept in the audits")
	flags.BoolVar(&f.dryRun, "dry-run", dryRun, "run the same checks, and begin nothing")
	flags.StringSliceVar(&f.approvals, "approval", nil, "file with an approval of the plan, as failover approve --print wrote it")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to watch the move; it goes on without")
}

func (a *app) failoverSwitchover() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use: "switchover TOPIC", Short: "Move a log while its home and the target are up; nothing is lost",
		Long: `The home takes no more records and closes its epoch with a marker; the target copies
all up to it and takes over. Producers wait meanwhile, and what was under way is answered
or is OUTCOME_UNKNOWN. After a minute without an end the move is given up, and the home
goes on.`,
		Example: "  domicile failover switchover news --to us-east --plan 20261130T121500Z-0123456789abcdef0123456789abcdef --reason maintenance",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.start(cmd.Context(), &f, args[0], placement.Planned)
		},
	}
	f.register(cmd, false)
	f.target(a, cmd)
	return needs(cmd, "to")
}

func (a *app) failoverBack() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use: "back TOPIC", Short: "Move a log back to where federation.yaml puts it; nothing is lost",
		Example: "  domicile failover back news --dry-run\n  domicile failover back news --plan 20261130T121500Z-0123456789abcdef0123456789abcdef --reason healed",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.start(cmd.Context(), &f, args[0], placement.Planned)
		},
	}
	f.register(cmd, false)
	return cmd
}

func (a *app) failoverForce() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use: "force TOPIC", Short: "Move a log whose home is lost, and say how much may be lost with it",
		Long: `Without --dry-run=false it only shows what it would do. What the old home had beyond the
cut is void there: kept, counted and named, to be published again or discarded. The old
home stops by its lease (fence_after), by its own marker if it is heard, because people
attest that it is stopped, or not at all: then --accept-divergence says that what it goes
on storing is void.`,
		Example: "  domicile failover force news --to us-east --accept-loss 5s\n  domicile failover force news --to us-east --accept-loss 5s --plan 20261130T121500Z-0123456789abcdef0123456789abcdef --reason fire --dry-run=false",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.start(cmd.Context(), &f, args[0], placement.Forced)
		},
	}
	f.register(cmd, true)
	f.target(a, cmd)
	f.price(cmd)
	return needs(cmd, "to")
}

// start begins a move and watches it to its end.
func (a *app) start(ctx context.Context, f *startFlags, topic string, kind placement.Kind) error {
	if err := f.settle(topic, kind); err != nil {
		return err
	}
	if f.dryRun && f.plan == "" {
		return a.plan(ctx, &f.MoveRequest)
	}
	if f.plan == "" || f.reason == "" && !f.dryRun {
		return usage("it needs --plan ID, from domicile failover plan, and --reason TEXT; --dry-run needs neither")
	}
	q := &pb.StartMoveRequest{Move: &f.MoveRequest, Plan: f.plan, Reason: f.reason, DryRun: f.dryRun}
	var err error
	if q.Approvals, err = readApprovals(f.approvals); err != nil {
		return err
	}
	var r *pb.StartMoveResponse
	if err := a.withNode(ctx, func(ctx context.Context, c *client.Client) (err error) {
		r, err = c.StartMove(ctx, q)
		return err
	}); err != nil {
		return err
	}
	if f.dryRun {
		if err := a.showPlan(r.GetPlan()); err != nil || a.json() {
			return err
		}
		_, err := fmt.Fprintln(a.out, "Nothing was begun: the plan holds, and enough people approve it.")
		return err
	}
	return a.follow(ctx, r.GetPlan(), f.plan, f.wait)
}

var errSettled = errors.New("the move has ended")

// follow shows each step of a move until it has ended. It ends with 1 if the log stayed
// where it was, with 2 if its new home may not open it, and with 4 if the end was not seen.
func (a *app) follow(ctx context.Context, p *pb.MovePlan, id string, wait time.Duration) error {
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m := moveSeen{plan: p, id: id}
	log := p.GetLog()
	err = c.WatchMoves(ctx, &pb.WatchMovesRequest{Topic: log.GetTopic(), Slot: log.GetSlot(), Watch: true}, func(states *pb.MoveStates) error {
		for _, l := range states.GetLogs() {
			if line := m.see(l); line != "" && !a.json() {
				fmt.Fprintln(a.out, line)
			}
		}
		if m.over {
			return errSettled
		}
		return nil
	})
	if a.json() && m.last != nil {
		if err := a.printJSON(viewMove(m.last)); err != nil {
			return err
		}
	}
	if !errors.Is(err, errSettled) {
		return &api.Error{Code: api.OutcomeUnknown, Op: "watch move", Topic: log.GetTopic(), Err: err,
			Hint: "its end was not seen; it goes on without being watched: domicile failover status " + log.GetTopic()}
	}
	return ended(m.exit)
}

// moveSeen is what was seen of one move.
type moveSeen struct {
	plan *pb.MovePlan
	id   string
	step string
	over bool
	exit exitCode
	last *pb.MoveState
}

// see takes a state in and says what is new in it.
func (m *moveSeen) see(l *pb.MoveState) string {
	m.last = l
	here := l.GetOp() != "" && l.GetPlan() == m.id
	switch {
	case here && l.GetRefused() != "":
		m.over, m.exit = true, exitRefused
		return logName(l.GetLog()) + " is decided to be in " + l.GetHome() + ", whose own policy forbids it to open the log (" + l.GetRefused() + "): it takes no record until it is moved to a region where all of it may rest"
	case here && l.GetStep() == m.step:
		return ""
	case here:
		m.step = l.GetStep()
		return stepLine(l)
	case sameEpoch(l.GetEpoch(), m.plan.GetEpoch()):
		return "" // this node's copy of the placement is older than the move
	}
	m.over = true
	if l.GetHome() == m.plan.GetTarget() {
		return fmt.Sprintf("%s is in %s, epoch %s", logName(l.GetLog()), l.GetHome(), epochText(l.GetEpoch()))
	}
	m.exit = exitFailure
	return fmt.Sprintf("the move has ended and %s stays in %s, epoch %s: %s", logName(l.GetLog()), l.GetHome(), epochText(l.GetEpoch()), l.GetReason())
}
