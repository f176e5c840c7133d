package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
)

// explainFlags are one question to the policy.
type explainFlags struct {
	topic, point, from, to, class, place string
	tags                                 []string
	policies, manifest                   string
	trace                                bool
	cell                                 string
}

func (a *app) explainCommand() *cobra.Command {
	var e explainFlags
	cmd := &cobra.Command{
		Use:   "explain [TOPIC]",
		Short: "Ask the policy one question and say why the answer is what it is",
		Long: `Asks a running node, or with --policies and --federation a directory, which needs no
node. Points: admit (may it be published), transit (may it pass through --to),
mirror_egress and mirror_ingress (may a copy go from --from to --to), consume (may the
reader have it in --to). --cell takes a whole question as other commands print it.`,
		Example: "  domicile explain orders --point mirror_egress --tag residency=eu --tag class=order --from eu-west --to us-east",
		Args:    arguments(0, 1, "a TOPIC, or --cell"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (e.cell != "") {
				return usage("%s takes a TOPIC or --cell", short(cmd))
			}
			e.topic = strings.Join(args, "")
			if err := e.readCell(); err != nil {
				return err
			}
			v, err := a.explain(cmd.Context(), e)
			if err != nil {
				return err
			}
			return a.printExplain(v, e.trace)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.point, "point", "admit", "admit, transit, mirror_egress, mirror_ingress or consume")
	flags.StringArrayVar(&e.tags, "tag", nil, "name=value of the record; repeat it")
	flags.StringVar(&e.from, "from", "", "region where the record was published, or whose log it is in")
	flags.StringVar(&e.to, "to", "", "region it would pass through, rest in or be read in")
	flags.StringVar(&e.class, "class", "", "class of the caller")
	flags.StringVar(&e.place, "place", policy.None, "place of the caller: a region, or none")
	flags.StringVar(&e.policies, "policies", "", "ask this policy directory instead of a node")
	flags.StringVar(&e.manifest, "federation", "", "with --policies: path of federation.yaml")
	flags.StringVar(&e.cell, "cell", "", "a question in words, in place of TOPIC and flags")
	flags.BoolVar(&e.trace, "trace", false, "print how the rules were evaluated")
	return cmd
}

// readCell takes the question that --cell holds.
func (e *explainFlags) readCell() error {
	if e.cell == "" {
		return nil
	}
	q, err := policy.ParseQuestion(e.cell)
	if err != nil {
		return usage("--cell: %s", hintOf(err))
	}
	said := func(word string) string {
		if word == policy.None {
			return ""
		}
		return word
	}
	e.topic, e.point, e.class, e.place = q.Topic, q.Point.String(), said(q.Class), q.Place
	e.from, e.to = said(q.Origin), said(q.Target)
	e.tags = nil
	for _, t := range q.Tags {
		if t.Value != policy.None {
			e.tags = append(e.tags, t.Name+"="+t.Value)
		}
	}
	return nil
}

// explain asks a directory if one is given, else the node.
func (a *app) explain(ctx context.Context, e explainFlags) (explainView, error) {
	record, err := publishFlags{topic: e.topic, tags: e.tags}.defaults()
	if err != nil {
		return explainView{}, err
	}
	point, err := policy.ParsePoint(e.point)
	if err != nil {
		return explainView{}, usage("--point: %s", hintOf(err))
	}
	if (e.policies == "") != (e.manifest == "") {
		return explainView{}, usage("--policies and --federation belong together")
	}
	if err := e.complete(point); err != nil {
		return explainView{}, err
	}
	if e.policies == "" {
		return a.explainByNode(ctx, e, record.Tags)
	}
	f, err := regions.LoadManifest(e.manifest)
	if err != nil {
		return explainView{}, err
	}
	p, err := opa.Load(ctx, e.policies, f)
	if err != nil {
		return explainView{}, err
	}
	record.SortTags()
	answer, err := p.Explain(ctx, policy.Question{
		Point: point, Topic: e.topic, Tags: record.Tags, Class: firstOf(e.class, policy.None), Place: e.place,
		Origin: firstOf(e.from, policy.None), Target: firstOf(e.to, policy.None),
	})
	if err != nil {
		return explainView{}, err
	}
	return viewExplanation(answer), nil
}

// complete refuses a question that lacks what its point asks about. A node takes
// itself for --from; a directory is nowhere.
func (e explainFlags) complete(point policy.Point) error {
	caller := point == policy.Admit || point == policy.Transit || point == policy.Consume
	need := []struct {
		flag, value string
		needed      bool
	}{
		{"--class", e.class, caller},
		{"--from", e.from, e.policies != "" && point != policy.Transit},
		{"--to", e.to, point != policy.Admit},
	}
	var missing []string
	for _, n := range need {
		if n.needed && n.value == "" {
			missing = append(missing, n.flag)
		}
	}
	if len(missing) > 0 {
		return usage("explain --point %s needs %s", e.point, strings.Join(missing, ", "))
	}
	return nil
}

func (a *app) printExplain(v explainView, trace bool) error {
	if !trace {
		v.Trace = ""
	}
	if a.json() {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else if _, err := io.WriteString(a.out, renderExplain(v, trace)); err != nil {
		return err
	}
	if !v.Allow {
		return ended(exitRefused)
	}
	return nil
}

// hintOf is the way out that an error names.
func hintOf(err error) string {
	if e, ok := err.(*api.Error); ok && e.Hint != "" {
		return e.Hint
	}
	return err.Error()
}

func (a *app) explainByNode(ctx context.Context, e explainFlags, tags []api.Tag) (explainView, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return explainView{}, err
	}
	defer c.Close()
	request := &pb.ExplainRequest{Point: e.point, Topic: e.topic, PrincipalClass: e.class, PrincipalPlace: e.place, Origin: e.from, Target: e.to}
	for _, t := range tags {
		request.Tags = append(request.Tags, &pb.Tag{Name: t.Name, Value: t.Value})
	}
	r, err := c.Explain(ctx, request)
	if err != nil {
		return explainView{}, asked(err)
	}
	return viewAnswer(r), nil
}
