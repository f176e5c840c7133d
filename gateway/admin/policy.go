package admin

import (
	"context"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// ActivatePolicy hands a signed policy to the policy's room.
func (a *Admin) ActivatePolicy(ctx context.Context, req *pb.ActivatePolicyRequest) (*pb.ActivatePolicyResponse, error) {
	m, err := a.config.ActivatePolicy(ctx, req)
	return m, wire.GRPCError(err)
}

// PolicyStatus hands the question to the policy's room.
func (a *Admin) PolicyStatus(ctx context.Context, _ *pb.PolicyStatusRequest) (*pb.PolicyStatusResponse, error) {
	m, err := a.config.PolicyStatus(ctx)
	return m, wire.GRPCError(err)
}
