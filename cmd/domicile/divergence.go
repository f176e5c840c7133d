package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
	"domicile/regions/loss"
)

func (a *app) divergenceCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "divergence", Short: "Records that a forced move left in a log's old home: look, republish, discard, report",
		Long: `After a forced move the old home keeps what it had stored and the new home had not: it is
void, nobody reads it, and it stays where it is until people decide. Ask the old home.`,
		Example: "  domicile divergence ls --context eu-west",
	}
	group.AddCommand(a.divergenceList(), a.divergenceShow(false), a.divergenceShow(true), a.divergenceRepublish(), a.divergenceDiscard(),
		a.divergenceApprove(), a.divergenceReport(), a.divergenceVerify())
	return group
}

// chosen are the flags that name one divergence.
type chosen struct {
	slot, epoch string
}

func (c *chosen) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.slot, "log", "", "which log of the topic: a region, or home; needed where several hold something void")
	cmd.Flags().StringVar(&c.epoch, "epoch", "", "the epoch that ended, as ls shows it; may be left out if there is only one")
}

// onDivergence asks a node about the one divergence that an argument and the flags name; no
// epoch is the only one there is.
func (a *app) onDivergence(at *chosen, do func(c *client.Client, slot string, epoch *pb.Epoch) error) error {
	var epoch *pb.Epoch
	if at.epoch != "" {
		e, err := api.ParseEpoch(at.epoch)
		if err != nil {
			return usage("--epoch %s: write the epoch as divergence ls shows it, like 1.2.q", at.epoch)
		}
		epoch = wire.EpochToProto(e)
	}
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c, at.slot, epoch)
}

func (a *app) divergenceList() *cobra.Command {
	return &cobra.Command{
		Use: "ls [TOPIC]", Short: "List what is void in a region", Long: "Exits 4 while the region does not know yet where every epoch ended: more may be void then.", Example: "  domicile divergence ls --context eu-west", Args: arguments(0, 1, "at most one TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := &pb.ListDivergencesRequest{Topic: strings.Join(args, "")}
			var r *pb.ListDivergencesResponse
			err := a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				r, err = c.Divergences(ctx, q)
				return err
			})
			if err != nil {
				return err
			}
			views := []divergenceView{}
			for _, d := range r.GetDivergences() {
				views = append(views, viewDivergence(d))
			}
			if a.json() {
				err = a.printJSON(map[string]any{"divergences": views, "complete": r.GetComplete()})
			} else {
				_, err = io.WriteString(a.out, renderDivergences(views, r.GetComplete()))
			}
			if err == nil && !r.GetComplete() {
				err = ended(exitUnknown)
			}
			return err
		},
	}
}

// ask runs something that changes nothing, within the usual time.
func (a *app) ask(ctx context.Context, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	return asked(do(ctx, c))
}

func (a *app) divergenceShow(whole bool) *cobra.Command {
	var at chosen
	q := &pb.ReadDivergenceRequest{Whole: whole}
	cmd := &cobra.Command{
		Use: "show TOPIC", Short: "List the records of a divergence, by the hashes of their ids",
		Example: "  domicile divergence show orders --context eu-west", Args: arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := a.printDivergent(whole)
			return a.onDivergence(&at, func(c *client.Client, slot string, epoch *pb.Epoch) error {
				q.Topic, q.Slot, q.Epoch = args[0], slot, epoch
				return asked(c.ReadDivergence(cmd.Context(), q, func(m *pb.ReadDivergenceResponse) error {
					for _, r := range m.GetRecords() {
						if err := print(r); err != nil {
							return err
						}
					}
					return nil
				}))
			})
		},
	}
	if whole {
		cmd.Use, cmd.Short = "export TOPIC", "Write the records of a divergence, whole, one JSON object a line"
		cmd.Long = "Records that you may not read in this region are withheld: give your certificate a place in node.yaml."
		cmd.Example = "  domicile divergence export orders --context eu-west"
	}
	at.flags(cmd)
	cmd.Flags().Uint64Var(&q.After, "after", 0, "begin behind this sequence")
	cmd.Flags().Uint32Var(&q.Limit, "limit", 0, "at most so many records; 0: all")
	return cmd
}

