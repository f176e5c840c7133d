package lab_test

import (
	"fmt"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
)

// TestR14e_ALogIsMovedAndBackByItsDoors: what an operator does, from the plan to the new
// home's acks and back, on real gateways.
func TestR14e_ALogIsMovedAndBackByItsDoors(t *testing.T) {
	l := open(t, lab.Options{Policies: movablePolicies, Manifest: []byte(movable)})
	until(t, l, "us-east", "orders", "before", confirmed)
	move := func(via, target, home string) {
		t.Helper()
		c := desk(t, l, via)
		q := &pb.MoveRequest{Topic: "orders", Kind: "planned", Target: target}
		p := planWithin(t, c, q)
		if _, err := c.StartMove(t.Context(), &pb.StartMoveRequest{Move: q, Plan: p.GetId(), Reason: "maintenance"}); err != nil {
			t.Fatal(err)
		}
		within(t, "the log is in "+home, func() error {
			return c.WatchMoves(t.Context(), &pb.WatchMovesRequest{Topic: "orders"}, func(m *pb.MoveStates) error {
				for _, s := range m.GetLogs() {
					if s.GetHome() == home && s.GetStatus() == "ACTIVE" {
						return nil
					}
				}
				return fmt.Errorf("%v", m.GetLogs())
			})
		})
		until(t, l, "eu-central", "orders", "acked by "+home, func(a api.Ack, err error) bool { return err == nil && a.Region == home })
	}
	move("us-east", "us-east", "us-east")
	move("eu-west", "", "eu-west") // back to where the manifest puts it
}
