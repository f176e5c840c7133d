package link

import (
	"context"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

const (
	meetWithin = 30 * time.Second // for a peer's newer policy, at pace 1, before records pass without it
	maxPolicy  = 8 << 20          // bytes
	// A part is small at first: it shares the line with the heartbeats, and a slow line must
	// carry both.
	firstPart = 4 << 10
	maxPart   = 256 << 10
	quickPart = 100 * time.Millisecond // a part that takes less may be followed by one of twice its size
)

// meet lets the node fetch what it lacks before records can pass.
func (p *peerLink) meet(ctx context.Context, l *lane) {
	policies := p.mesh.cfg.Policies
	if policies == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.mesh.cfg.Pace.Of(meetWithin))
	defer cancel()
	policies.Met(ctx, p.name, l.hello, p.fetcher(l))
}

// FetchPolicy brings the signed policy of a peer that has this one, over the link that is
// up.
func (m *Mesh) FetchPolicy(ctx context.Context, peer string, serial int64) ([]byte, error) {
	if p := m.peers[peer]; p != nil {
		if s := p.current(); s != nil {
			return p.fetcher(s.control)(ctx, serial)
		}
	}
	return nil, &api.Error{Code: api.HomeUnreachable, Op: "fetch policy", Region: peer, Hint: "the link is down"}
}

var errNonsense = &api.Error{Code: api.BadRequest, Op: "fetch policy", Field: "size", Hint: "the peer's answer makes no sense"}

// fetcher fetches over a lane, and counts an answer that no correct node gives.
func (p *peerLink) fetcher(l *lane) Fetch {
	return func(ctx context.Context, serial int64) ([]byte, error) {
		data, err := l.fetch(ctx, serial)
		if err == error(errNonsense) { // and not one of the peer with the same code
			p.mesh.cfg.Refused.Add(p.name, regions.LanePolicy, regions.Malformed)
		}
		return data, err
	}
}

// fetch asks for a policy part by part, so that a heartbeat never waits behind much of it.
func (l *lane) fetch(ctx context.Context, serial int64) ([]byte, error) {
	var out []byte
	for part := uint32(firstPart); ; {
		began := l.raw.clock.Now()
		m, err := l.client.Policy(ctx, &pb.PolicyRequest{Serial: serial, Offset: uint32(len(out)), Limit: part})
		if err != nil {
			return nil, detailed(l.why(err))
		}
		out = append(out, m.GetPart()...)
		size := int(m.GetSize())
		switch {
		case size > maxPolicy || len(out) > size || len(m.GetPart()) == 0:
			return nil, errNonsense
		case len(out) == size:
			return out, nil
		}
		if l.raw.clock.Now().Sub(began) < quickPart {
			part = min(2*part, maxPart)
		}
	}
}

// Policy hands out a part of the region's signed policy.
func (s *service) Policy(ctx context.Context, req *pb.PolicyRequest) (*pb.PolicyResponse, error) {
	_, p, err := s.caller(ctx, "policy", Control)
	if err != nil {
		return nil, err
	}
	if req.GetSerial() <= 0 || req.GetOffset() > maxPolicy {
		err := &api.Error{Code: api.BadRequest, Op: "hand out policy", Field: "serial", Hint: "no policy has such a serial or such a part"}
		p.lied(regions.LanePolicy, err)
		return nil, wire.GRPCError(err)
	}
	var data []byte
	if s.mesh.cfg.Policies != nil {
		data = s.mesh.cfg.Policies.Kept(req.GetSerial())
	}
	from := int(req.GetOffset())
	if data == nil || from >= len(data) {
		return nil, wire.GRPCError(&api.Error{Code: api.BadRequest, Op: "hand out policy", Field: "serial", Hint: "this region has no such policy any more: say hello again"})
	}
	to := min(len(data), from+int(min(max(req.GetLimit(), 1), maxPart)))
	return &pb.PolicyResponse{Part: data[from:to], Size: uint32(len(data))}, nil
}
