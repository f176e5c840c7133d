package client

import (
	"context"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// Placements asks where the logs of a topic that may move are; of all such topics with "".
// With a topic, slot names one of its logs.
func (c *Client) Placements(ctx context.Context, topic, slot string) (*pb.PlacementsResponse, error) {
	m, err := pb.NewPlacementServiceClient(c.conn).Placements(ctx, &pb.PlacementsRequest{Topic: topic, Slot: slot})
	return m, c.asked("placements", err)
}

// ChangeAuthority changes who decides where logs are. An error with OutcomeUnknown says that
// it may have been done.
func (c *Client) ChangeAuthority(ctx context.Context, q *pb.ChangeAuthorityRequest) (*pb.GovernResponse, error) {
	m, err := pb.NewPlacementServiceClient(c.conn).ChangeAuthority(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// WidenTerms lets a log go as far as its declaration says by now. An error with
// OutcomeUnknown says that it may have been done.
func (c *Client) WidenTerms(ctx context.Context, q *pb.WidenTermsRequest) (*pb.GovernResponse, error) {
	m, err := pb.NewPlacementServiceClient(c.conn).WidenTerms(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}
