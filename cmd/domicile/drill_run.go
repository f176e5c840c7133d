package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		out[name] = &drill.Node{Region: name, Name: n.name(), Address: n.Address, Admin: n.Admin, Door: n.Door, Desk: n.Desk, Shown: n.Shown}
		for _, o := range n.Others {
			out[name].Others = append(out[name].Others, &drill.Node{Region: name, Name: o.name(), Address: o.Address, Admin: o.Admin, Shown: o.Shown})
		}
	}
	return out
}

func (a *app) drillPlan() *cobra.Command {
	group := &cobra.Command{Use: "plan", Short: "Write the plan of a drill, and say what it would cost", Example: "  domicile drill plan isolate eu-west --reason OPS-7"}
	var contexts []string
	var file, reason, gate string
	var exercise []string
	var rate int
	var lasts, lease, baseline time.Duration
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
			p.Last(lasts, lease, baseline)
			p.Gate = gate
			if err := exercised(cmd.Context(), f, &p, exercise); err != nil {
				return err
			}
			return a.writePlan(cmd.Context(), f, &p, firstOf(file, "isolate-"+args[0]+".yaml"))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "file", "", "file to write, which must not be there yet (default: isolate-REGION.yaml)")
	flags.StringVar(&reason, "reason", "", "why; kept in the regions' audits")
	flags.StringVar(&gate, "gate", "process", "what cuts: process, the gates in the nodes, or nftables, the packet filters of their kernels, for which they need root")
	flags.IntVar(&rate, "rate", 20, "records a second that the drill publishes in each region")
	flags.DurationVar(&lasts, "for", 0, "how long the cut lasts (default: a minute, or what is permitted)")
	flags.DurationVar(&lease, "lease", 0, "after which the cut heals without a controller (default: 10s)")
	flags.DurationVar(&baseline, "baseline", 0, "how long the regions are watched before the cut (default: a minute)")
	flags.StringSliceVar(&exercise, "exercise", nil, "TOPIC=REGION: move the topic's log there for real, by force, and back; TOPIC@LOG=REGION where it has several (default: moves are only asked about)")
	contextsFlag(cmd, &contexts)
	group.AddCommand(needs(cmd, "reason"))
	return group
}

// exercised adds the moves that a drill carries out to its plan, as TOPIC=REGION or
// TOPIC@LOG=REGION.
func exercised(ctx context.Context, f *drill.Federation, p *drill.Plan, list []string) error {
	for _, one := range list {
		log, to, ok := strings.Cut(one, "=")
		topic, slot, _ := strings.Cut(log, "@")
		if !ok || topic == "" || to == "" {
			return usage("--exercise %s: write TOPIC=REGION", one)
		}
		p.Move(topic, slot, to)
	}
	if err := p.Check(); err != nil {
		return err
	}
	return drill.PlanMoves(ctx, f, p)
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
	fmt.Fprintf(a.out, "\nReal records, about; those of earlier drills are counted with them. Above %s in all, drill run asks for --confirm.\n", count(p.ConfirmAbove))
	return a.adviseDrill(ctx, f, p, file)
}

// adviseDrill says what would stand against the plan now, and what to do next.
func (a *app) adviseDrill(ctx context.Context, f *drill.Federation, p *drill.Plan, file string) error {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	id, given := a.drillID(), ""
	for _, region := range append([]string{p.Isolate}, p.Peers...) {
		s, err := f.Nodes[region].Admin.ArmDrill(ctx, &pb.ArmDrillRequest{Id: id, Spec: p.Spec(), DryRun: true})
		if err != nil {
			_, err = fmt.Fprintf(a.out, "It would be refused now, by %s: %v\n", region, err)
			return err
		}
		if region == p.Isolate && s.GetApprovals() > 0 {
			fmt.Fprintf(a.out, "It needs the consent of %d besides the one who runs it, to one id, which you choose:\n  domicile drill approve %s --id ID --role operator > APPROVAL\n", s.GetApprovals(), file)
			given = " --id ID --approval APPROVAL"
		}
	}
	if err := drill.Against(ctx, f, p); err != nil {
		fmt.Fprintf(a.out, "It would be refused now: %s\n", oneLine(err.Error()))
	}
	for _, x := range p.Exercise {
		if x.Move != "" {
			fmt.Fprintf(a.out, "Its move of %s to %s needs people too, within a quarter of an hour: drill approve signs plan %s with the drill, in the role incident.\n", x.Topic, x.To, x.Move)
		}
	}
	_, err := fmt.Fprintf(a.out, "Next: domicile drill run %s%s --dry-run\n", file, given)
	return err
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
		Clock: regions.NewSteadyClock(), Say: a.step}
	if id := nodes[p.Isolate]; id != nil && id.Trust != nil {
		c.Trust = id.Trust
	}
	if c.Approvals, err = readApprovals(f.approvals); err != nil {
		return err
	}
	costs, err := drill.Try(ctx, &c)
	if f.dryRun || err != nil {
		return a.tellTry(&c, costs, err)
	}
	c.Dir = filepath.Join(f.dir, c.ID)
	if err := os.MkdirAll(filepath.Join(c.Dir, drill.ApprovalsFolder), 0o700); err != nil {
		return fileError("make the drill's folder", c.Dir, err)
	}
	return a.carryOut(ctx, &c)
}

