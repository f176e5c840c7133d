package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
	"domicile/regions"
)

// drillNodes are the regions as a drill speaks to them.
func drillNodes(nodes map[string]*regionNode) map[string]*drill.Node {
	out := map[string]*drill.Node{}
	for name, n := range nodes {
		out[name] = &drill.Node{Region: name, Address: n.Address, Admin: n.Admin, Door: n.Door}
	}
	return out
}

func (a *app) drillPlan() *cobra.Command {
	group := &cobra.Command{Use: "plan", Short: "Write the plan of a drill, and say what it would cost", Example: "  domicile drill plan isolate eu-west --reason OPS-7"}
	var contexts []string
	var file, reason string
	var rate int
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "isolate REGION", Short: "Plan to cut a region off from all others",
		Long: `Asks the regions what they have declared and writes a plan that follows from it: what the
drill publishes itself, how long it cuts, when it stops, and what the failover rules have
to answer at each moment. Read it and change it. About how many real records would be
refused or delayed is said from what each region counted in the last eight days.`,
		Example: "  domicile drill plan isolate eu-west --reason OPS-7 --file isolate.yaml",
		Args:    arguments(1, 1, "a REGION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, done, err := a.everyRegion(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			defer done()
			f, err := drill.Look(cmd.Context(), drillNodes(nodes))
			if err != nil {
				return asked(err)
			}
			p, err := drill.Draft(f, args[0], rate, reason)
			if err != nil {
				return err
			}
			if lasts > 0 {
				p.For = lasts
			}
			return a.writePlan(cmd.Context(), f, &p, firstOf(file, "isolate-"+args[0]+".yaml"))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "file", "", "file to write, which must not be there yet (default: isolate-REGION.yaml)")
	flags.StringVar(&reason, "reason", "", "why; kept in the regions' audits")
	flags.IntVar(&rate, "rate", 20, "records a second that the drill publishes in each region")
	flags.DurationVar(&lasts, "for", 0, "how long the cut lasts (default: a minute)")
	contextsFlag(cmd, &contexts)
	group.AddCommand(needs(cmd, "reason"))
	return group
}

func (a *app) writePlan(ctx context.Context, f *drill.Federation, p *drill.Plan, file string) error {
	if err := p.Check(); err != nil {
		return err
	}
	costs, err := drill.Predict(ctx, f, p)
	if err != nil {
		return asked(err)
	}
	text, err := p.Encode()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fileError("write drill plan", file, err)
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err != nil {
		return fileError("write drill plan", file, err)
	}
	if a.json() {
		return a.printJSON(map[string]any{"plan": file, "costs": costs})
	}
	fmt.Fprintf(a.out, "%s cuts %s off from %s for %s.\n\n", file, p.Isolate, strings.Join(p.Peers, ", "), regions.Span(p.For))
	rows := [][]string{{"TOPIC", "REFUSED", "DELAYED", "BY"}}
	for _, c := range costs {
		rows = append(rows, []string{c.Topic, count(c.Refused), count(c.Delayed), c.Basis})
	}
	table(a.out, "", rows)
	fmt.Fprintf(a.out, "\nReal records, about. Above %s in all, drill run asks for --confirm.\nNext: domicile drill run %s --dry-run\n", count(p.ConfirmAbove), file)
	return nil
}

type runFlags struct {
	contexts, approvals []string
	dir, id             string
	dryRun, confirm     bool
}

func (a *app) drillRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run PLAN", Short: "Run a drill, and write its history",
		Long: `Preflight, baseline, cut, heal, catch-up, reconcile. Ctrl-C heals first. Without this
process the nodes heal by themselves within the lease. The history is written to a folder
of the drill's own; drill report makes a report of it.`,
		Example: "  domicile drill run isolate.yaml --dry-run\n  domicile drill run isolate.yaml --confirm",
		Args:    arguments(1, 1, "a PLAN file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runDrill(cmd.Context(), args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "drills", "folder in which each drill has one of its own")
	flags.StringVar(&f.id, "id", "", "id of the drill (default: made from the time)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, say what it would cost, and cut nothing")
	flags.BoolVar(&f.confirm, "confirm", false, "yes to real records being refused or delayed, however many")
	flags.StringSliceVar(&f.approvals, "approval", nil, "file with another person's approval, as drill approve wrote it")
	contextsFlag(cmd, &f.contexts)
	return cmd
}

