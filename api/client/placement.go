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

// SnapshotAuthority has the node's voter shorten its log, after it wrote its audit out. An
// error with OutcomeUnknown says that it may have.
func (c *Client) SnapshotAuthority(ctx context.Context) (*pb.SnapshotAuthorityResponse, error) {
	m, err := pb.NewPlacementServiceClient(c.conn).SnapshotAuthority(ctx, &pb.SnapshotAuthorityRequest{})
	return m, wire.ErrorFromGRPC(err)
}
