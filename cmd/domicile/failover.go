package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/regions/placement"
)

func (a *app) failoverCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "failover", Short: "Move a log to another region, by the rule that its topic declares",
		Long: `Only logs of topics with failover: manual move, and only to regions where every record
of the log may rest. Look first: plan says what a move would do, what each rule says to it
and how much could be lost, and prints an id. What is begun is exactly that plan; if what it
rests on has changed meanwhile, it is refused.

A planned move (switchover, back) loses nothing and needs both regions. A forced one
(force) is for a home that is lost: it says how much is accepted to be lost. Speak to a
node of the region that takes over: it knows how far its copy is.`,
		Example: "  domicile failover plan news --to us-east --context us-east\n  domicile failover switchover news --to us-east --plan ID --reason maintenance --context us-east",
	}
	group.AddCommand(a.failoverPlan(), a.failoverSwitchover(), a.failoverForce(), a.failoverBack(), a.failoverApprove(),
		a.failoverAbort(), a.failoverStatus(), a.failoverResolve())
	return group
}

// moveFlags say which log is to go where, and at what price.
type moveFlags struct {
	pb.MoveRequest
	accept string
}

func (f *moveFlags) where(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Slot, "log", "", "which log of the topic: a region, or home; needed where it has several")
}

func (f *moveFlags) target(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Target, "to", "", "region that is to take the log")
	if err := cmd.RegisterFlagCompletionFunc("to", a.completeTargets); err != nil {
		panic(err) // a flag of the line before
	}
}

func (f *moveFlags) price(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.accept, "accept-loss", "", "the most that may be lost: a time, or a time and a number of records, as 5s,1000")
	flags.BoolVar(&f.AcceptDivergence, "accept-divergence", false, "the old home may go on; what it then stores is void and named afterwards")
	flags.BoolVar(&f.AttestStopped, "attest-stopped", false, "people sign that the old home is stopped; takes the approvals of two")
	flags.StringSliceVar(&f.Overrides, "override", nil, "rule to set aside, by its id: "+strings.Join(overridableRules(), ", "))
	completes(cmd, "override", overridableRules()...)
}

// completes offers a flag's words, and no files.
func completes(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag of the line before
	}
}

func overridableRules() []string {
	var out []string
	for i := 1; i <= 20; i++ {
		if id := "S" + strconv.Itoa(i); placement.Overridable(id) {
			out = append(out, id)
		}
	}
	return out
}

// settle reads what --accept-loss says.
func (f *moveFlags) settle(topic string, kind placement.Kind) error {
	f.Topic, f.Kind = topic, string(kind)
	if f.accept == "" {
		return nil
	}
	span, records, both := strings.Cut(f.accept, ",")
	d, err := time.ParseDuration(span)
	if err != nil || d < 0 {
		return usage("--accept-loss %s: write a time as 5s, or a time and a number of records as 5s,1000", f.accept)
	}
	nano := int64(d)
	f.AcceptSpanNano = &nano
	if both {
		n, err := strconv.ParseUint(records, 10, 64)
		if err != nil {
			return usage("--accept-loss %s: write a time as 5s, or a time and a number of records as 5s,1000", f.accept)
		}
		f.AcceptRecords = &n
	}
	return nil
}

func (a *app) failoverPlan() *cobra.Command {
	var f moveFlags
	var forced bool
	cmd := &cobra.Command{
		Use: "plan TOPIC", Short: "Say what moving a log would do, and change nothing",
		Long:    "Exits 2 if a rule refuses the move. The id that it prints holds for 15 minutes.",
		Example: "  domicile failover plan news --to us-east\n  domicile failover plan news --to us-east --forced --accept-loss 5s",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := placement.Planned
			if forced {
				kind = placement.Forced
			}
			if err := f.settle(args[0], kind); err != nil {
				return err
			}
			return a.plan(cmd.Context(), &f.MoveRequest)
		},
	}
	f.where(cmd)
	f.target(a, cmd)
	f.price(cmd)
	cmd.Flags().BoolVar(&forced, "forced", false, "as failover force would do it")
	return cmd
}

// plan asks for a plan and shows it; it ends with 2 if a rule refuses it.
func (a *app) plan(ctx context.Context, q *pb.MoveRequest) error {
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	p, err := c.PlanMove(ctx, q)
	if err != nil {
		return asked(err)
	}
	if err := a.showPlan(p); err != nil {
		return err
	}
	if p.GetId() == "" {
		return ended(exitRefused)
	}
	return nil
}

func (a *app) showPlan(p *pb.MovePlan) error {
	if a.json() {
		return a.printJSON(viewPlan(p))
	}
	_, err := io.WriteString(a.out, renderPlan(p))
	return err
}

// completeTargets offers the regions that the node says the log may go to, and no others.
func (a *app) completeTargets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	slot, _ := cmd.Flags().GetString("log")
	c, err := a.dial(toAdmin)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	_ = c.WatchMoves(ctx, &pb.WatchMovesRequest{Topic: args[0], Slot: slot}, func(m *pb.MoveStates) error { // no answer completes nothing
		for _, l := range m.GetLogs() {
			out = append(out, l.GetTargets()...)
		}
		return nil
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) failoverStatus() *cobra.Command {
	var q pb.WatchMovesRequest
	cmd := &cobra.Command{
		Use: "status [TOPIC]", Short: "Say where the logs that may move are, and what moves",
		Example: "  domicile failover status news --watch",
		Args:    arguments(0, 1, "a TOPIC or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Topic = args[0]
			}
			return a.watchMoves(cmd.Context(), &q)
		},
	}
	cmd.Flags().StringVar(&q.Slot, "log", "", "one log of the topic")
	cmd.Flags().BoolVar(&q.Watch, "watch", false, "again at every change, until Ctrl-C")
	return cmd
}

func (a *app) watchMoves(ctx context.Context, q *pb.WatchMovesRequest) error {
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.WatchMoves(ctx, q, func(m *pb.MoveStates) error {
		if a.json() {
			return a.printJSON(viewMoves(m))
		}
		_, err := io.WriteString(a.out, renderMoves(m))
		return err
	})
	if interrupted(ctx, err) {
		return nil
	}
	return asked(err)
}

// withNode runs something that changes where logs are.
func (a *app) withNode(ctx context.Context, do func(context.Context, *client.Client) error) error {
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	return do(ctx, c)
}