// decided are the flags of a decision about a divergence.
func decided(cmd *cobra.Command, hash, reason *string, dry *bool) {
	cmd.Flags().StringVar(hash, "hash", "", "the divergence's hash, as ls and --dry-run show it: what is decided about is what was looked at")
	cmd.Flags().StringVar(reason, "reason", "", "why; kept in the region's audit")
	cmd.Flags().BoolVar(dry, "dry-run", false, "say what would be done, and do nothing")
}

// decisive refuses a decision without a reason, or about nothing in particular.
func decisive(cmd *cobra.Command, hash, reason string, dry bool) error {
	if !dry && (hash == "" || reason == "") {
		return usage("%s needs --hash H, as divergence ls shows it, and --reason TEXT; --dry-run needs neither", short(cmd))
	}
	return nil
}

func (a *app) divergenceRepublish() *cobra.Command {
	var at chosen
	q := &pb.RepublishDivergenceRequest{}
	cmd := &cobra.Command{
		Use: "republish TOPIC", Short: "Publish void records anew, under their own ids",
		Long: `Each record goes the way of any record: the policy judges it again, and where its id is
known already it is not stored a second time. What a rule refuses stays in the old home.
The command can be run again at any time. Order holds among the records of one run that
are stored at the first try; against what was published since it does not.`,
		Example: "  domicile divergence republish orders --hash H --reason returned --context eu-west",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := decisive(cmd, q.GetHash(), q.GetReason(), q.GetDryRun()); err != nil {
				return err
			}
			return a.onDivergence(&at, func(c *client.Client, slot string, epoch *pb.Epoch) error {
				q.Topic, q.Slot, q.Epoch = args[0], slot, epoch
				var last *pb.RepublishDivergenceResponse
				if err := c.RepublishDivergence(cmd.Context(), q, func(m *pb.RepublishDivergenceResponse) error { last = m; return nil }); err != nil {
					return err
				}
				return a.printDecision(last.GetDivergence(), last.GetPreview(), "")
			})
		},
	}
	at.flags(cmd)
	decided(cmd, &q.Hash, &q.Reason, &q.DryRun)
	cmd.Flags().StringVar(&q.PrincipalClass, "class", "", "principal class that the policy judges the records as; default your own")
	return cmd
}

func (a *app) divergenceDiscard() *cobra.Command {
	var at chosen
	q := &pb.DiscardDivergenceRequest{}
	cmd := &cobra.Command{
		Use: "discard TOPIC", Short: "Put on record that void records are not wanted",
		Long: `Two people decide: you, and one who has signed with domicile divergence approve. What was
republished stays; the rest is taken by retention in its turn.`,
		Example: "  domicile divergence discard orders --hash H --reason unwanted --approval STATEMENT --context eu-west",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := decisive(cmd, q.GetHash(), q.GetReason(), q.GetDryRun()); err != nil {
				return err
			}
			return a.onDivergence(&at, func(c *client.Client, slot string, epoch *pb.Epoch) error {
				q.Topic, q.Slot, q.Epoch = args[0], slot, epoch
				ctx, cancel := context.WithTimeout(cmd.Context(), reloadWithin)
				defer cancel()
				r, err := c.DiscardDivergence(ctx, q)
				if err != nil {
					return err
				}
				return a.printDecision(r.GetDivergence(), r.GetPreview(), r.GetApprove())
			})
		},
	}
	at.flags(cmd)
	decided(cmd, &q.Hash, &q.Reason, &q.DryRun)
	cmd.Flags().StringArrayVar(&q.Approvals, "approval", nil, "another person's signed statement; may be given several times")
	return cmd
}

