package placer_test

import (
	"testing"

	"domicile/api"
	"domicile/regions/placement"
)

// TestR14g_WhatIsDeletedIsRetired: the authority lets go of a log that was deleted at its
// home, also when it could not be told at once, and takes the one in that is made anew. An
// incarnation that is replaced without a word of deletion is let go of as well.
func TestR14g_WhatIsDeletedIsRetired(t *testing.T) {
	r := newRig(t, placement.Accept, 0)
	r.placer.Attach(r.authority)
	first := api.StaticEpoch("here")
	r.placer.Opened(orders, "inc", first)
	r.until("declared", stored)
	r.authority.cutOff(true)
	r.placer.Closed(orders)
	r.placer.Deleted(orders, "inc")
	if _, ok := r.placer.Log(orders); ok {
		t.Error("a deleted log still has a place")
	}
	r.placer.Detach()
	r.authority.cutOff(false)
	again := r.reopened() // what is due outlives a restart
	again.Attach(r.authority)
	r.retired("inc")
	for _, next := range []string{"inc2", "inc3"} {
		again.Opened(orders, next, first)
		r.log = again.Leased(r.shelf, next, first)
		r.until("declared anew", stored)
	}
	r.retired("inc2")
	if l, ok := again.Log(orders); !ok || l.Incarnation != "inc3" {
		t.Errorf("placed is %+v %v", l, ok)
	}
}
