package door_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway"
	"domicile/gateway/door"
	"domicile/regions"
)

// A node that could not start closes doors that never served: their ports are free
// for the next try.
func TestCloseGivesThePortBackOfADoorThatNeverServed(t *testing.T) {
	r := newRig(t)
	l := listen(t)
	d, err := door.New(door.Config{Listener: l, DevClass: "app", Region: "us-east", Federation: r.fed, Gateway: r.gateway, Clock: r.clock, Logger: r.logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = again.Close()
}

// endless is a gateway whose readers get one large record after the other, and which
// looks at nothing but what send says.
type endless struct {
	door.Gateway
	sends chan struct{} // one per call of send
}

func (e endless) Read(_ context.Context, _ gateway.ReadRequest, _ regions.Principal, send func(gateway.Batch) error) error {
	b := gateway.Batch{Records: []gateway.ReadRecord{{Item: regions.Item{Sequence: 1, Record: order("us", string(make([]byte, api.MaxBody)))}}}}
	for {
		select {
		case e.sends <- struct{}{}:
		default:
		}
		if err := send(b); err != nil {
			return err
		}
	}
}

// TestRT3_AStalledReaderDoesNotHoldTheDoor: a reader that stopped reading is blocked
// in flow control; the door closes all the same, and at once.
func TestRT3_AStalledReaderDoesNotHoldTheDoor(t *testing.T) {
	r := newRig(t)
	e := endless{sends: make(chan struct{}, 2)}
	d := r.open(func(c *door.Config) { c.Gateway = e })
	conn := dial(t, d, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if _, err := pb.NewReaderServiceClient(conn).Read(deadline(t), &pb.ReadRequest{Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	<-e.sends
	<-e.sends // the second one cannot get through
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Errorf("the door did not close: %v", err)
	}
}
