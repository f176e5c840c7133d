package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"domicile/policy/opa"
	"domicile/policy/review"
	"domicile/regions"
)

// reportFlags say what a page shows and where it goes.
type reportFlags struct {
	manifest, file string
	live           bool
}

func (a *app) policyReport() *cobra.Command {
	var r reportFlags
	cmd := &cobra.Command{
		Use: "report DIR", Short: "Write a policy as one page for people who do not read its language",
		Long: `Writes one HTML file that needs nothing else: what may happen to each kind of record in
each region, the rules with their law, owner and review date, the reviewed matrix, and
with --live what changes against the policy in force at a node, weighed with what that
was asked. -o html is the only form.`,
		Example: "  domicile policy report ./federation/policies -o html --file policy.html",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.output != "html" {
				return usage("policy report writes a page: say -o html")
			}
			return a.report(cmd.Context(), args[0], r)
		},
	}
	flags := cmd.Flags()
	manifestFlag(cmd, &r.manifest)
	flags.StringVar(&r.file, "file", "", "where to write it; default: standard output")
	flags.BoolVar(&r.live, "live", false, "compare with the policy in force at a node")
	return cmd
}

func (a *app) report(ctx context.Context, dir string, r reportFlags) (err error) {
	f, err := manifestFor(dir, r.manifest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	p, err := opa.Load(ctx, dir, f)
	if err != nil {
		return checkFailed{err}
	}
	page, err := a.page(ctx, p, f, r.live)
	if err != nil {
		return err
	}
	if r.file == "" {
		return page.Write(raw(a.out))
	}
	out, err := os.Create(r.file)
	if err != nil {
		return fileError("write report", r.file, err)
	}
	err = page.Write(out)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fileError("write report", r.file, err)
	}
	fmt.Fprintln(a.err, "written to", r.file)
	return nil
}

// page gathers what is shown.
func (a *app) page(ctx context.Context, p *opa.Policy, f *regions.Federation, live bool) (*review.Page, error) {
	page := &review.Page{Policy: p.Table(), Federation: f, Matrix: p.Matrix(), Terms: p.Terms(), Now: a.now()}
	for _, u := range p.Report.Rules {
		page.Rules = append(page.Rules, review.PageRule{Name: u.Package + "/" + u.Rule, Set: u.Set, Text: u.Text, Article: u.Article, Owner: u.Owner,
			ReviewBy: u.ReviewBy, Where: fmt.Sprintf("%s:%d", u.File, u.Line), Cells: u.Cells, Overdue: u.Overdue(a.now())})
	}
	if !live {
		return page, nil
	}
	v, err := a.weighed(ctx, page.Policy, f)
	if err != nil {
		return nil, asked(err)
	}
	page.Against, page.Live = v.Diff, v.Region
	page.Counted = regions.Span(seconds(v.Counted.Seconds)) + " of the last " + regions.Span(seconds(v.Counted.Of))
	return page, nil
}
