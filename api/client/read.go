package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// Read gives a topic to fn, batch by batch, until its end, or with Follow until ctx
// ends. When the connection is lost, or the region says that a state will pass, it
// goes on from the last batch that fn took: no record is left out, and none that fn
// took comes again. It gives up after DefaultPatience without a batch. An error of
// fn ends the read and is returned.
func (c *Client) Read(ctx context.Context, q *pb.ReadRequest, fn func(*pb.ReadResponse) error) error {
	q = proto.CloneOf(q)
	tries, last := 0, time.Now()
	for {
		err := c.readOnce(ctx, q, func(b *pb.ReadResponse) error {
			if err := fn(b); err != nil {
				return err
			}
			q.From = &pb.ReadRequest_Position{Position: b.GetPosition()}
			tries, last = 0, time.Now()
			return nil
		})
		code := api.CodeOf(err)
		if err == nil || ctx.Err() != nil || !passes(err, code) || time.Since(last) > DefaultPatience {
			return err
		}
		tries++
		if !sleep(ctx, backoff(tries)) {
			return err
		}
	}
}

// passes reports whether a read may go on after the error. An error that is not ours
// is the caller's own.
func passes(err error, code api.Code) bool {
	_, ours := err.(*api.Error)
	return ours && code.Retryable()
}

func (c *Client) readOnce(ctx context.Context, q *pb.ReadRequest, fn func(*pb.ReadResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewReaderServiceClient(c.conn).Read(ctx, q)
	if err != nil {
		return c.asked("read", err)
	}
	_, err = each(stream, fn)
	return c.asked("read", err)
}
