package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

func (a *app) drillStatus() *cobra.Command {
	var contexts []string
	cmd := &cobra.Command{
		Use: "status", Short: "Say what is held cut in each region", Args: arguments(0, 0, ""),
		Long:    "Ends with 3 while a drill or another fault holds a link, and with 4 if a region does not answer\nand no other holds one.",
		Example: "  domicile drill status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			states, err := a.eachDrill(cmd.Context(), contexts, false, func(context.Context, *regionNode, *pb.DrillState) (*pb.DrillState, error) { return nil, nil })
			held, printed := a.showDrills(states)
			if printed != nil || !held {
				return errors.Join(printed, err)
			}
			if err != nil {
				fmt.Fprintln(a.err, oneLine(err.Error()))
			}
			return ended(exitDegraded)
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
			met := !named
			states, err := a.eachDrill(cmd.Context(), contexts, true, func(ctx context.Context, n *regionNode, s *pb.DrillState) (*pb.DrillState, error) {
				if s.GetId() == "" || len(args) > 0 && s.GetId() != args[0] {
					return nil, nil
				}
				return n.Admin.HealDrill(ctx, s.GetId())
			})
			for _, s := range states {
				met = met || s.GetLast().GetId() == args[0]
			}
			if _, printed := a.showDrills(states); err == nil {
				err = printed
			} else {
				fmt.Fprintln(a.err, "What was not reached heals by itself: once whoever runs the drill sees that it was ended elsewhere, or with its lease, or when its time is over.")
			}
			if err == nil && !met {
				err = &api.Error{Code: api.Conflict, Op: "end drill", Field: "drill", Value: args[0], Hint: "no region holds it, and none held it last: domicile drill status"}
			}
			return err
		},
	}
	contextsFlag(cmd, &contexts)
	return cmd
}

// eachDrill asks every node that the contexts name what it holds, and then what ask does
// with it; a nil answer leaves the first one. It keeps one answer of each node. The error is
// about those that did not: whatever they hold, the others have been asked. With insist a node
// that does not answer is asked again while there is time: nobody presses a red button twice.
func (a *app) eachDrill(ctx context.Context, contexts []string, insist bool, ask func(context.Context, *regionNode, *pb.DrillState) (*pb.DrillState, error)) ([]*pb.DrillState, error) {
	nodes, done, err := a.everyNode(contexts)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	states, errs := make([]*pb.DrillState, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() {
			var err error
			for again := true; again; again = insist && api.CodeOf(err) == api.NotReady && pause(ctx, askAgain) {
				states[i], err = n.Admin.DrillStatus(ctx)
				if err != nil {
					continue
				}
				var s *pb.DrillState
				if s, err = ask(ctx, n, states[i]); s != nil {
					states[i] = s
				}
			}
			if err != nil {
				errs[i] = fmt.Errorf("context %s: %w", n.Context, err)
			}
		})
	}
	group.Wait()
	return onceEach(states), asked(errors.Join(errs...))
}

// askAgain is the pause before a node is asked again.
const askAgain = 250 * time.Millisecond

// pause lets time go by, and reports whether ctx left it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// onceEach keeps one state of each node that answered, by region and name.
func onceEach(states []*pb.DrillState) []*pb.DrillState {
	by := func(x, y *pb.DrillState) int {
		return cmp.Or(strings.Compare(x.GetRegion(), y.GetRegion()), strings.Compare(x.GetNode(), y.GetNode()))
	}
	out := slices.DeleteFunc(states, func(s *pb.DrillState) bool { return s == nil })
	slices.SortStableFunc(out, by)
	return slices.CompactFunc(out, func(x, y *pb.DrillState) bool { return by(x, y) == 0 })
}

// drillView is what a node holds.
type drillView struct {
	Region  string   `json:"region"`
	Node    string   `json:"node,omitempty"`
	Drill   string   `json:"drill,omitempty"`
	Phase   string   `json:"phase,omitempty"`
	By      string   `json:"by,omitempty"`
	Isolate string   `json:"isolate,omitempty"`
	Left    float64  `json:"lease_left_seconds"`
	Cuts    []string `json:"cuts"`
	Last    string   `json:"last,omitempty"` // drill
	How     string   `json:"last_ended,omitempty"`
	Passed  *float64 `json:"evidence_age_seconds"` // since the last drill that has passed; null: none is known
	Proof   string   `json:"evidence,omitempty"`   // its id
}

// showDrills prints what is held, and reports whether anything is.
func (a *app) showDrills(states []*pb.DrillState) (held bool, err error) {
	views := []drillView{}
	rows := [][]string{{"REGION", "DRILL", "PHASE", "BY", "LEASE LEFT", "CUT", "LAST", "PASSED"}}
	for _, s := range states {
		v := drillView{Region: s.GetRegion(), Node: s.GetNode(), Drill: s.GetId(), Phase: s.GetPhase(), By: s.GetBy(), Isolate: s.GetSpec().GetIsolate(), Left: nanoSeconds(s.GetLeftNano()), Cuts: []string{}, Last: s.GetLast().GetId(), How: s.GetLast().GetHow(), Proof: s.GetProof().GetId()}
		passed := "none known"
		if v.Proof != "" {
			age := float64(s.GetNowUnixNano()-s.GetProof().GetAtUnixNano()) / float64(time.Second)
			v.Passed, passed = &age, v.Proof+", "+regions.Span(time.Duration(age*float64(time.Second)))+" ago"
		}
		for _, c := range s.GetCuts() {
			text := fmt.Sprintf("%s %s %s %s", c.GetPeer(), c.GetFault(), strings.Join(c.GetPlanes(), "+"), strings.Join(c.GetDirections(), "+"))
			if c.GetGate() == "nftables" {
				text += " by nftables"
			}
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
		rows = append(rows, []string{strings.Trim(v.Region+"."+v.Node, "."), firstOf(v.Drill, "none"), firstOf(v.Phase, "-"), firstOf(v.By, "-"), left, firstOf(strings.Join(v.Cuts, "; "), "nothing"), firstOf(strings.TrimSpace(v.Last+" "+v.How), "-"), passed})
	}
	if a.json() {
		return held, a.printJSON(map[string]any{"regions": views})
	}
	table(a.out, "", rows)
	return held, nil
}
