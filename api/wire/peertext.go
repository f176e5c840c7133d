package wire

import (
	"cmp"
	"errors"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// What another region says reaches logs, status and terminals. So its texts are bounded and
// printable from here on: what only people read is made so, and what is compared (an id, a
// name, a digest) is refused if it is not.
const (
	maxText     = 512
	maxToken    = 256
	maxCopies   = 64
	maxPosition = 8 << 10
	maxHint     = 4 << 10   // of a mirror's refusal
	longestAsk  = time.Hour // that a peer may have somebody wait before the next try
)

func text(s string) string { return api.Printable(s, maxText) }

// tokens refuses the first of some values that no correct node sends; they are named in turn.
func tokens(named ...string) error {
	for i := 0; i < len(named); i += 2 {
		if s := named[i+1]; api.Printable(s, maxToken) != s {
			return badPeer(named[i], "it is too long, or not printable")
		}
	}
	return nil
}

// FromPeer is the error of a call to another region. One that did not come from there is
// given back as it is.
func FromPeer(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || errors.As(err, new(*api.Error)) {
		return err
	}
	e := PeerStatus(s.Proto())
	if api.CodeOf(e) == api.OutcomeUnknown {
		return &peerError{text(err.Error()), err}
	}
	return e
}

// peerError is an error of gRPC whose text is fit to show.
type peerError struct {
	said string
	err  error
}

func (e *peerError) Error() string { return e.said }
func (e *peerError) Unwrap() error { return e.err }

// PeerStatus is ErrorFromStatus of what another region says.
func PeerStatus(s *statuspb.Status) error {
	err := ErrorFromStatus(s)
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Code = api.Code(text(string(e.Code)))
	for _, s := range []*string{&e.Op, &e.Topic, &e.Region, &e.Field, &e.Value, &e.Hint,
		&e.Revision, &e.Reason, &e.Rule, &e.Drill, &e.Log.Tenant, &e.Log.Topic, &e.Log.Slot} {
		*s = text(*s)
	}
	if e.Err != nil {
		e.Err = errors.New(text(e.Err.Error()))
	}
	e.RetryAfter, e.For = min(max(e.RetryAfter, 0), longestAsk), max(e.For, 0)
	return e
}

// PeerAck is AckFromProto of what another region says: an ack holds nothing that is there for
// people only, so one with a text that no correct node sends is none.
func PeerAck(m *pb.Ack) (api.Ack, error) {
	a := AckFromProto(m)
	err := tokens("ack.id", a.ID, "ack.log", a.Log.Tenant, "ack.log", a.Log.Topic, "ack.log", a.Log.Slot, "ack.region", a.Region,
		"ack.incarnation", a.Incarnation, "ack.epoch", a.Epoch.Issuer, "ack.durability", string(a.Durability),
		"ack.policy_revision", a.PolicyRevision, "ack.drill", a.Drill)
	if len(a.Copies) > maxCopies {
		err = badPeer("ack.copies", "they are too many")
	}
	for _, region := range a.Copies[:min(len(a.Copies), maxCopies)] {
		err = cmp.Or(err, tokens("ack.copies", region))
	}
	if p := string(a.Position); api.Printable(p, maxPosition) != p {
		err = cmp.Or(err, badPeer("ack.position", "it is too long, or not printable"))
	}
	if err != nil {
		return api.Ack{}, err
	}
	return a, nil
}
