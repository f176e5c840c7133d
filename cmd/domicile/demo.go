package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/chaos/demo"
	"domicile/chaos/failover"
)

func (a *app) demoCommand() *cobra.Command {
	var lasts time.Duration
	var rate int
	var stay, moves bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: three regions, one is cut off and comes back, every claim is checked",
		Long: `Starts eu-west, us-east and ap-south on this machine with real disks and sockets,
publishes, cuts eu-west off, heals it, and checks what producers were told against what
rests where. Ends within a minute and cleans up. Exit code 0 only if every check holds.
With --failover a log changes its home instead, while it is written to: on purpose, and
because its home, a process of its own, is cut off and killed. What was left behind is
named, counted and published anew when the home comes back.`,
		Example: "  domicile demo\n  domicile demo --stay\n  domicile demo --failover",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lasts < demo.MinFor || lasts > demo.MaxFor {
				return usage("--for %s: %s to %s", lasts, demo.MinFor, demo.MaxFor)
			}
			if rate < demo.MinRate || rate > demo.MaxRate {
				return usage("--rate %d: %d to %d", rate, demo.MinRate, demo.MaxRate)
			}
			if moves && !cmd.Flags().Changed("rate") {
				rate = failover.DefaultRate
			}
			if err := disableCoreDumps(); err != nil {
				return err
			}
			if moves {
				return a.demoFailover(cmd.Context(), rate)
			}
			return a.demo(cmd.Context(), demo.Options{
				For: lasts, Rate: rate, Stay: stay, JSON: a.json(), Out: raw(a.out), Story: raw(a.err), Command: commandName(),
			})
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&lasts, "for", demo.DefaultFor, "how long producers publish")
	flags.IntVar(&rate, "rate", demo.DefaultRate, "records a second over all regions")
	flags.BoolVar(&moves, "failover", false, "move a log, kill its home, and bring it back; 2,000 records a second unless --rate says another")
	flags.BoolVar(&stay, "stay", false, "keep the regions up until Ctrl-C, with commands to try")
	return cmd
}

func (a *app) demo(ctx context.Context, o demo.Options) error {
	r, err := demo.Run(ctx, o)
	switch {
	case err != nil && interrupted(ctx, err) && o.Stay && r.Holds():
		return nil // the user has seen enough
	case err != nil && interrupted(ctx, err):
		return &api.Error{Code: api.ShuttingDown, Op: "demo", Hint: "called off before the checks were done; everything is cleaned up"}
	case err != nil:
		return err
	case !r.Holds():
		return ended(exitFailure) // the story has named the checks
	}
	return nil
}

// commandName is how the reader can call this program from a second terminal.
func commandName() string {
	path, err := os.Executable()
	switch {
	case err != nil:
		return "domicile"
	case strings.Contains(path, "/go-build"):
		return "go run ./cmd/domicile"
	}
	if found, err := exec.LookPath("domicile"); err == nil && found == path {
		return "domicile"
	}
	return quote(path)
}

// commandHere is commandName for commands that are pasted in the folder this one
// runs in.
func commandHere() string {
	name := commandName()
	if here, err := os.Getwd(); err == nil && name == quote(filepath.Join(here, "domicile")) {
		return "./domicile"
	}
	return name
}
