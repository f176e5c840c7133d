package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// firstPatience bounds how long a read waits for its first batch: somebody is
// looking at a terminal.
const firstPatience = 5 * time.Second

// Read gives a topic to fn, batch by batch, until its end, or with Follow until ctx
// ends. When the connection is lost, or the region says that a state will pass, it
// goes on from the last batch that fn took: no record is left out, and none that fn
// took comes again. It gives up when there was no batch for DefaultPatience, or none at
// all in the first seconds. An error of fn ends the read and is returned.
func (c *Client) Read(ctx context.Context, q *pb.ReadRequest, fn func(*pb.ReadResponse) error) error {
	q = proto.CloneOf(q)
	tries, last, patience := 0, time.Now(), firstPatience
	for {
		var own error // of fn
		err := c.readOnce(ctx, q, func(b *pb.ReadResponse) error {
			if own = fn(b); own != nil {
				return own
			}
			q.From = &pb.ReadRequest_Position{Position: b.GetPosition()}
			tries, last, patience = 0, time.Now(), DefaultPatience
			return nil
		})
		if err == nil || own != nil || ctx.Err() != nil || !api.CodeOf(err).Retryable() || time.Since(last) > patience {
			return err
		}
		tries++
		if !sleep(ctx, backoff(tries)) {
			return err
		}
	}
}

func (c *Client) readOnce(ctx context.Context, q *pb.ReadRequest, fn func(*pb.ReadResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewReaderServiceClient(c.conn).Read(ctx, q)
	if err != nil {
		return c.asked("read", err)
	}
	return c.asked("read", each(stream, fn))
}
