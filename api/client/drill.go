package client

import (
	"context"

	pb "domicile/api/domicile/v1"
)

// ArmDrill keeps a node for a drill; a dry run only checks. Sent again it is the same
// drill.
func (c *Client) ArmDrill(ctx context.Context, q *pb.ArmDrillRequest) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).ArmDrill(ctx, q)
	return m, c.asked("arm drill", err)
}

// CutDrill cuts what was armed. Sent again it changes nothing.
func (c *Client) CutDrill(ctx context.Context, id string) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).CutDrill(ctx, &pb.DrillRef{Id: id})
	return m, c.asked("cut drill", err)
}

// RenewDrill begins the lease of a drill anew.
func (c *Client) RenewDrill(ctx context.Context, id string) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).RenewDrill(ctx, &pb.DrillRef{Id: id})
	return m, c.asked("renew drill", err)
}

// HealDrill ends a drill at the node. Sent again it says how the drill ended.
func (c *Client) HealDrill(ctx context.Context, id string) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).HealDrill(ctx, &pb.DrillRef{Id: id})
	return m, c.asked("heal drill", err)
}

// DrillStatus asks what a node holds cut.
func (c *Client) DrillStatus(ctx context.Context) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).DrillStatus(ctx, &pb.DrillStatusRequest{})
	return m, c.asked("drill status", err)
}

// Permissions asks which logs may fail over to the node's region now; topic "" is all.
func (c *Client) Permissions(ctx context.Context, topic string) (*pb.PermissionsResponse, error) {
	m, err := pb.NewDrillServiceClient(c.conn).Permissions(ctx, &pb.PermissionsRequest{Topic: topic})
	return m, c.asked("permissions", err)
}

// SearchStore looks for marks of a drill's records in the node's files.
func (c *Client) SearchStore(ctx context.Context, q *pb.SearchStoreRequest) (*pb.SearchStoreResponse, error) {
	m, err := pb.NewDrillServiceClient(c.conn).SearchStore(ctx, q)
	return m, c.asked("search store", err)
}

// ProveDrill notes that a drill which the node held last has passed, and what it measured.
func (c *Client) ProveDrill(ctx context.Context, q *pb.ProveDrillRequest) (*pb.DrillState, error) {
	m, err := pb.NewDrillServiceClient(c.conn).ProveDrill(ctx, q)
	return m, c.asked("prove drill", err)
}
