package admin

import (
	"context"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/drill"
	"domicile/gateway/failover"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// Drills is DrillService: what operators ask of the node's drill desk, in the words of the
// wire. It is safe for concurrent use.
type Drills struct {
	pb.UnimplementedDrillServiceServer
	Desk *drill.Desk
	Node string // of a region of three; "": the region has one
	// Caller is the name in the certificate of whoever called.
	Caller func(context.Context) string
	// Revision is that of the policy in force; "": none is.
	Revision func() string
	// Ask says what may fail over to this region now, of one topic or of all, and by which
	// policy.
	Ask func(ctx context.Context, topic string) (revision string, list []failover.Permission, err error)
}

// ArmDrill keeps the node for a drill.
func (s *Drills) ArmDrill(ctx context.Context, m *pb.ArmDrillRequest) (*pb.DrillState, error) {
	return s.answer(s.Desk.Arm(ctx, s.Caller(ctx), m.GetId(), SpecFromProto(m.GetSpec()), m.GetReason(), m.GetApprovals(), m.GetDryRun()))
}

// CutDrill cuts what was armed.
func (s *Drills) CutDrill(ctx context.Context, m *pb.DrillRef) (*pb.DrillState, error) {
	return s.answer(s.Desk.Cut(s.Caller(ctx), m.GetId()))
}

// RenewDrill begins the lease anew.
func (s *Drills) RenewDrill(ctx context.Context, m *pb.DrillRef) (*pb.DrillState, error) {
	return s.answer(s.Desk.Renew(s.Caller(ctx), m.GetId()))
}

// HealDrill ends the drill.
func (s *Drills) HealDrill(_ context.Context, m *pb.DrillRef) (*pb.DrillState, error) {
	return s.answer(s.Desk.Heal(m.GetId()))
}

// ProveDrill notes that a drill has passed.
func (s *Drills) ProveDrill(ctx context.Context, m *pb.ProveDrillRequest) (*pb.DrillState, error) {
	var moves []drill.Measured
	for _, p := range m.GetMoves() {
		moves = append(moves, drill.Measured{Topic: p.GetTopic(), RTO: time.Duration(p.GetRtoNano()), RPO: time.Duration(p.GetRpoNano())})
	}
	return s.answer(s.Desk.Prove(ctx, s.Caller(ctx), m.GetId(), m.GetChain(), moves))
}

// DrillStatus says what is held.
func (s *Drills) DrillStatus(context.Context, *pb.DrillStatusRequest) (*pb.DrillState, error) {
	return s.answer(s.Desk.State(), nil)
}

func (s *Drills) answer(d drill.State, err error) (*pb.DrillState, error) {
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	c := &s.Desk.Config
	m := &pb.DrillState{Region: c.Self, Node: s.Node, Id: d.ID, Phase: string(d.Phase), By: d.By, Consent: d.Consent, Approved: d.Approved, LeftNano: int64(d.Left), CapLeftNano: int64(d.CapLeft),
		NowUnixNano: wire.TimeToProto(c.Clock.Now()), SinceUnixNano: wire.TimeToProto(d.Since)}
	if d.Spec.Isolate != "" {
		m.Spec = SpecToProto(d.Spec)
	}
	m.Map = drillMap(c.Federation.Snapshot(), s.Revision())
	m.Cuts = append(cutsToProto(d.Cuts, drill.GateProcess), cutsToProto(d.Filtered, drill.GateFilter)...)
	if d.Last.ID != "" {
		m.Last = &pb.DrillEnd{Id: d.Last.ID, How: d.Last.How, AtUnixNano: wire.TimeToProto(d.Last.At)}
	}
	if p := d.Proof; p.ID != "" {
		m.Proof = &pb.DrillProof{Id: p.ID, Chain: p.Chain, By: p.By, AtUnixNano: wire.TimeToProto(p.At)}
	}
	if limits := c.Federation.Drills(); limits != nil {
		m.Permitted, m.Approvals, m.MaxForNano, m.Windows = true, uint32(limits.Approvals), int64(limits.MaxFor), limits.WindowsText()
	}
	return m, nil
}

func cutsToProto(cuts []link.Cut, gate string) []*pb.DrillCut {
	var out []*pb.DrillCut
	for _, c := range cuts {
		out = append(out, &pb.DrillCut{Peer: c.Peer, Planes: texts(c.Planes), Directions: texts(c.Dirs), Fault: drill.FaultOf(c.Mode), Drill: c.Drill, LeftNano: int64(c.Left), Gate: gate})
	}
	return out
}

// drillMap is what a controller has to know of the federation.
func drillMap(f *regions.Federation, revision string) *pb.DrillMap {
	m := &pb.DrillMap{ManifestDigest: f.Digest(), PolicyRevision: revision}
	for _, name := range f.Boundaries() {
		b, _ := f.Boundary(name)
		m.Boundaries = append(m.Boundaries, &pb.DrillBoundary{Name: name, Regions: b.Regions})
	}
	for _, name := range f.Regions() {
		r, _ := f.Region(name)
		m.Regions = append(m.Regions, &pb.DrillRegion{Name: name, Peers: f.Peers(name), Links: r.Links()})
	}
	return m
}

// SpecFromProto reads what is to be cut; whether it makes sense is the desk's to say.
func SpecFromProto(m *pb.DrillSpec) drill.Spec {
	s := drill.Spec{Isolate: m.GetIsolate(), Peers: m.GetPeers(), Direction: m.GetDirection(), Fault: m.GetFault(), Gate: m.GetGate(), Lease: time.Duration(m.GetLeaseNano()), For: time.Duration(m.GetForNano())}
	for _, p := range m.GetPlanes() {
		s.Planes = append(s.Planes, link.Plane(p))
	}
	return s
}

// SpecToProto makes the message of what is cut.
func SpecToProto(s drill.Spec) *pb.DrillSpec {
	return &pb.DrillSpec{Isolate: s.Isolate, Peers: s.Peers, Planes: texts(s.Planes), Direction: s.Direction, Fault: s.Fault, Gate: s.Gate, LeaseNano: int64(s.Lease), ForNano: int64(s.For)}
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// drillWarnings say in the status that links are cut on purpose.
func drillWarnings(s *drill.State) []string {
	if s.ID == "" {
		return nil
	}
	what := "is armed by " + s.By + "; nothing is cut yet"
	if s.Phase == drill.Cut {
		what = "cuts links of this region, by " + s.By + ": they heal by themselves in " + regions.Span(s.Left) + " unless it is renewed, and in " + regions.Span(s.CapLeft) + " in any case"
	}
	return []string{"drill " + s.ID + " " + what}
}

// evidence says how old the proofs are that drills have measured: of the region's being cut
// off, and of the move of each topic that may move. It says nothing where nobody may drill.
func evidence(v *View) []*pb.EvidenceState {
	if v.Federation.Drills() == nil && v.Drill.Proof.ID == "" {
		return nil
	}
	out := []*pb.EvidenceState{{Drill: v.Drill.Proof.ID, AtUnixNano: wire.TimeToProto(v.Drill.Proof.At)}}
	for _, name := range v.Federation.Topics() {
		if t, _ := v.Federation.Topic(name); !t.Movable() {
			continue
		}
		e := &pb.EvidenceState{Topic: name}
		for _, m := range v.Drill.Measured {
			if m.Topic == name {
				e.Drill, e.AtUnixNano, e.RtoNano, e.RpoNano = m.Drill, wire.TimeToProto(m.At), int64(m.RTO), int64(m.RPO)
			}
		}
		out = append(out, e)
	}
	return out
}

// Permissions says what may fail over to this region.
func (s *Drills) Permissions(ctx context.Context, q *pb.PermissionsRequest) (*pb.PermissionsResponse, error) {
	revision, list, err := s.Ask(ctx, q.GetTopic())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	m := &pb.PermissionsResponse{Region: s.Desk.Self, PolicyRevision: revision, NowUnixNano: wire.TimeToProto(s.Desk.Clock.Now())}
	for i := range list {
		m.Logs = append(m.Logs, permissionToProto(&list[i]))
	}
	return m, nil
}

// SearchStore looks for marks of a drill's records in the node's files.
func (s *Drills) SearchStore(ctx context.Context, q *pb.SearchStoreRequest) (*pb.SearchStoreResponse, error) {
	found, err := s.Desk.Search(ctx, s.Caller(ctx), q.GetMarks(), wire.TimeFromProto(q.GetSinceUnixNano()))
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	return &pb.SearchStoreResponse{Region: s.Desk.Self, Node: s.Node, Files: found.Files, Bytes: found.Bytes, Older: found.Older, Found: found.Marks, Outputs: found.Outputs, Beyond: found.Beyond}, nil
}

func permissionToProto(p *failover.Permission) *pb.Permission {
	m := &pb.Permission{Log: wire.LogToProto(p.Log), Home: p.Home, Epoch: wire.EpochToProto(p.Epoch), Allowed: p.Verdict == failover.Allowed, Verdict: string(p.Verdict),
		Rule: p.Rule, Code: string(p.Code), Text: p.Text, RpoNano: int64(p.RPO), Approvals: uint32(p.Approvals), Mode: string(placement.Never)}
	if p.Movable {
		m.Mode = string(placement.Manual)
	}
	if p.Loss.Span != nil {
		m.LossKnown, m.LossNano = true, int64(*p.Loss.Span)
	}
	return m
}