// step tells people, not programs, what is being done.
func (a *app) step(line string) {
	if !a.json() {
		fmt.Fprintf(a.out, "%s  %s\n", a.now().UTC().Format(time.TimeOnly), line)
	}
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
	return a.tellResult(ctx, c, result, err)
}

// tellResult says what came of a drill, and tells the regions if it has passed: not those of
// a simulation, which is evidence of nothing.
func (a *app) tellResult(ctx context.Context, c *drill.Config, result drill.Result, err error) error {
	verdict, line := report.Incomplete, result.Why
	var moves []*pb.ProvenMove
	h, unread := history.Open(filepath.Join(c.Dir, drill.HistoryFile))
	if unread == nil {
		r := report.Judge(h)
		verdict, line, moves = r.Verdict, r.Line, provenMoves(r)
	}
	if verdict == report.Pass && c.Simulated == nil {
		if told := drill.Prove(ctx, c, result.Chain, moves); told != nil {
			fmt.Fprintln(a.err, "not every region was told that it has passed:", oneLine(told.Error()))
		}
	}
	if a.json() {
		err = errors.Join(err, a.printJSON(map[string]any{"drill": c.ID, "simulated": c.Simulated != nil, "dir": c.Dir, "verdict": verdict, "line": line, "outcome": result.Outcome, "why": result.Why, "chain": result.Chain}))
	} else {
		word := "drill"
		if c.Simulated != nil {
			word = report.Mark + " drill"
		}
		fmt.Fprintf(a.out, "\n%s %s: %s\n%s\n", word, c.ID, verdict, line)
		if result.Why != "" {
			fmt.Fprintln(a.out, result.Outcome, "because", oneLine(result.Why))
		}
		fmt.Fprintf(a.out, "history %s\nNext: domicile drill report %s -o html --file %s.html\n", filepath.Join(c.Dir, drill.HistoryFile), c.Dir, c.ID)
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

// provenMoves are the moves of which a drill has measured the RTO, and what was left behind.
// The way back is another kind of move, and proves nothing of a loss of the home.
func provenMoves(r *report.Report) (out []*pb.ProvenMove) {
	for _, m := range r.Moves {
		if m.Back || m.RTO == nil || !m.Known {
			continue
		}
		p := &pb.ProvenMove{Topic: m.Topic, RtoNano: int64(*m.RTO)}
		if m.Oldest != nil {
			p.RpoNano = int64(*m.Oldest)
		}
		out = append(out, p)
	}
	return out
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

// tellTry says what stands before a cut. A drill that is refused here has left nothing
// behind: its id may be used again.
func (a *app) tellTry(c *drill.Config, costs []drill.Cost, err error) error {
	if a.json() {
		if err != nil {
			return refusedDrill(err)
		}
		return a.printJSON(map[string]any{"drill": c.ID, "costs": costs, "allowed": true})
	}
	for _, x := range costs {
		fmt.Fprintf(a.out, "%s: about %s real records refused, %s delayed (%s)\n", x.Topic, count(x.Refused), count(x.Delayed), x.Basis)
	}
	if err != nil {
		return refusedDrill(err)
	}
	_, err = fmt.Fprintln(a.out, "The drill would be armed by every region that takes part. Nothing was cut.")
	return err
}

// drillID is made from the time, and a little chance.
func (a *app) drillID() string {
	return a.now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:4])
}

func (a *app) drillApprove() *cobra.Command {
	var role, id string
	var life time.Duration
	var contexts []string
	cmd := &cobra.Command{
		Use: "approve PLAN", Short: "Sign your consent to a drill, with your operator's certificate",
		Long: `Read the plan first. The consent is to one drill, by its id, and to exactly this cut:
region, peers, planes, direction, fault, lease and time, not to what else the plan says. Of
each move in the plan that needs people, its own plan is signed too, a line each; in the role
incident, as such a move is forced. Give what is printed to whoever runs the drill, who cannot
be you: drill run --approval FILE.`,
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
			signs := []string{s.GetConsent()}
			for _, x := range p.Exercise {
				if x.Move != "" {
					signs = append(signs, x.Move)
				}
			}
			for _, what := range signs {
				text, err := a.sign(what, role, life)
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out, text)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "in which you approve: operator or incident")
	cmd.Flags().StringVar(&id, "id", "", "id that the drill will have: drill run --id")
	cmd.Flags().DurationVar(&life, "for", time.Hour, "how long it counts, at most 24h")
	contextsFlag(cmd, &contexts)
	return needs(cmd, "role", "id")
}
