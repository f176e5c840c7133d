package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/simulate"
)

type simulateFlags struct {
	federation, policies string
	dir, id              string
	rate                 int
	lasts, within        time.Duration
}

func (a *app) drillSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use: "simulate PLAN", Short: "Play a plan in virtual time, on no running federation",
		Long: `Plays the plan on new, empty nodes in a process of its own, with the manifest, the policies
and the topics as they are declared, in virtual time: a cut of an hour takes a minute
and a half of a processor. Nothing that runs is asked or touched, and no consent is needed. The history
is written as of any drill, and drill report and drill verify say SIMULATED of it: a forecast,
and evidence of nothing. It forecasts the lag of each log over time, what may fail over when,
what producers are told, the room until retention overtakes a copy, and the catch-up.

Regions of three are modelled as one node. Disks and lines take no time. Each producer
publishes a record a second at most, or --rate.
Exit codes: as drill run's; 4 if virtual time stands still.`,
		Example: "  domicile drill simulate isolate.yaml --federation federation.yaml --policies policies\n  domicile drill simulate isolate.yaml --for 6h",
		Args:    arguments(1, 1, "a PLAN file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.simulate(cmd.Context(), args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.federation, "federation", "federation.yaml", "the manifest of the regions")
	flags.StringVar(&f.policies, "policies", "policies", "folder of the policy that is in force")
	flags.StringVar(&f.dir, "dir", "drills", "folder in which each drill has one of its own")
	flags.StringVar(&f.id, "id", "", "id of the drill (default: made from the time)")
	flags.IntVar(&f.rate, "rate", 1, "the most records a second that each of the plan's producers publishes")
	flags.DurationVar(&f.lasts, "for", 0, "how long the cut lasts (default: as the plan says)")
	flags.DurationVar(&f.within, "within", time.Hour, "real time that it may take")
	return cmd
}

// drillBubble is the process with the virtual time, for drill simulate to start.
func (a *app) drillBubble() *cobra.Command {
	return &cobra.Command{Use: "bubble JOB", Short: "Be the process in which a plan is simulated", Hidden: true, Args: arguments(1, 1, "a JOB"), Example: "  domicile drill bubble JOB", RunE: func(_ *cobra.Command, args []string) error {
		simulate.Be(args[0], raw(a.out))
		return nil // it has ended the process
	}}
}

func (a *app) simulate(ctx context.Context, path string, f *simulateFlags) error {
	p, digest, err := drill.Load(path)
	if err != nil {
		return refusedDrill(err)
	}
	if f.rate < 1 || f.lasts < 0 || f.within <= 0 {
		return usage("--rate is at least 1, and --for and --within are times")
	}
	id := firstOf(f.id, a.drillID())
	dir := filepath.Join(f.dir, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fileError("make the drill's folder", dir, err)
	}
	result, err := simulate.Run(ctx, simulate.Options{
		ID: id, Plan: p, Digest: digest, Dir: dir, Federation: f.federation, Policies: f.policies, For: f.lasts, Rate: f.rate,
		Controller: "domicile " + version().Version, At: a.now(), Self: bubble, Say: a.step, Within: f.within,
	})
	switch {
	case err != nil && result.Outcome == history.Refused:
		_ = os.Remove(dir) // if nothing was written there
		return refusedDrill(err)
	case err != nil && result.Outcome == "":
		a.printError(err)
		return ended(exitUnknown)
	}
	return a.tellResult(ctx, &drill.Config{ID: id, Dir: dir, Simulated: &history.Simulated{}}, result, err)
}

// bubble runs this program as the process with the virtual time.
func bubble(job string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return exec.Command(self, "drill", "bubble", job)
}
