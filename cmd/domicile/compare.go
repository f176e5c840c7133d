package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/policy/review"
	"domicile/policy/traffic"
	"domicile/regions"
)

// notCompared is for a comparison that could not be made: it ends with exitUnknown, since 1
// says that the two differ.
func notCompared(err error) error {
	if api.CodeOf(err) == "" {
		return err // a mistake in the command line
	}
	return unanswered{err}
}

func (a *app) policyDiff() *cobra.Command {
	var manifest, oldManifest string
	cmd := &cobra.Command{
		Use: "diff OLD NEW", Short: "Show every answer that differs between two policy directories",
		Long: `Judges every question of either policy and shows exactly those whose answer changes:
newly allowed, resting elsewhere, newly obliged, newly denied, the logs and copies that
hold what they may not have any more, and the failover targets that are gained or lost.
Ends with 0 if no answer changes, 1 if one
does, and 4 if a directory cannot be loaded, so that nobody can say.`,
		Example: "  domicile policy diff ./federation/policies ./next/policies --federation ./federation/federation.yaml",
		Args:    arguments(2, 2, "OLD and NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*loadWithin)
			defer cancel()
			f, err := manifestFor(args[1], manifest)
			if err != nil {
				return notCompared(err)
			}
			before := f
			if oldManifest != "" {
				if before, err = regions.LoadManifest(oldManifest); err != nil {
					return notCompared(err)
				}
			}
			old, err := opa.Load(ctx, args[0], before)
			if err != nil {
				return notCompared(err)
			}
			next, err := opa.Load(ctx, args[1], f)
			if err != nil {
				return notCompared(err)
			}
			return a.printDiff(diffView{Diff: review.Compare(old.Table(), next.Table(), f)})
		},
	}
	manifestFlag(cmd, &manifest)
	cmd.Flags().StringVar(&oldManifest, "old-federation", "", "path of the federation.yaml that OLD is judged for, if it is another one")
	return cmd
}

func (a *app) policyImpact() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use: "impact NEW", Short: "Show what a policy directory would change of what a node was really asked",
		Long: `Compares a directory with the policy in force at a node, and weighs each change with how
often the node's own policy was asked in the last eight days. How much of that time was
counted is said: what was not counted is not known. Other regions have counts of their
own. Ends as diff does.`,
		Example: "  domicile policy impact ./next/policies --federation ./federation/federation.yaml --context eu-west",
		Args:    arguments(1, 1, "NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), loadWithin)
			defer cancel()
			f, err := manifestFor(args[0], manifest)
			if err != nil {
				return notCompared(err)
			}
			next, err := opa.Load(ctx, args[0], f)
			if err != nil {
				return notCompared(err)
			}
			v, err := a.weighed(ctx, next.Table(), f)
			if err != nil {
				return notCompared(err)
			}
			return a.printDiff(v)
		},
	}
	return manifestFlag(cmd, &manifest)
}

// weighed compares a table with the policy in force at the node, and weighs the changes.
func (a *app) weighed(ctx context.Context, next *review.Table, f *regions.Federation) (diffView, error) {
	c, err := a.dial(toAdmin)
	if err != nil {
		return diffView{}, err
	}
	defer c.Close()
	live, region, err := liveTable(ctx, c)
	if err != nil {
		return diffView{}, err
	}
	v := diffView{Diff: review.Compare(live, next, f), Region: region}
	asked, span, err := liveTraffic(ctx, c)
	if err != nil {
		return diffView{}, err
	}
	v.Weigh(asked)
	v.Counted = span
	return v, nil
}

// liveTable is the policy in force at a node, and the node's region.
func liveTable(ctx context.Context, c *client.Client) (_ *review.Table, region string, err error) {
	var answers []review.Answer
	revision := ""
	err = c.PolicyTable(ctx, func(m *pb.PolicyTableResponse) error {
		region, revision = m.GetRegion(), m.GetRevision()
		for _, p := range m.GetAnswers() {
			answer, err := answerOf(p)
			if err != nil {
				return err
			}
			answers = append(answers, answer)
		}
		return nil
	})
	return review.NewTable(revision, answers), region, err
}

