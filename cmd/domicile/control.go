package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/gateway/node"
	"domicile/regions/council"
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
	var anew bool
	var f governFlags
	cmd := &cobra.Command{
		Use: "found", Short: "Make this node the voter of its region, or found a lost authority anew",
		Long: `Makes the folder in which the region's voter lives, in the data directory of a node
that is not running. Run it once at one node of each region that federation.yaml names
under authority: without --authority at the first, which prints the name that the
founding has, and with that name at the others. Then start the nodes; the authority is
there once a majority of the voters is.

A voter that lost its folder has forgotten its votes: it is not made again with the same
name while the others live. It is taken away and added anew, with control voters.

With --anew it speaks to a running node instead, for the day on which most of the voters are
lost for good: the node's region goes on alone, in a later generation, from what it knows.
That takes the approvals of two people. Look first, with --dry-run.`,
		Example: "  domicile control found -c eu-west/node.yaml --reason founding\n" +
			"  domicile control found -c us-east/node.yaml --authority 4QX7… --reason founding\n" +
			"  domicile control found --anew --dry-run",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if anew {
				return a.changeAuthority(cmd.Context(), &f, "found", "")
			}
			if config == "" || f.reason == "" {
				return usage("control found needs -c node.yaml and --reason TEXT, or --anew")
			}
			first, reason := name == "", f.reason
			if first {
				name = rand.Text()
			}
			others, err := foundVoter(config, name, reason)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"authority": name, "others": others})
			}
			fmt.Fprintf(a.out, "The voter lives here from this node's next start on; its authority is %s.\n", name)
			if first && len(others) > 0 {
				_, err = fmt.Fprintf(a.out, "Now at one node each of %s: %s control found -c node.yaml --authority %s --reason %s\n", strings.Join(others, ", "), commandHere(), name, quote(reason))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "path of the node's node.yaml")
	cmd.Flags().StringVar(&name, "authority", "", "name of the founding, as the first region's command printed it")
	cmd.Flags().BoolVar(&anew, "anew", false, "go on alone from what a running node knows, as most voters are lost")
	f.register(cmd)
	return cmd
}

// foundVoter makes the voter of a node's region and lists the other regions that vote.
func foundVoter(config, name, reason string) (others []string, err error) {
	c, f, err := loadNode(config, true)
	if err != nil {
		return nil, err
	}
	voters := f.Voters()
	if !slices.Contains(voters, c.Region) {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "found authority", Region: c.Region, Field: "authority.voters", Value: strings.Join(voters, ","),
			Hint: "federation.yaml does not have this region vote: name it there, in every region's file alike"}
	}
	err = council.Create(council.Birth{Dir: node.CouncilDir(c.Data), Region: c.Region, Authority: name, Voters: voters, Actor: operatorHere(), Reason: reason})
	return slices.DeleteFunc(slices.Clone(voters), func(v string) bool { return v == c.Region }), err
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
			rows := [][]string{
				{"authority", authorityText(s)}, {"by the manifest", firstOf(strings.Join(s.GetVoters(), ", "), "nobody votes")}, {"this node", s.GetRole()},
			}
			if s.GetRole() == "voter" {
				rows = append(rows, []string{"leader", firstOf(s.GetLeader(), unknown)}, []string{"voting", firstOf(strings.Join(s.GetVoting(), ", "), unknown)},
					[]string{"term", fmt.Sprint(s.GetTerm())}, []string{"entries", count(s.GetEntries())})
			}
			if r := s.GetRivals(); len(r) > 0 {
				rows = append(rows, []string{"RIVALS", strings.Join(r, ", ") + " belong to another founding"})
			}
			if s.GetTrouble() != "" {
				rows = append(rows, []string{"TROUBLE", s.GetTrouble()})
			}
			var b strings.Builder
			table(&b, "", rows)
			_, err = io.WriteString(a.out, b.String())
			return err
		},
	}
	cmd.AddCommand(a.votersAdd(), a.votersRemove())
	return cmd
}

func (a *app) controlSnapshot() *cobra.Command {
	return &cobra.Command{
		Use: "snapshot", Short: "Have a node's voter write its audit out and shorten its log", Example: "  domicile control snapshot", Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askWithin)
			defer cancel()
			c, err := a.dial(toAdmin)
			if err != nil {
				return err
			}
			defer c.Close()
			m, err := c.SnapshotAuthority(ctx)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"entries": m.GetEntries()})
			}
			_, err = fmt.Fprintf(a.out, "done; %s entries so far\n", count(m.GetEntries()))
			return err
		},
	}
}