func (a *app) runDrill(ctx context.Context, path string, f *runFlags) error {
	p, digest, err := drill.Load(path)
	if err != nil {
		return refusedDrill(err)
	}
	nodes, done, err := a.everyRegion(ctx, f.contexts)
	if err != nil {
		return err
	}
	defer done()
	c := drill.Config{ID: firstOf(f.id, a.drillID()), Plan: p, Digest: digest, Nodes: drillNodes(nodes), Confirmed: f.confirm, Controller: "domicile " + version().Version,
		Clock: regions.NewSteadyClock(), Say: func(line string) {
			if !a.json() {
				fmt.Fprintf(a.out, "%s  %s\n", a.now().UTC().Format(time.TimeOnly), line)
			}
		}}
	for _, file := range f.approvals {
		text, err := os.ReadFile(file)
		if err != nil {
			return fileError("read approval", file, err)
		}
		c.Approvals = append(c.Approvals, strings.TrimSpace(string(text)))
	}
	if f.dryRun {
		return a.tryDrill(ctx, &c)
	}
	c.Dir = filepath.Join(f.dir, c.ID)
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fileError("make the drill's folder", c.Dir, err)
	}
	return a.carryOut(ctx, &c)
}

// carryOut runs the drill and ends with the code that its outcome has.
func (a *app) carryOut(ctx context.Context, c *drill.Config) error {
	text, err := c.Plan.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, "plan.yaml"), text, 0o600)
	}
	if err != nil {
		return fileError("keep the plan", c.Dir, err)
	}
	result, err := drill.Run(ctx, *c)
	if result.Outcome == history.Refused {
		return refusedDrill(err)
	}
	verdict, line := report.Incomplete, result.Why
	h, unread := history.Open(filepath.Join(c.Dir, drill.HistoryFile))
	if unread == nil {
		r := report.Judge(h)
		verdict, line = r.Verdict, r.Line
	}
	if a.json() {
		err = errors.Join(err, a.printJSON(map[string]any{"drill": c.ID, "dir": c.Dir, "verdict": verdict, "line": line, "outcome": result.Outcome, "why": result.Why, "chain": result.Chain}))
	} else {
		fmt.Fprintf(a.out, "\ndrill %s: %s\n%s\n", c.ID, verdict, line)
		if result.Why != "" {
			fmt.Fprintln(a.out, result.Outcome, "because", oneLine(result.Why))
		}
		fmt.Fprintf(a.out, "history %s\n", filepath.Join(c.Dir, drill.HistoryFile))
	}
	if err = errors.Join(err, unread); err != nil { // the history is not whole
		return err
	}
	codes := map[report.Verdict]exitCode{report.Pass: exitOK, report.Uncontrolled: exitDegraded, report.Incomplete: exitUnknown}
	if code, ok := codes[verdict]; ok {
		return ended(code)
	}
	return ended(exitFailure)
}

// refused is an error that ends with exitRefused whatever its code means for a record.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func refusedDrill(err error) error {
	if err == nil {
		return nil
	}
	return refused{err}
}

// tryDrill asks everything that stands before a cut.
func (a *app) tryDrill(ctx context.Context, c *drill.Config) error {
	costs, err := drill.Try(ctx, c)
	if err != nil {
		return refusedDrill(err)
	}
	if a.json() {
		return a.printJSON(map[string]any{"drill": c.ID, "costs": costs, "allowed": true})
	}
	for _, x := range costs {
		fmt.Fprintf(a.out, "%s: about %s real records refused, %s delayed (%s)\n", x.Topic, count(x.Refused), count(x.Delayed), x.Basis)
	}
	fmt.Fprintln(a.out, "The drill would be armed by every region that takes part. Nothing was cut.")
	return nil
}

// drillID is made from the time, and a little chance.
func (a *app) drillID() string {
	return a.now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:4])
}

func (a *app) drillStatus() *cobra.Command {
	var contexts []string
	cmd := &cobra.Command{
		Use: "status", Short: "Say what is held cut in each region", Args: arguments(0, 0, ""),
		Long:    "Ends with 3 while a drill or another fault holds a link.",
		Example: "  domicile drill status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			states, err := a.eachDrill(cmd.Context(), contexts, func(ctx context.Context, n *regionNode) (*pb.DrillState, error) { return n.Admin.DrillStatus(ctx) })
			if err != nil {
				return err
			}
			return a.showDrills(states, true)
		},
	}
	contextsFlag(cmd, &contexts)
	return cmd
}

// drillEnd is abort and heal: both end a drill everywhere; abort names it.
func (a *app) drillEnd(use, short, long, example string, named bool) *cobra.Command {
	var contexts []string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: arguments(0, 1, "an ID or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if named && len(args) == 0 {
				return usage("drill abort needs the ID of the drill; domicile drill heal ends any")
			}
			states, err := a.eachDrill(cmd.Context(), contexts, func(ctx context.Context, n *regionNode) (*pb.DrillState, error) {
				s, err := n.Admin.DrillStatus(ctx)
				if err != nil || s.GetId() == "" || len(args) > 0 && s.GetId() != args[0] {
					return s, err
				}
				return n.Admin.HealDrill(ctx, s.GetId())
			})
			if err != nil {
				return err
			}
			return a.showDrills(states, false)
		},
	}
	contextsFlag(cmd, &contexts)
	return cmd
}

