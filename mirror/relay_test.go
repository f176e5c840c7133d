package mirror_test

import (
	"slices"
	"testing"

	"domicile/api"
	"domicile/regions"
)

// A third region gives its copy on. What it was refused or has lost is no gap of the log:
// the relay ends there, so that the target neither counts as held what its home may still
// bring, nor hides it.
func TestR14g_RelayEndsAtAForeignGap(t *testing.T) {
	for _, kind := range []regions.GapKind{regions.Withheld, regions.Damaged} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRig(t, func(r *rig) { r.lends = true })
			r.cut()
			r.publish(10, "global")
			items := slices.Clone(r.home.items)
			items[0] = regions.Item{Sequence: 1, Epoch: items[0].Epoch, Term: 1, Time: items[0].Time, Gap: &regions.Gap{Kind: regions.Expired, From: 1, To: 1}}
			items[5] = regions.Item{Sequence: 6, Epoch: items[5].Epoch, Term: 1, Time: items[5].Time, Gap: &regions.Gap{Kind: kind, From: 6, To: 6}}
			topic, _ := r.fed.Topic("orders")
			open := regions.MirrorOpen{Log: orders, Incarnation: "inc-1", Epoch: items[0].Epoch, Digest: r.fed.TopicDigest(topic.Name), Head: 10}
			sink, reply := r.target.OpenMirror(t.Context(), "ap-south", open)
			if sink == nil {
				t.Fatalf("%+v", reply)
			}
			reply = sink.Apply(t.Context(), regions.MirrorBatch{Incarnation: "inc-1", Serial: 1, Revision: "1-a", Items: items})
			if reply.Refused != api.NotReady || reply.Field != "gap" || r.copy.Cursor().Sequence != 5 || !r.target.Brought(orders, "ap-south") {
				t.Fatalf("%+v, cursor %d, brought %v", reply, r.copy.Cursor().Sequence, r.target.Brought(orders, "ap-south"))
			}
			if from := r.usPolicy.entered.Load(); from == nil || *from != "ap-south" {
				t.Errorf("arrival was judged as from %v", from)
			}
			sink.Close()
			if sink, reply = r.target.OpenMirror(t.Context(), "ap-south", open); sink != nil || reply.Field != "gap" || !r.target.Brought(orders, "ap-south") {
				t.Errorf("offered again: %+v", reply)
			}
			r.heal()
			r.mirrored()
			if ids, gaps := r.copy.contents(); len(ids) != 9 || len(gaps) != 1 {
				t.Errorf("records %v, gaps %v", ids, gaps)
			}
		})
	}
}
