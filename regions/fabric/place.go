package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// What the broker refuses to make or change a stream with.
const (
	noPeersCode = 10005 // too few nodes that it has heard of since it was connected to them, or that have room
	noRoomCode  = 10047
	noStorage   = "insufficient storage" // in the text of noPeersCode: they lack room
)

// ErrNoPlace is of a new log that a region of three cannot place before it has heard of each
// of its nodes. It passes.
var ErrNoPlace = errors.New("no place for a new log")

// heardWithin is how long the broker may take to hear of a node that is up: nodes tell each
// other of themselves every ten seconds, at any pace.
const heardWithin = 12 * time.Second

// placeWithin is how long a refusal for want of nodes is not taken for an answer.
func (f *Fabric) placeWithin() time.Duration {
	if f.members == nil || len(f.members.absent()) > 0 {
		return f.cfg.Pace.Of(2 * time.Second)
	}
	return heardWithin
}

// brokerCode is the code of the broker's refusal; 0: err is none.
func brokerCode(err error) jetstream.ErrorCode {
	var e *jetstream.APIError
	if !errors.As(err, &e) {
		return 0
	}
	return e.ErrorCode
}

// refused turns the broker's refusal to make or change a log's stream into one that people
// can do something about.
func (f *Fabric) refused(ctx context.Context, id api.LogID, need int64, err error) error {
	switch code := brokerCode(err); {
	case code == noRoomCode || code == noPeersCode && strings.Contains(err.Error(), noStorage):
		r, err := f.Room(ctx)
		if err != nil {
			return err
		}
		return r.refusal(id.String(), need)
	case code == noPeersCode:
		return f.notPlaced(id, err)
	}
	return fmt.Errorf("change bounds of %s: %w", id, err)
}

// notPlaced: a new log has a replica on each node, and the broker takes none of which it has
// heard nothing since it was connected to it last.
func (f *Fabric) notPlaced(id api.LogID, err error) error {
	hint := "the region's nodes are connected anew and have not heard of each other yet, which takes up to ten seconds: try again"
	if f.members != nil {
		if absent := f.members.absent(); len(absent) > 0 {
			hint = fmt.Sprintf("a new log needs a place on each of the region's nodes, and of %s nothing was heard since the others connected: start it, or leave the log out of federation.yaml until it is back; logs that exist go on", strings.Join(absent, ", "))
		}
	}
	return &api.Error{Code: api.NotReady, Op: "make log", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(),
		RetryAfter: f.cfg.Pace.Of(5 * time.Second), Hint: hint, Err: fmt.Errorf("%w: %w", ErrNoPlace, err)}
}
