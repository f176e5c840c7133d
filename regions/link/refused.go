package link

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"domicile/api"
	"domicile/regions"
)

// lied counts what the peer said on a lane if our refusal of it means that no correct node
// says it. What passes by itself (a version, a restart, a busy peer) does not.
func (p *peerLink) lied(lane regions.Lane, refusal error) {
	if why := wrong(refusal); why != "" {
		p.mesh.cfg.Refused.Add(p.name, lane, why)
	}
}

func wrong(refusal error) regions.Refusal {
	var e *api.Error
	if !errors.As(refusal, &e) {
		return ""
	}
	switch e.Code {
	case api.BadRequest:
		return regions.Malformed
	case api.PermissionDenied:
		switch e.Field {
		case "region":
			return regions.NotTheirs
		case "fabric_id":
			return regions.Impossible
		}
	}
	return ""
}

// garbled counts a stream of the peer that ended because a message of it could not be read.
func (p *peerLink) garbled(lane regions.Lane, received error) {
	switch status.Code(received) {
	case codes.Internal: // gRPC's own, of what can't be decoded
		p.mesh.cfg.Refused.Add(p.name, lane, regions.Malformed)
	case codes.ResourceExhausted:
		p.mesh.cfg.Refused.Add(p.name, lane, regions.TooLarge)
	}
}