// eachDrill asks every region about its drill.
func (a *app) eachDrill(ctx context.Context, contexts []string, ask func(context.Context, *regionNode) (*pb.DrillState, error)) ([]*pb.DrillState, error) {
	nodes, done, err := a.everyRegion(ctx, contexts)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	var out []*pb.DrillState
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		s, err := ask(ctx, nodes[name])
		if err != nil {
			return nil, asked(fmt.Errorf("%s: %w", name, err))
		}
		out = append(out, s)
	}
	return out, nil
}

// drillView is what a region holds.
type drillView struct {
	Region  string   `json:"region"`
	Drill   string   `json:"drill,omitempty"`
	Phase   string   `json:"phase,omitempty"`
	By      string   `json:"by,omitempty"`
	Isolate string   `json:"isolate,omitempty"`
	Left    float64  `json:"lease_left_seconds"`
	Cuts    []string `json:"cuts"`
	Last    string   `json:"last,omitempty"` // drill
	How     string   `json:"last_ended,omitempty"`
}

func (a *app) showDrills(states []*pb.DrillState, alarm bool) error {
	var views []drillView
	held := false
	rows := [][]string{{"REGION", "DRILL", "PHASE", "BY", "LEASE LEFT", "CUT", "LAST"}}
	for _, s := range states {
		v := drillView{Region: s.GetRegion(), Drill: s.GetId(), Phase: s.GetPhase(), By: s.GetBy(), Isolate: s.GetSpec().GetIsolate(), Left: nanoSeconds(s.GetLeftNano()), Cuts: []string{}, Last: s.GetLast().GetId(), How: s.GetLast().GetHow()}
		for _, c := range s.GetCuts() {
			text := fmt.Sprintf("%s %s %s %s", c.GetPeer(), c.GetFault(), strings.Join(c.GetPlanes(), "+"), strings.Join(c.GetDirections(), "+"))
			if c.GetDrill() != s.GetId() {
				text += " (not the drill's)"
			}
			v.Cuts = append(v.Cuts, text)
		}
		held = held || v.Drill != "" || len(v.Cuts) > 0
		views = append(views, v)
		left := "-"
		if v.Drill != "" {
			left = regions.Span(time.Duration(s.GetLeftNano()))
		}
		rows = append(rows, []string{v.Region, firstOf(v.Drill, "none"), firstOf(v.Phase, "-"), firstOf(v.By, "-"), left, firstOf(strings.Join(v.Cuts, "; "), "nothing"), strings.TrimSpace(v.Last + " " + v.How)})
	}
	if a.json() {
		if err := a.printJSON(map[string]any{"regions": views}); err != nil {
			return err
		}
	} else {
		table(a.out, "", rows)
	}
	if held && alarm {
		return ended(exitDegraded)
	}
	return nil
}

func (a *app) drillApprove() *cobra.Command {
	var role, id string
	var life time.Duration
	var contexts []string
	cmd := &cobra.Command{
		Use: "approve PLAN", Short: "Sign your consent to a drill, with your operator's certificate",
		Long: `Read the plan first. The consent is to one drill, by its id, and to exactly this cut:
region, peers, planes, direction, fault, lease and time, not to what else the plan says. Give the line that is printed to
whoever runs the drill, who cannot be you: drill run --approval FILE.`,
		Example: "  domicile drill approve isolate.yaml --id quarter-4 --role operator",
		Args:    arguments(1, 1, "a PLAN file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, _, err := drill.Load(args[0])
			if err != nil {
				return err
			}
			nodes, done, err := a.everyRegion(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			defer done()
			n, ok := nodes[p.Isolate]
			if !ok {
				return usage("no context reaches %s", p.Isolate)
			}
			s, err := n.Admin.ArmDrill(cmd.Context(), &pb.ArmDrillRequest{Id: id, Spec: p.Spec(), DryRun: true})
			if err != nil {
				return err
			}
			text, err := a.sign(s.GetConsent(), role, life)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, text)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "in which you approve: operator or incident")
	cmd.Flags().StringVar(&id, "id", "", "id that the drill will have: drill run --id")
	cmd.Flags().DurationVar(&life, "for", time.Hour, "how long it counts, at most 24h")
	contextsFlag(cmd, &contexts)
	return needs(cmd, "role", "id")
}
