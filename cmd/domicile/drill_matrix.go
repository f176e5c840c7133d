package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/regions"
)

func (a *app) drillMatrix() *cobra.Command {
	var contexts []string
	var topic string
	cmd := &cobra.Command{
		Use: "matrix [REGION]", Short: "Say which logs may fail over where, now, and by which rule not",
		Long: `Each region is asked whether it could take each log whose home is elsewhere, by the rules
that a forced move within the topic's limits goes by. Nothing is begun. With REGION only
the logs whose home it is are shown.`,
		Example: "  domicile drill matrix\n  domicile drill matrix eu-west --topic news",
		Args:    arguments(0, 1, "a REGION or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, done, err := a.everyRegion(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			defer done()
			if len(args) > 0 && nodes[args[0]] == nil {
				return &api.Error{Code: api.UnknownRegion, Op: "ask permissions", Field: "region", Value: args[0], Hint: "the contexts reach " + strings.Join(slices.Sorted(maps.Keys(nodes)), ", ")}
			}
			list, err := askPermissions(cmd.Context(), nodes, topic)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				list = slices.DeleteFunc(list, func(p permissionView) bool { return p.Home != args[0] })
			}
			if a.json() {
				return a.printJSON(map[string]any{"permissions": list})
			}
			_, err = io.WriteString(a.out, renderMatrix(list))
			return err
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "one topic")
	contextsFlag(cmd, &contexts)
	return cmd
}

func contextsFlag(cmd *cobra.Command, contexts *[]string) {
	cmd.Flags().StringSliceVar(contexts, "contexts", nil, "the contexts to use, at least one of each region; default: all")
}

// permissionView is one cell of the matrix.
type permissionView struct {
	Log       string   `json:"log"`
	Home      string   `json:"home"`
	Target    string   `json:"target"`
	Allowed   bool     `json:"allowed"`
	Verdict   string   `json:"verdict"`
	Rule      string   `json:"rule,omitempty"`
	Code      string   `json:"code,omitempty"`
	Text      string   `json:"text,omitempty"`
	Mode      string   `json:"mode"`
	RPO       *float64 `json:"rpo_seconds"`  // null: none is declared
	Loss      *float64 `json:"loss_seconds"` // null: not known
	Approvals uint32   `json:"approvals"`
	Revision  string   `json:"policy_revision"` // of the target
}

// askPermissions asks every region what may fail over to it, in the order of logs and
// targets.
func askPermissions(ctx context.Context, nodes map[string]*regionNode, topic string) ([]permissionView, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	out := []permissionView{}
	for _, region := range slices.Sorted(maps.Keys(nodes)) {
		m, err := nodes[region].Admin.Permissions(ctx, topic)
		if err != nil {
			return nil, asked(err)
		}
		for _, p := range m.GetLogs() {
			out = append(out, permissionView{Log: logName(p.GetLog()), Home: p.GetHome(), Target: m.GetRegion(), Allowed: p.GetAllowed(), Verdict: p.GetVerdict(),
				Rule: p.GetRule(), Code: p.GetCode(), Text: p.GetText(), Mode: p.GetMode(), Approvals: p.GetApprovals(), Revision: m.GetPolicyRevision(),
				RPO: ifKnown(p.GetRpoNano() > 0, nanoSeconds(p.GetRpoNano())), Loss: ifKnown(p.GetLossKnown(), nanoSeconds(p.GetLossNano()))})
		}
	}
	slices.SortFunc(out, func(x, y permissionView) int {
		if c := strings.Compare(x.Log, y.Log); c != 0 {
			return c
		}
		return strings.Compare(x.Target, y.Target)
	})
	return out, nil
}

// renderMatrix is the matrix for people. It names no way around a rule.
func renderMatrix(list []permissionView) string {
	if len(list) == 0 {
		return "No log has its home elsewhere.\n"
	}
	var b strings.Builder
	rows := [][]string{{"LOG", "HOME", "TO", "NOW", "RPO", "AT RISK", "WHY"}}
	for _, p := range list {
		now, why := "denied: "+p.Verdict, p.Text
		if p.Allowed {
			now = p.Verdict
		} else {
			why = p.Rule + " " + why
		}
		rows = append(rows, []string{p.Log, p.Home, p.Target, now, spanOr(p.RPO, "-"), spanOr(p.Loss, unknownUnless(p.Mode)), why})
	}
	table(&b, "", rows)
	fmt.Fprintf(&b, "\nAsked now, of a forced move within each topic's own limits; nothing was begun.\n")
	return b.String()
}

// unknownUnless is what stands for a loss that nobody knows; of a log that never moves
// there is none to speak of.
func unknownUnless(mode string) string {
	if mode == "never" {
		return "-"
	}
	return unknown
}

func spanOr(s *float64, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return regions.Span(time.Duration(*s * float64(time.Second)))
}
