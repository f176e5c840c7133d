package demo

import (
	"context"
	"fmt"

	"domicile/chaos/shop"
)

// stay starts the regions again, prints what to try, and waits until ctx ends.
func (r *run) stay(ctx context.Context) error {
	if err := r.lab.Start(ctx); err != nil {
		return err
	}
	if err := r.lab.Linked(ctx); err != nil {
		return err
	}
	eu, us := r.lab.Region(cutRegion).Node(), r.lab.Region(usRegion).Node()
	r.say("")
	r.say("The regions stay up. Paste these into a second terminal; Ctrl-C here ends them.")
	for _, line := range []string{
		fmt.Sprintf("%s tail %s --server %s", r.o.Command, shop.Orders, eu.Door()),
		fmt.Sprintf("echo 'an order from over there' | %s publish %s --raw --file - --tag class=order --tag residency=eu --server %s", r.o.Command, shop.Orders, us.Door()),
		fmt.Sprintf("%s lag --watch --server %s", r.o.Command, eu.Admin()),
	} {
		r.say("  %s", line)
	}
	r.tell("", fmt.Sprintf("The policy is in %s. Change it there, raise its serial, and it is in force within seconds.", r.lab.Policies()))
	<-ctx.Done()
	return nil
}
