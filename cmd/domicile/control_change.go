package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/regions/approval"
)

// governFlags say why something is changed that people answer for, and with whose consent.
type governFlags struct {
	plan, reason string
	dryRun       bool
	approvals    []string // files
}

// register gives a command the flags of an act that may take people's approvals.
func (f *governFlags) register(cmd *cobra.Command) {
	f.registerAct(cmd)
	cmd.Flags().StringSliceVar(&f.approvals, "approval", nil, "file with an approval of the plan, as control approve printed it")
}

func (f *governFlags) registerAct(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.plan, "plan", "", "what --dry-run printed")
	flags.StringVar(&f.reason, "reason", "", "why; kept in the audits")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done and what it takes, and do nothing")
}

// read reads the approvals, and refuses what says neither to look nor to act.
func (f *governFlags) read() (approvals []string, err error) {
	if !f.dryRun && (f.plan == "" || f.reason == "") {
		return nil, usage("it needs --plan ID, as --dry-run prints it, and --reason TEXT")
	}
	return readApprovals(f.approvals)
}

// readApprovals reads signed statements, of which each has a line of its own.
func readApprovals(paths []string) (lines []string, err error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fileError("read approval", path, err)
		}
		lines = append(lines, approval.Lines(string(text))...)
	}
	return lines, nil
}

func (a *app) votersAdd() *cobra.Command {
	var f governFlags
	cmd := &cobra.Command{
		Use: "add REGION", Short: "Give a region a vote; speak to the node of it where its voter is to live",
		Long: `The region has to be among the voters of federation.yaml, at the leader's node too. A
voter's folder that is on the node from an earlier authority is put aside. One change at a
time: who votes must answer, or the change is refused.`,
		Example: "  domicile control voters add us-east --context us-east --dry-run",
		Args:    arguments(1, 1, "a REGION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeAuthority(cmd.Context(), &f, "add", args[0])
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) votersRemove() *cobra.Command {
	var f governFlags
	cmd := &cobra.Command{
		Use: "remove REGION", Short: "Take a region's vote away; speak to any node that votes",
		Long: `For a voter that is lost with its folder, or a region that federation.yaml has no longer
vote, with the approvals of two people. It is refused if those that are left would be no
majority in reach. With fewer than three left, nothing is decided while one is lost.`,
		Example: "  domicile control voters remove us-east --dry-run",
		Args:    arguments(1, 1, "a REGION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeAuthority(cmd.Context(), &f, "remove", args[0])
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) controlApprove() *cobra.Command {
	var plan, role string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "approve", Short: "Sign your consent to a change of who decides, or of how far a log may go",
		Long: `Read what --dry-run printed first. The signed line counts for exactly this plan, in the
role that you name. Give it to whoever carries it out, who cannot approve it too.`,
		Example: "  domicile control approve --plan found/0123456789abcdef0123456789abcdef --role incident",
		Args:    arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			text, err := a.sign(plan, role, life)
			if err == nil {
				_, err = fmt.Fprintln(a.out, text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "what --dry-run printed")
	cmd.Flags().StringVar(&role, "role", "", "in which you approve: incident, or compliance for what a log may do")
	cmd.Flags().DurationVar(&life, "for", time.Hour, "how long it counts, at most 24h")
	return needs(cmd, "plan", "role")
}

func (a *app) placementWiden() *cobra.Command {
	var f governFlags
	var slot string
	cmd := &cobra.Command{
		Use: "widen TOPIC", Short: "Let a log go further than it was declared before; takes two people of compliance",
		Long: `What a log may do is declared in federation.yaml and by the policy. Where they let it go
further than the authority has it, to more regions, or to another home at all, the authority
takes that only from two people of compliance, other than the one who asks. Speak to a node of
its home. It moves nothing.`,
		Example: "  domicile placement widen news --dry-run",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			approvals, err := f.read()
			if err != nil {
				return err
			}
			return a.govern(cmd.Context(), func(ctx context.Context, c *client.Client) (*pb.GovernResponse, error) {
				return c.WidenTerms(ctx, &pb.WidenTermsRequest{Topic: args[0], Slot: slot, Plan: f.plan, Reason: f.reason, DryRun: f.dryRun, Approvals: approvals})
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&slot, "log", "", "which log of the topic: a region, or home; needed where it has several")
	return cmd
}

func (a *app) changeAuthority(ctx context.Context, f *governFlags, verb, region string) error {
	approvals, err := f.read()
	if err != nil {
		return err
	}
	return a.govern(ctx, func(ctx context.Context, c *client.Client) (*pb.GovernResponse, error) {
		return c.ChangeAuthority(ctx, &pb.ChangeAuthorityRequest{Verb: verb, Region: region, Plan: f.plan, Reason: f.reason, DryRun: f.dryRun, Approvals: approvals})
	})
}

// govern runs something that people answer for, and shows what it did or would do.
func (a *app) govern(ctx context.Context, do func(context.Context, *client.Client) (*pb.GovernResponse, error)) error {
	var m *pb.GovernResponse
	if err := a.withNode(ctx, func(ctx context.Context, c *client.Client) (err error) {
		m, err = do(ctx, c)
		return err
	}); err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(map[string]any{"plan": m.GetPlan(), "says": m.GetSays(), "approvals": m.GetApprovals(), "approval_role": m.GetApprovalRole(), "done": m.GetDone()})
	}
	for _, line := range m.GetSays() {
		fmt.Fprintln(a.out, line)
	}
	if m.GetDone() {
		_, err := fmt.Fprintln(a.out, "done")
		return err
	}
	if n := m.GetApprovals(); n > 0 {
		fmt.Fprintf(a.out, "takes the approvals of %d people as %s, other than the one who asks\n", n, m.GetApprovalRole())
	}
	_, err := fmt.Fprintf(a.out, "plan %s\nNothing was changed.\n", m.GetPlan())
	return err
}
