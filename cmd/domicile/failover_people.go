package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions/approval"
	"domicile/regions/identity"
)

func (a *app) failoverApprove() *cobra.Command {
	var q pb.ApproveMoveRequest
	var plan, role string
	var print bool
	var life time.Duration
	cmd := &cobra.Command{
		Use: "approve TOPIC", Short: "Sign your consent to a plan, with your operator's certificate",
		Long: `Read the plan first: failover plan, or failover status for a move under way. The consent
is to exactly this plan, in the role that you name, for an hour. Whoever asked for the move
cannot approve it. With --print the signed line is printed for whoever begins the move, and
no node is asked; else it is handed in to the move under way.`,
		Example: "  domicile failover approve news --plan 20261130T121500Z-0123456789abcdef0123456789abcdef --role incident --print",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Reason == "" && !print && !q.DryRun {
				return usage("failover approve needs --reason: why; kept in the audits")
			}
			text, err := a.sign(plan, role, life)
			if err != nil {
				return err
			}
			if print {
				fmt.Fprintln(a.out, text)
				return nil
			}
			q.Topic, q.Approval = args[0], text
			return a.changeLog(cmd.Context(), q.DryRun, func(ctx context.Context, c *client.Client) (*pb.MoveState, error) { return c.ApproveMove(ctx, &q) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Slot, "log", "", "which log of the topic: a region, or home; needed where it has several")
	flags.StringVar(&plan, "plan", "", "id of the plan that you have read")
	flags.StringVar(&role, "role", "", "in which you approve: operator, incident or compliance")
	flags.StringVar(&q.Reason, "reason", "", "why; kept in the audits")
	flags.BoolVar(&print, "print", false, "print the signed line, and hand it in to nobody")
	flags.BoolVar(&q.DryRun, "dry-run", false, "say whether it would be taken, and record nothing")
	flags.DurationVar(&life, "for", time.Hour, "how long it counts, at most 24h")
	completes(cmd, "role", approval.Operator, approval.Incident, approval.Compliance)
	return needs(cmd, "plan", "role")
}

// sign makes a signed statement with the operator's certificate of the chosen context.
func (a *app) sign(plan, role string, life time.Duration) (string, error) {
	t, err := a.resolve(toAdmin)
	if err != nil {
		return "", err
	}
	if t.Cert == "" {
		return "", usage("an approval is signed: give --ca, --cert and --key, or a context that holds them")
	}
	var pem [2][]byte
	for i, path := range []string{t.Cert, t.Key} {
		if pem[i], err = os.ReadFile(path); err != nil {
			return "", fileError("read certificate", path, err)
		}
	}
	cert, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return "", fileError("read certificate", t.Cert, err)
	}
	name, err := identity.NameOf(cert.Leaf)
	if err != nil {
		return "", err
	}
	s, err := approval.Sign(approval.Statement{Federation: name.Federation, Hash: plan, Role: role, Expires: a.now().Add(life)}, pem[0], pem[1])
	if err != nil {
		return "", err
	}
	return s.Encode()
}

func (a *app) failoverAbort() *cobra.Command {
	var q pb.AbortMoveRequest
	cmd := &cobra.Command{
		Use: "abort TOPIC", Short: "End a move that is not decided yet; the log stays where it was",
		Long:    "The epoch ends all the same, as its marker may be there: the home opens the next one.",
		Example: "  domicile failover abort news --dry-run\n  domicile failover abort news --plan 20261130T121500Z-0123456789abcdef0123456789abcdef --reason mistaken",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Topic = args[0]; !q.DryRun && (q.Plan == "" || q.Reason == "") {
				return usage("failover abort needs --plan ID, as failover status shows it, and --reason TEXT; --dry-run needs neither")
			}
			return a.changeLog(cmd.Context(), q.DryRun, func(ctx context.Context, c *client.Client) (*pb.MoveState, error) { return c.AbortMove(ctx, &q) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Slot, "log", "", "which log of the topic: a region, or home; needed where it has several")
	flags.StringVar(&q.Plan, "plan", "", "id of the plan that the move follows")
	flags.StringVar(&q.Reason, "reason", "", "why; kept in the audits")
	flags.BoolVar(&q.DryRun, "dry-run", false, "say what would be ended, and end nothing")
	return cmd
}

func (a *app) failoverResolve() *cobra.Command {
	var q pb.ResolveContestRequest
	var winner string
	cmd := &cobra.Command{
		Use: "resolve TOPIC", Short: "Say which of two claims to a log stands",
		Long: `A log is contested when two authorities gave it two homes; both refuse records until
somebody decides. What the loser wrote apart from the winner is void there: kept, counted and
named. failover status shows both claims.`,
		Example: "  domicile failover resolve news --winner 2.5.us-east --home us-east --dry-run",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := api.ParseEpoch(winner)
			if err != nil {
				return usage("--winner %s: write the epoch as failover status shows it", winner)
			}
			if q.Topic, q.Winner = args[0], wire.EpochToProto(e); !q.DryRun && (q.Plan == "" || q.Reason == "") {
				return usage("failover resolve needs --plan ID, as --dry-run prints it, and --reason TEXT")
			}
			return a.changeLog(cmd.Context(), q.DryRun, func(ctx context.Context, c *client.Client) (*pb.MoveState, error) { return c.ResolveContest(ctx, &q) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Slot, "log", "", "which log of the topic: a region, or home; needed where it has several")
	flags.StringVar(&winner, "winner", "", "epoch of the claim that stands")
	flags.StringVar(&q.Home, "home", "", "region of the claim that stands")
	flags.StringVar(&q.Plan, "plan", "", "what --dry-run printed")
	flags.StringVar(&q.Reason, "reason", "", "why; kept in the audits")
	flags.BoolVar(&q.DryRun, "dry-run", false, "say what would be decided, and decide nothing")
	return needs(cmd, "winner", "home")
}

// changeLog runs something that changes one log, and shows where it stands then.
func (a *app) changeLog(ctx context.Context, dryRun bool, do func(context.Context, *client.Client) (*pb.MoveState, error)) error {
	var m *pb.MoveState
	if err := a.withNode(ctx, func(ctx context.Context, c *client.Client) (err error) {
		m, err = do(ctx, c)
		return err
	}); err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(viewMove(m))
	}
	if dryRun {
		fmt.Fprintf(a.out, "%s\nplan %s\nNothing was changed.\n", m.GetPreview(), m.GetPreviewPlan())
		return nil
	}
	fmt.Fprint(a.out, renderMove(m))
	return nil
}
