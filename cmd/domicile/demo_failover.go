package main

import (
	"context"
	"fmt"
	"os"

	"domicile/api"
	"domicile/chaos/failover"
)

// demoFailover tells the story of a log that changes its home. The node that is killed is
// this program once more.
func (a *app) demoFailover(ctx context.Context, rate int) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	o := failover.Options{Rate: rate, Serve: []string{path, "serve", "-c"}, Story: raw(a.out)}
	if a.json() {
		o.Story = raw(a.err)
	}
	r, err := failover.Run(ctx, o)
	if r != nil && a.json() {
		if err := a.printJSON(r); err != nil {
			return err
		}
	}
	switch {
	case err != nil && interrupted(ctx, err):
		return &api.Error{Code: api.ShuttingDown, Op: "demo", Hint: "called off before the checks were done; everything is cleaned up"}
	case err != nil:
		return err
	case !a.json():
		rows := [][]string{{"HOLDS", "CLAIM", "SEEN"}}
		for _, c := range r.Checks {
			rows = append(rows, []string{fmt.Sprint(c.Holds), c.Claim, c.Saw})
		}
		table(a.out, "", rows)
	}
	if !r.Holds() {
		return ended(exitFailure)
	}
	return nil
}
