package client

import (
	"context"
	"errors"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// Divergences lists what the node's region holds beyond the end of an epoch.
func (c *Client) Divergences(ctx context.Context, q *pb.ListDivergencesRequest) (*pb.ListDivergencesResponse, error) {
	m, err := pb.NewDivergenceServiceClient(c.conn).ListDivergences(ctx, q)
	return m, c.asked("list divergences", err)
}

// ReadDivergence gives the records of one to fn, in order.
func (c *Client) ReadDivergence(ctx context.Context, q *pb.ReadDivergenceRequest, fn func(*pb.ReadDivergenceResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewDivergenceServiceClient(c.conn).ReadDivergence(ctx, q)
	if err != nil {
		return c.asked("read divergence", err)
	}
	return c.asked("read divergence", each(stream, fn))
}

// RepublishDivergence has the node publish what of one is nowhere else, and tells fn after
// each part how far it is. When the answer is lost it is called again: nothing is stored
// twice.
func (c *Client) RepublishDivergence(ctx context.Context, q *pb.RepublishDivergenceRequest, fn func(*pb.RepublishDivergenceResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewDivergenceServiceClient(c.conn).RepublishDivergence(ctx, q)
	if err == nil {
		err = each(stream, fn)
	}
	var own callerError
	if errors.As(err, &own) {
		return own.error
	}
	return wire.ErrorFromGRPC(err)
}

// DiscardDivergence puts on record that what is left of one is not wanted.
func (c *Client) DiscardDivergence(ctx context.Context, q *pb.DiscardDivergenceRequest) (*pb.DiscardDivergenceResponse, error) {
	m, err := pb.NewDivergenceServiceClient(c.conn).DiscardDivergence(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// ReportLoss is the signed report of what a forced move left behind, as JSON.
func (c *Client) ReportLoss(ctx context.Context, q *pb.ReportLossRequest) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewDivergenceServiceClient(c.conn).ReportLoss(ctx, q)
	if err != nil {
		return nil, c.asked("report loss", err)
	}
	var text []byte
	err = each(stream, func(m *pb.ReportLossResponse) error {
		text = append(text, m.GetReport()...)
		return nil
	})
	return text, c.asked("report loss", err)
}