func answerOf(m *pb.PolicyAnswer) (review.Answer, error) {
	q := m.GetQuestion()
	point, err := policy.ParsePoint(q.GetPoint())
	a := review.Answer{
		Question: policy.Question{Point: point, Topic: q.GetTopic(), Tags: wire.TagsFromProto(q.GetTags()), Class: q.GetPrincipalClass(),
			Place: q.GetPrincipalPlace(), Origin: q.GetOrigin(), Target: q.GetTarget()},
		Allow: m.GetAllow(), Code: api.Code(m.GetCode()), Regions: m.GetRegions(), Destination: m.GetDestination(),
	}
	for _, r := range m.GetReasons() {
		a.Reasons = append(a.Reasons, policy.Reason{Code: r.GetCode(), Rule: r.GetRule(), Text: r.GetText()})
	}
	return a, err
}

// countedView is how much of the time behind the counts was counted.
type countedView struct {
	Seconds   float64    `json:"seconds"`
	Of        float64    `json:"of_seconds"` // eight days
	Since     *time.Time `json:"since"`      // null: nothing was counted
	Questions uint64     `json:"asked"`      // all of them, changed or not
	Uncounted uint64     `json:"uncounted"`  // asked of questions that found no room
}

// liveTraffic sums what a node counted.
func liveTraffic(ctx context.Context, c *client.Client) (map[string]uint64, *countedView, error) {
	asked := map[string]uint64{}
	v := &countedView{Of: traffic.Keep.Seconds()}
	err := c.Traffic(ctx, &pb.TrafficRequest{}, func(m *pb.TrafficResponse) error {
		if v.Since == nil {
			v.Since = timeView(m.GetHourUnixNano())
		}
		v.Seconds += m.GetCoveredSeconds()
		v.Uncounted += m.GetUncounted()
		for _, q := range m.GetAsked() {
			asked[q.GetQuestion()] += q.GetCount()
			v.Questions += q.GetCount()
		}
		return nil
	})
	return asked, v, err
}

// diffView is the JSON of policy diff and policy impact.
type diffView struct {
	*review.Diff
	Region  string       `json:"region,omitempty"` // where OLD is in force
	Counted *countedView `json:"counted,omitempty"`
}

// printDiff ends with exitFailure if an answer changes.
func (a *app) printDiff(v diffView) error {
	if a.json() {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else {
		renderDiff(a.out, v)
	}
	if len(v.Changes) > 0 {
		return ended(exitFailure)
	}
	return nil
}

func renderDiff(w io.Writer, v diffView) {
	d := v.Diff
	fmt.Fprintf(w, "%s -> %s: %s of %s questions get another answer", d.Old, d.New, count(d.Cells), count(max(d.OldCells, d.NewCells)))
	if d.Reworded > 0 {
		fmt.Fprintf(w, "; %s the same one for other reasons", count(d.Reworded))
	}
	fmt.Fprintln(w)
	if c := v.Counted; c != nil {
		fmt.Fprintf(w, "weighed with what %s was asked: %s questions in %s that were counted, of the last %s", v.Region, count(c.Questions), regions.Span(seconds(c.Seconds)), regions.Span(seconds(c.Of)))
		if c.Uncounted > 0 {
			fmt.Fprintf(w, "; %s more found no room", count(c.Uncounted))
		}
		fmt.Fprintln(w)
	}
	for _, c := range d.Changes {
		fmt.Fprintf(w, "\n%s: %s", strings.ToUpper(string(c.Kind)), plural(c.Cells, "question"))
		if c.Asked != nil {
			fmt.Fprintf(w, ", asked %s times", count(*c.Asked))
		}
		fmt.Fprintf(w, "\n  before  %s\n  after   %s\n", c.Before, c.After)
		for _, b := range c.Where {
			fmt.Fprintf(w, "    %s\n", d.Describe(b))
		}
	}
	if len(d.Touched) > 0 {
		fmt.Fprintf(w, "\nLOGS AND COPIES THAT IT TOUCHES: nothing of them is moved or deleted by it\n")
		var rows [][]string
		for _, t := range d.Touched {
			rows = append(rows, []string{t.Log, t.Role + " in " + t.Region, strings.Join(t.Tags, " | "), t.What})
		}
		table(w, "  ", rows)
	}
	if len(d.Targets) > 0 {
		fmt.Fprintf(w, "\nWHERE LOGS MAY MOVE WHEN THEIR HOME IS LOST\n")
		var rows [][]string
		for _, t := range d.Targets {
			said := "may take it no longer: "
			if t.Gained {
				said = "may take it now; before: "
			}
			rows = append(rows, []string{t.Log, t.Region, said + t.Why})
		}
		table(w, "  ", rows)
	}
}
