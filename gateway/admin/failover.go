package admin

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/failover"
	"domicile/regions/placement"
)

// Failover is FailoverService: what operators ask of the service, in the words of the
// wire. It is safe for concurrent use.
type Failover struct {
	pb.UnimplementedFailoverServiceServer
	// Service is nil where the manifest names no authority: then no log moves.
	Service *failover.Service
	// Caller is the name in the certificate of whoever called.
	Caller func(context.Context) string
	// Authority is whether the authority answers this node, and in words what is known of it.
	Authority func() (answers bool, words string)
}

func (f *Failover) open() error {
	if f.Service == nil {
		return &api.Error{Code: api.PlacementRefused, Op: "move log", Field: "rule", Value: placement.RulePinned,
			Hint: "federation.yaml names no authority, so no log of this federation moves"}
	}
	return nil
}

// request reads what is wanted of which log.
func (f *Failover) request(m *pb.MoveRequest) (failover.Request, error) {
	if err := f.open(); err != nil {
		return failover.Request{}, err
	}
	id, err := f.Service.LogOf(m.GetTopic(), m.GetSlot())
	if err != nil {
		return failover.Request{}, err
	}
	r := failover.Request{Log: id, Kind: placement.Kind(m.GetKind()), Target: m.GetTarget(), Divergent: m.GetAcceptDivergence(),
		Attest: m.GetAttestStopped(), Overrides: m.GetOverrides()}
	if m.AcceptSpanNano != nil {
		span := time.Duration(m.GetAcceptSpanNano())
		r.Accept.Span = &span
	}
	r.Accept.Records = m.AcceptRecords
	return r, nil
}

// PlanMove says what a move would do.
func (f *Failover) PlanMove(ctx context.Context, m *pb.MoveRequest) (*pb.MovePlan, error) {
	r, err := f.request(m)
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	p, err := f.Service.Plan(ctx, r)
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	return planToProto(&p), nil
}

// StartMove begins the move of a plan.
func (f *Failover) StartMove(ctx context.Context, m *pb.StartMoveRequest) (*pb.StartMoveResponse, error) {
	r, err := f.request(m.GetMove())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	p, err := f.Service.Start(ctx, f.Caller(ctx), r, m.GetPlan(), m.GetReason(), m.GetDryRun(), m.GetApprovals())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	out := &pb.StartMoveResponse{Plan: planToProto(&p)}
	if !m.GetDryRun() {
		out.State = f.state(r.Log)
	}
	return out, nil
}

// ApproveMove hands in a consent.
func (f *Failover) ApproveMove(ctx context.Context, m *pb.ApproveMoveRequest) (*pb.MoveState, error) {
	id, err := f.log(m.GetTopic(), m.GetSlot())
	if err != nil {
		return nil, err
	}
	l, err := f.Service.Approve(ctx, id, m.GetApproval(), m.GetReason(), m.GetDryRun())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	out := stateToProto(id, &l)
	if m.GetDryRun() {
		out.Preview, out.PreviewPlan = "the approval holds and would be recorded", l.Op.Plan
	}
	return out, nil
}

// AbortMove ends a move that is not decided yet.
func (f *Failover) AbortMove(ctx context.Context, m *pb.AbortMoveRequest) (*pb.MoveState, error) {
	id, err := f.log(m.GetTopic(), m.GetSlot())
	if err != nil {
		return nil, err
	}
	l, err := f.Service.Abort(ctx, f.Caller(ctx), id, m.GetPlan(), m.GetReason(), m.GetDryRun())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	out := stateToProto(id, &l)
	if m.GetDryRun() {
		out.Preview, out.PreviewPlan = "the move to "+l.Op.Target+" would end, and with it epoch "+l.Epoch.String()+": "+l.Home+" opens the next one", l.Op.Plan
	}
	return out, nil
}

// ResolveContest says which of two claims stands.
func (f *Failover) ResolveContest(ctx context.Context, m *pb.ResolveContestRequest) (*pb.MoveState, error) {
	id, err := f.log(m.GetTopic(), m.GetSlot())
	if err != nil {
		return nil, err
	}
	winner := wire.EpochFromProto(m.GetWinner())
	l, plan, err := f.Service.Resolve(ctx, f.Caller(ctx), id, winner, m.GetHome(), m.GetPlan(), m.GetReason(), m.GetDryRun())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	out := stateToProto(id, &l)
	if m.GetDryRun() {
		out.Preview, out.PreviewPlan = m.GetHome()+" would keep the log by epoch "+winner.String()+"; what the other side wrote apart from it is void", plan
	}
	return out, nil
}

// WatchMoves tells where logs stand, once or at every change.
func (f *Failover) WatchMoves(m *pb.WatchMovesRequest, out grpc.ServerStreamingServer[pb.MoveStates]) error {
	if err := f.open(); err != nil {
		return wire.GRPCError(err)
	}
	if m.GetTopic() != "" {
		if _, ok := f.Service.Federation.Topic(m.GetTopic()); !ok {
			return wire.GRPCError(unknownTopic(f.Service.Federation, m.GetTopic()))
		}
	}
	for {
		placed, changed := f.Service.Placed(m.GetTopic(), m.GetSlot())
		states := &pb.MoveStates{}
		states.AuthorityKnown, states.Authority = f.Authority()
		for i := range placed {
			states.Logs = append(states.Logs, stateToProto(placed[i].ID, &placed[i].Log))
		}
		if err := out.Send(states); err != nil || !m.GetWatch() {
			return err
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return wire.GRPCError(context.Cause(out.Context()))
		}
	}
}

func (f *Failover) log(topic, slot string) (api.LogID, error) {
	if err := f.open(); err != nil {
		return api.LogID{}, wire.GRPCError(err)
	}
	id, err := f.Service.LogOf(topic, slot)
	return id, wire.GRPCError(err)
}

func (f *Failover) state(id api.LogID) *pb.MoveState {
	l, ok := f.Service.Placements.Log(id)
	if !ok {
		return nil
	}
	return stateToProto(id, &l)
}
