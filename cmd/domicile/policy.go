package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/policy/opa"
	"domicile/regions"
)

func (a *app) policyCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "policy", Short: "Check and activate the residency policy",
		Example: "  domicile policy check ./federation/policies --federation ./federation/federation.yaml",
	}
	group.AddCommand(a.policyCheck(), a.policyReload())
	return group
}

func (a *app) policyCheck() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use: "check DIR", Short: "Compile, judge every question and run the tests of a policy directory",
		Long:    "Does all that reload does, short of activating: what passes here is refused by no node with the same manifest.",
		Example: "  domicile policy check ./federation/policies --federation ./federation/federation.yaml",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := regions.LoadManifest(manifest)
			if err != nil {
				return err
			}
			r, err := opa.Check(cmd.Context(), args[0], f)
			if err != nil {
				return checkFailed{err}
			}
			return a.printReport(r)
		},
	}
	cmd.Flags().StringVar(&manifest, "federation", "", "path of the federation.yaml whose regions and topics are judged")
	return needs(cmd, "federation")
}

func (a *app) printReport(r *opa.Report) error {
	if a.json() {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "revision %s: %s questions judged in %s, %s allowed, %d tests passed\n",
		r.Revision, count(r.Cells), regions.Span(r.Took), count(r.Allowed), r.Tests)
	rows := [][]string{{"RULE", "SET", "SPEAKS IN", "WHERE"}}
	for _, u := range r.Rules {
		rows = append(rows, []string{u.Package + "/" + u.Rule, u.Set, count(u.Cells), fmt.Sprintf("%s:%d", u.File, u.Line)})
	}
	table(a.out, "  ", rows)
	for _, w := range r.Warnings {
		fmt.Fprintln(a.out, "warning:", w)
	}
	return nil
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
