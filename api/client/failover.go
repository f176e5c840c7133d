package client

import (
	"context"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// PlanMove asks what a move of a log would do, and which rules refuse it.
func (c *Client) PlanMove(ctx context.Context, q *pb.MoveRequest) (*pb.MovePlan, error) {
	m, err := pb.NewFailoverServiceClient(c.conn).PlanMove(ctx, q)
	return m, c.asked("plan move", err)
}

// StartMove begins the move of exactly the plan that is named. An error with
// OutcomeUnknown says that it may have begun; sent again it is the same move.
func (c *Client) StartMove(ctx context.Context, q *pb.StartMoveRequest) (*pb.StartMoveResponse, error) {
	m, err := pb.NewFailoverServiceClient(c.conn).StartMove(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// ApproveMove hands in a signed consent to the plan of a move under way.
func (c *Client) ApproveMove(ctx context.Context, q *pb.ApproveMoveRequest) (*pb.MoveState, error) {
	m, err := pb.NewFailoverServiceClient(c.conn).ApproveMove(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// AbortMove ends a move that is not decided yet, and with it the epoch.
func (c *Client) AbortMove(ctx context.Context, q *pb.AbortMoveRequest) (*pb.MoveState, error) {
	m, err := pb.NewFailoverServiceClient(c.conn).AbortMove(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// ResolveContest says which of two claims to a log stands.
func (c *Client) ResolveContest(ctx context.Context, q *pb.ResolveContestRequest) (*pb.MoveState, error) {
	m, err := pb.NewFailoverServiceClient(c.conn).ResolveContest(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// WatchMoves gives fn where logs stand: once, or with Watch at every change until ctx ends
// or fn returns an error, which WatchMoves then returns.
func (c *Client) WatchMoves(ctx context.Context, q *pb.WatchMovesRequest, fn func(*pb.MoveStates) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewFailoverServiceClient(c.conn).WatchMoves(ctx, q)
	if err != nil {
		return c.asked("failover status", err)
	}
	return c.asked("failover status", each(stream, fn))
}
