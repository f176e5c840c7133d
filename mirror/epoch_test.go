package mirror_test

import (
	"testing"

	"domicile/api"
	"domicile/regions"
)

// A log has gone on from another region, in a new epoch, at fewer records than its old home
// had stored. That the old home's copy is longer is no damage as long as nobody has told it
// where its epoch ended: the flow is refused for now, and goes on once it knows.
func TestR14g_ACopyThatHasNotLearnedItsEpochsEndIsNotAhead(t *testing.T) {
	r := newRig(t, func(r *rig) {
		fed, err := regions.ParseManifest("test", []byte(movableManifest))
		if err != nil {
			t.Fatal(err)
		}
		r.fed = fed
	})
	r.stopSource()
	r.publish(9, "global")
	log := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: api.HomeSlot}
	old, now := r.home.epoch(), api.Epoch{Term: 1, Counter: 2, Issuer: "q"}
	r.fed.Place(map[api.LogID]regions.Placed{log: {Home: "eu-west", Epoch: now}})
	r.copy.cursor = regions.Cursor{Sequence: 9, Incarnation: "inc-1", Epoch: old, Ledger: regions.Ledger{Mirrored: 9}}
	r.startTarget()
	open := regions.MirrorOpen{Log: log, Incarnation: "inc-1", Epoch: now, Head: 6, Digest: r.fed.TopicDigest("orders")}
	if sink, reply := r.target.OpenMirror(t.Context(), "eu-west", open); sink != nil || reply.Refused != api.NotReady || reply.Field != "epoch" {
		t.Fatalf("not told yet: %v %+v", sink, reply)
	}
	r.copy.cursor.Sequence, r.copy.cursor.Ledger.Mirrored = 5, 5
	if sink, reply := r.target.OpenMirror(t.Context(), "eu-west", open); sink == nil || reply.Cursor.Sequence != 5 {
		t.Errorf("told: %v %+v", sink, reply)
	}
	r.copy.cursor = regions.Cursor{Sequence: 9, Incarnation: "inc-1", Epoch: now, Ledger: regions.Ledger{Mirrored: 9}}
	if sink, reply := r.target.OpenMirror(t.Context(), "eu-west", open); sink != nil || reply.Refused != api.CursorAhead {
		t.Errorf("longer in the same epoch: %v %+v", sink, reply)
	}
}

const movableManifest = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  us-east: {link: "127.0.0.1:2"}
boundaries: {eu: [eu-west], us: [us-east]}
authority: {voters: [eu-west, us-east]}
topics:
  orders:
    writes: home
    home: eu-west
    mirror: [all]
    failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`