// divergenceApprove signs on this machine: the key goes nowhere.
func (a *app) divergenceApprove() *cobra.Command {
	var role string
	var life time.Duration
	cmd := &cobra.Command{
		Use: "approve WHAT", Short: "Consent, as the second person, to what discard --dry-run asks to be approved",
		Example: "  domicile divergence approve discard:HASH --role incident",
		Args:    arguments(1, 1, "what discard --dry-run printed"),
		RunE: func(_ *cobra.Command, args []string) error {
			files, id, err := a.operator()
			if err != nil {
				return err
			}
			certPEM, err := os.ReadFile(files.Cert)
			if err != nil {
				return err
			}
			keyPEM, err := os.ReadFile(files.Key)
			if err != nil {
				return err
			}
			signed, err := approval.Sign(approval.Statement{Federation: id.Name().Federation, Hash: args[0], Role: role, Expires: time.Now().Add(life)}, certPEM, keyPEM)
			if err != nil {
				return err
			}
			text, err := signed.Encode()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, text)
			return err
		},
	}
	cmd.Flags().StringVar(&role, "role", approval.Incident, "in which you consent: incident or compliance")
	completes(cmd, "role", approval.Incident, approval.Compliance)
	cmd.Flags().DurationVar(&life, "for", time.Hour, "how long it counts")
	return cmd
}

// operator is who acts, by the certificate that flags or context name.
func (a *app) operator() (identity.Files, *identity.Identity, error) {
	t, err := a.resolve(toAdmin)
	if err != nil {
		return identity.Files{}, nil, err
	}
	if t.CA == "" {
		return identity.Files{}, nil, usage("this needs your certificate: --ca, --cert and --key, or a context that has them")
	}
	files := identity.Files{Cert: t.Cert, Key: t.Key, CA: t.CA}
	id, err := identity.Load(files, regions.NewSteadyClock())
	return files, id, err
}

func (a *app) divergenceReport() *cobra.Command {
	var at chosen
	var first string
	cmd := &cobra.Command{
		Use: "report TOPIC", Short: "What a forced move left behind, signed",
		Long: `At the new home: what is missing by the hash of its id, what is unknown, and the bounds, as
of the cut; write it to a file with -o json. At the old home, with --first and what the new home gave: what it really was,
what became of each record, and each claim of the first report held against that.`,
		Example: "  domicile divergence report orders --context eu-west --first first.json",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := &pb.ReportLossRequest{Topic: args[0]}
			var text []byte
			if first != "" {
				var err error
				if q.First, err = readFile("read report", first); err != nil {
					return err
				}
			}
			err := a.onDivergence(&at, func(c *client.Client, slot string, epoch *pb.Epoch) (err error) {
				q.Slot, q.Epoch = slot, epoch
				ctx, cancel := context.WithTimeout(cmd.Context(), askWithin)
				defer cancel()
				text, err = c.ReportLoss(ctx, q)
				return asked(err)
			})
			if err != nil {
				return err
			}
			return a.printLoss(text)
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVar(&first, "first", "", "at the old home: the file that the new home's report was written to")
	return cmd
}

func (a *app) divergenceVerify() *cobra.Command {
	return &cobra.Command{
		Use: "verify-report FILE", Short: "Check that a report is what a region of the federation signed",
		Example: "  domicile divergence verify-report first.json --context eu-west", Args: arguments(1, 1, "a FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := readFile("read report", args[0])
			if err != nil {
				return err
			}
			report, err := loss.Parse(text)
			if err != nil {
				return err
			}
			_, id, err := a.operator()
			if err != nil {
				return err
			}
			by, err := report.Verify(id)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"signed_by": by, "version": report.Report.Version})
			}
			_, err = fmt.Fprintf(a.out, "report %d of %s, signed by region %s\n", report.Report.Version, report.Report.Move.Log, by)
			return err
		},
	}
}

func (a *app) printLoss(text []byte) error {
	if a.json() {
		_, err := fmt.Fprintln(a.out, string(text))
		return err
	}
	var s loss.Signed
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	_, err := io.WriteString(a.out, s.Report.Markdown())
	return err
}
