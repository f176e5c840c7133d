package node

import (
	"context"
	"log/slog"
	"net"

	"domicile/api"
	"domicile/gateway/nft"
	"domicile/mirror"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Seams are where a node touches time and the network. The zero value is the real
// world; tests and the demo hand in their own.
type Seams struct {
	Clock  regions.Clock
	Boot   regions.BootClock
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// PacketFilter is the host's program nft.
	PacketFilter nft.Program
	Pace         regions.Pace
	Logger       *slog.Logger
	// Identity is the node's certificate; nil: the files of Config.TLS.
	Identity *identity.Identity
	// Dev serves door and admin without certificates, on loopback only: every caller
	// is the principal dev, placed in this region.
	Dev bool
	// FollowPolicies loads a changed policy directory unasked. For the demo: anywhere
	// else activation is somebody's decision.
	FollowPolicies bool
	// Policies is shared by the nodes of one process, which then ask the rules of one
	// directory once; nil: the node loads for itself.
	Policies *opa.Shared
	// Rejoin lets a node of a quorum region take part although its disk lacks what it once
	// had; its siblings fill it, see fabric.Cluster.
	Rejoin bool
	// Version is what the node calls itself in hello and status.
	Version string
	Hooks   Hooks
}

// Hooks break one mechanism each from Go code, so that a check can be seen to fail.
type Hooks struct {
	Fabric fabric.Hooks
	Policy policy.Hooks
	Mirror mirror.SourceHooks
	Link   link.Hooks
	// Move keeps an act of a log's move from being done as long as it fails, see mover.Config.
	Move func(log api.LogID, act string) error
	// Seat stands between the fabric's word on the seat and the node; nil: nothing does.
	Seat func(real Seats) Seats
}

// Seats says who holds the region's seat, and closes the channel when that has changed.
// (*fabric.Fabric).Seat is one.
type Seats func() (fabric.Seat, <-chan struct{})

func (s *Seams) complete(c Config) {
	if s.Clock == nil {
		s.Clock = regions.NewSteadyClock()
	}
	if s.Boot == nil {
		s.Boot = regions.SystemBootClock
	}
	if s.Dial == nil {
		s.Dial = (&net.Dialer{}).DialContext
	}
	if s.Listen == nil {
		s.Listen = (&net.ListenConfig{}).Listen
	}
	if s.Logger == nil {
		s.Logger = c.Log.Logger()
	}
	if s.Version == "" {
		s.Version = "dev"
	}
}
