package mirror_test

import (
	"testing"

	"domicile/regions"
)

// TestR14b_WhatAnOlderPolicyLetGoIsJudgedAnewFromTheCursor: a target that takes nothing of
// an older policy refuses the batch whole, also the gaps in it. The copy stays where it is,
// and once the origin has the policy too it judges from there.
func TestR14b_WhatAnOlderPolicyLetGoIsJudgedAnewFromTheCursor(t *testing.T) {
	r := newRig(t)
	r.publish(3, "global")
	r.mirrored()
	r.usPolicy.now.Store(&edition{serial: 2, revision: "2-b", floor: 2})
	r.publish(5, "us")
	r.publish(5, "global")
	r.eventually("both sides say skew", func() bool {
		r.round()
		return r.origin().State == regions.LagPolicySkew && r.atTarget().State == regions.LagPolicySkew
	})
	if ids, gaps := r.copy.contents(); len(ids) != 3 || len(gaps) != 0 {
		t.Fatalf("%d records, gaps %+v: something of the older policy was taken", len(ids), gaps)
	}
	r.euPolicy.now.Store(&edition{serial: 2, revision: "2-b", forbidden: "us"})
	r.source.PolicyChanged()
	r.mirrored()
	if ids, gaps := r.copy.contents(); len(ids) != 8 || len(gaps) != 1 || gaps[0].Revision != "2-b" || gaps[0].Count() != 5 {
		t.Errorf("%d records, gaps %+v", len(ids), gaps)
	}
}
