package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
	"domicile/gateway/node"
	"domicile/regions"
)

func (a *app) controlCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "control", Short: "Found and look after the authority that places logs",
		Example: "  domicile control voters",
	}
	group.AddCommand(a.controlFound(), a.controlVoters(), a.controlSnapshot(), a.controlApprove())
	return group
}

func (a *app) controlFound() *cobra.Command {
	var config, name string
	var anew, alone bool
	var f governFlags
	cmd := &cobra.Command{
		Use: "found", Short: "Make this node the voter of its region, or found a lost authority anew",
		Long: `Makes the folder in which the region's voter lives, in the data directory of a node
that is not running. Run it once at one node of each region that federation.yaml names
under authority: without --authority at the first, which prints the name that the
founding has, and with that name at the others. Then start the nodes; the authority is
there once a majority of the voters is.

A voter that lost its folder has forgotten its votes, so it is never made again: it is taken
away and added anew, with control voters. To hold that, the command asks the other voters
first, with this node's certificate. It is refused if one of them knows of anything that was
decided; so make the voters of all regions before you start the nodes. With --authority it
also has to be told by --alone that this region never had a voter of this authority, while
one of the others cannot be asked, as is so at a first founding. --dry-run asks and makes nothing.

With --anew it speaks to a running node instead, for the day on which most of the voters are
lost for good: the node's region goes on alone, in a later generation, from what it knows.
That takes the approvals of two people. Look first, with --dry-run.`,
		Example: "  domicile control found -c eu-west/node.yaml --reason founding\n" +
			"  domicile control found -c us-east/node.yaml --authority 4QX7….1a2b3c4d --alone --reason founding\n" +
			"  domicile control found --anew --dry-run",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if anew {
				return a.changeAuthority(cmd.Context(), &f, "found", "")
			}
			if config == "" || f.reason == "" && !f.dryRun {
				return usage("control found needs -c node.yaml and --reason TEXT, or --anew")
			}
			return a.foundVoter(cmd.Context(), config, node.Founding{Authority: name, Alone: alone, Actor: operatorHere(), Reason: f.reason, DryRun: f.dryRun})
		},
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "path of the node's node.yaml")
	cmd.Flags().StringVar(&name, "authority", "", "name of the founding, as the first region's command printed it")
	cmd.Flags().BoolVar(&anew, "anew", false, "go on alone from what a running node knows, as most voters are lost")
	cmd.Flags().BoolVar(&alone, "alone", false, "the voters that do not answer never heard of one of this region")
	f.register(cmd)
	return cmd
}

// foundVoter makes the voter of a node's region, and says how it goes on.
func (a *app) foundVoter(ctx context.Context, config string, o node.Founding) error {
	c, f, err := loadNode(config, true)
	if err != nil {
		return err
	}
	name, others, err := node.Found(ctx, c, f, o)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(map[string]any{"authority": name, "others": others, "done": !o.DryRun})
	}
	if o.DryRun {
		_, err = fmt.Fprintln(a.out, "A voter would be made here. Nothing was changed.")
		return err
	}
	fmt.Fprintf(a.out, "The voter lives here from this node's next start on; its authority is %s.\n", name)
	if o.Authority == "" && len(others) > 0 {
		_, err = fmt.Fprintf(a.out, "Now, before any node is started, at one node each of %s: %s control found -c node.yaml --authority %s --alone --reason %s\n", strings.Join(others, ", "), commandHere(), name, quote(o.Reason))
	}
	return err
}

// operatorHere names who runs a command that works on this machine's files.
func operatorHere() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return fmt.Sprintf("user %d at %s", os.Getuid(), host)
}

func (a *app) controlVoters() *cobra.Command {
	cmd := &cobra.Command{
		Use: "voters", Short: "Show who votes, and this node's part in it; add and remove them", Example: "  domicile control voters", Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := a.placements(cmd.Context(), "")
			if err != nil {
				return err
			}
			s := m.GetAuthority()
			if a.json() {
				return a.printJSON(viewAuthority(s))
			}
			var b strings.Builder
			table(&b, "", voterRows(s))
			_, err = io.WriteString(a.out, b.String())
			return err
		},
	}
	cmd.AddCommand(a.votersAdd(), a.votersRemove())
	return cmd
}

// voterRows are a node's part in the authority.
func voterRows(s *pb.AuthorityState) [][]string {
	rows := [][]string{
		{"authority", authorityText(s)}, {"by the manifest", firstOf(strings.Join(s.GetVoters(), ", "), "nobody votes")}, {"this node", s.GetRole()},
	}
	if s.GetWitness() {
		rows[2][1] += ", a witness in no region"
	}
	if s.GetRole() == "voter" {
		leader, free := firstOf(s.GetLeader(), unknown), unknown
		if s.GetLeaderHeard() {
			leader += ", heard " + regions.Span(time.Duration(s.GetLeaderHeardNanoAgo())) + " ago"
		}
		if s.GetFreeKnown() {
			free = regions.Bytes(int64(s.GetFreeBytes()))
		}
		rows = append(rows, []string{"leader", leader}, []string{"voting", firstOf(strings.Join(s.GetVoting(), ", "), unknown)}, []string{"term", fmt.Sprint(s.GetTerm())},
			[]string{"entries", count(s.GetEntries()) + ", taken in up to " + count(s.GetApplied())}, []string{"free on its disk", free})
	}
	if r := s.GetRivals(); len(r) > 0 {
		rows = append(rows, []string{"RIVALS", strings.Join(r, ", ") + " belong to another founding"})
	}
	if s.GetTrouble() != "" {
		rows = append(rows, []string{"TROUBLE", s.GetTrouble()})
	}
	return rows
}

func (a *app) controlSnapshot() *cobra.Command {
	var f governFlags
	cmd := &cobra.Command{
		Use: "snapshot", Short: "Have a node's voter write its audit out and shorten its log",
		Long: `A voter does this by itself, every thousand entries. It changes nothing that was decided,
and no other voter's log. Look first, with --dry-run, and name the plan that it prints.`,
		Example: "  domicile control snapshot --dry-run\n" +
			"  domicile control snapshot --plan snapshot/0123456789abcdef0123456789abcdef --reason upgrade",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.changeAuthority(cmd.Context(), &f, "snapshot", "")
		},
	}
	f.registerAct(cmd)
	return cmd
}
