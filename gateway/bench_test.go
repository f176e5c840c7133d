package gateway_test

import (
	"context"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
	"domicile/regions"
)

// instant is a log whose writer answers at once: what is left is the gateway's own
// work.
type instant struct {
	regions.HomeLog
	position api.Cursor
	at       time.Time
}

func (l instant) Append(d regions.Draft, done func(regions.Stored)) {
	done(regions.Stored{Position: l.position, Term: 1, Time: l.at, Done: api.Disk1, Revision: d.Revision})
}

// BenchmarkPublishWalk is one record through check, admit, route, hand-over and ack.
func BenchmarkPublishWalk(b *testing.B) {
	l, err := examples()
	if err != nil {
		b.Fatal(err)
	}
	gate := policy.NewGate(l.federation, "us-east", policy.Hooks{})
	if err := gate.Activate(context.Background(), l.first); err != nil {
		b.Fatal(err)
	}
	id := logID(b, "orders@us-east")
	log := instant{position: api.Cursor{Log: id, Incarnation: "0123456789abcdef", Epoch: api.StaticEpoch("us-east"), Sequence: 1}, at: time.Now()}
	g, err := gateway.New(gateway.Config{Self: "us-east", Federation: l.federation, Placement: l.federation, Gate: gate,
		Homes: func(api.LogID) (regions.HomeLog, bool) { return log, true }, Clock: regions.NewSteadyClock()})
	if err != nil {
		b.Fatal(err)
	}
	rec := order("us")
	rec.ID, rec.Body = "0123456789abcdef", make([]byte, 1024)
	who := client("us-east")
	acked := 0
	done := func(_ api.Ack, err error) {
		if err == nil {
			acked++
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Publish(context.Background(), rec, who, nil, done)
	}
	if acked == 0 {
		b.Fatal("nothing was acked")
	}
}
