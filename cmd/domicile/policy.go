package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/policy/opa"
	"domicile/regions"
)

func (a *app) policyCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "policy", Short: "Write, prove, compare and activate the residency policy",
		Example: "  domicile policy check ./federation/policies --federation ./federation/federation.yaml",
	}
	group.AddCommand(a.policyCheck(), a.policyTest(), a.policyCoverage(), a.explainCommand(), a.policyDiff(), a.policyImpact(), a.policyReport(), a.policyReload())
	group.AddCommand(a.policyKeys(), a.policyBuild(), a.policySign(), a.policyApprove(), a.policyActivate(), a.policyRollback(), a.policyRevoke(), a.policyStatus())
	return group
}

// loadWithin bounds the loading of a policy directory, as a node does.
const loadWithin = 5 * time.Minute

// manifestFlag is the flag of commands that judge a directory for a federation.
func manifestFlag(cmd *cobra.Command, path *string) *cobra.Command {
	cmd.Flags().StringVar(path, "federation", "", "path of the federation.yaml whose regions and topics are judged; default: the one beside DIR")
	return cmd
}

// manifestFor loads the manifest that a policy directory is judged for: the one that was
// named, else the one beside it.
func manifestFor(dir, named string) (*regions.Federation, error) {
	if named != "" {
		return regions.LoadManifest(named)
	}
	beside := filepath.Join(filepath.Dir(filepath.Clean(dir)), "federation.yaml")
	if _, err := os.Stat(beside); err != nil {
		return nil, usage("name the manifest with --federation: there is no %s", beside)
	}
	return regions.LoadManifest(beside)
}

func (a *app) policyCheck() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use: "check DIR", Short: "Compile, judge every question and run the tests of a policy directory",
		Long: `Does all that reload does, short of activating: what passes here is refused by no node
with the same manifest. It also wants every rule to say under which law it stands, who
answers for it and when somebody looks at it again; a node does not ask for that.`,
		Example: "  domicile policy check ./federation/policies",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := manifestFor(args[0], manifest)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), loadWithin)
			defer cancel()
			r, err := opa.Check(ctx, args[0], f)
			if err != nil {
				return a.checked(err)
			}
			if err := a.printReport(r); err != nil {
				return err
			}
			return foundIn(r)
		},
	}
	return manifestFlag(cmd, &manifest)
}

// foundIn ends a command with a failure if there are findings.
func foundIn(r *opa.Report) error {
	if len(r.Findings) > 0 {
		return ended(exitFailure)
	}
	return nil
}

func (a *app) printReport(r *opa.Report) error {
	if a.json() {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "revision %s: %s questions judged in %s, %s allowed, %d tests passed", r.Revision, count(r.Cells), regions.Span(r.Took), count(r.Allowed), r.Tests)
	fmt.Fprintf(a.out, ", %d cases as wanted, %d rows of the matrix hold\n", r.Cases, r.Rows)
	rows := [][]string{{"RULE", "SET", "SPEAKS IN", "OWNER", "REVIEW BY", "WHERE"}}
	for _, u := range r.Rules {
		rows = append(rows, []string{u.Package + "/" + u.Rule, u.Set, count(u.Cells), firstOf(u.Owner, unknown), firstOf(u.ReviewBy, unknown), fmt.Sprintf("%s:%d", u.File, u.Line)})
	}
	table(a.out, "  ", rows)
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "%s: %s: %s; %s\n", f.Where, f.Check, f.Reason, f.Fix)
	}
	a.printWarnings(r)
	return nil
}

// printWarnings prints what deserves a look, reviews that are overdue included.
func (a *app) printWarnings(r *opa.Report) {
	for _, w := range r.Warnings {
		fmt.Fprintln(a.out, "warning:", w)
	}
	for _, u := range r.Rules {
		if u.Overdue(a.now()) {
			fmt.Fprintf(a.out, "warning: %s:%d: %s %s/%s was to be reviewed by %s: ask %s\n", u.File, u.Line, u.Set, u.Package, u.Rule, u.ReviewBy, firstOf(u.Owner, "its owner"))
		}
	}
}

// reloadWithin bounds a reload: compiling and judging a whole domain takes seconds.
const reloadWithin = 2 * time.Minute

func (a *app) policyReload() *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Have a node load its policy directory and activate it",
		Long:    "The node compiles, judges every question and runs the tests, then flips in one step, or keeps the policy it has and says why.",
		Example: "  domicile policy reload --context eu-west",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), reloadWithin)
			defer cancel()
			c, err := a.dial(toAdmin)
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Reload(ctx)
			if api.CodeOf(err) == api.OutcomeUnknown {
				return err // it may be active by now
			}
			if err != nil {
				return checkFailed{err}
			}
			return a.printReload(r)
		},
	}
}

// reloadView is the JSON of a reload.
type reloadView struct {
	Changed  bool     `json:"changed"`
	Revision string   `json:"revision"`
	Previous string   `json:"previous"`
	Cells    uint64   `json:"cells"`
	Tests    uint64   `json:"tests"`
	Warnings []string `json:"warnings,omitempty"`
}

func (a *app) printReload(r *pb.ReloadResponse) error {
	if a.json() {
		return a.printJSON(reloadView{r.GetChanged(), r.GetRevision(), r.GetPrevious(), r.GetCells(), r.GetTests(), r.GetWarnings()})
	}
	if r.GetChanged() {
		fmt.Fprintf(a.out, "%s is active now, before it %s; %s questions judged, %d tests passed\n", r.GetRevision(), firstOf(r.GetPrevious(), "none"), count(r.GetCells()), r.GetTests())
	} else {
		fmt.Fprintf(a.out, "%s was active already\n", r.GetRevision())
	}
	for _, w := range r.GetWarnings() {
		fmt.Fprintln(a.out, "warning:", w)
	}
	return nil
}
