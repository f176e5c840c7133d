// Package link is the one wire between two regions: gRPC over mutual TLS, a control
// lane for heartbeats and watermarks and a data lane for forwarded and mirrored
// records, each on a connection of its own. Each side dials the other, and a link is
// up only while both directions are proven. A third lane is for the connections of the
// placement authority, which stand apart from that. Under all lanes lies a fault gate
// that can only take connectivity away.
package link

import (
	"context"
	"log/slog"
	"net"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// Config is what a mesh is made of. All fields but Witnesses, Policies, Dial, Tails, Fabrics, Refused, Pace and Boot are required.
type Config struct {
	Self  string              // this region
	Peers map[string][]string // region → host:port of its gateways' link listeners
	// Witnesses are peers with whom the council's lane is shared and nothing else.
	Witnesses map[string][]string
	Identity  *identity.Identity
	Listener  net.Listener // the mesh closes it; with CouncilOnly it may be nil: then the mesh only dials, and is not started
	// Dial opens a connection; nil: the system's.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Hello   func() regions.Hello // asked at each connect and after HelloChanged; Region and the wire versions are filled in
	Handler Handler
	Tails   Tails // nil: none are told, none are taken
	// Policies is where signed policies come from and go to; nil: nowhere.
	Policies Policies
	Clock    regions.Clock
	// Gates outlive the mesh; nil: it has its own, which count by Boot.
	Gates *Gates
	// Fabrics remembers whose fabric is whose; nil: nobody does, beyond the connections.
	Fabrics *Fabrics
	// Refused counts what peers say that is no correct node's; nil: nobody counts.
	Refused *regions.PeerRefusals
	Boot    regions.BootClock // nil: the system's
	Pace    regions.Pace
	Logger  *slog.Logger
	// CouncilOnly: this node speaks for the region's voter and for nothing else of it. The
	// mesh has no links, and refuses all lanes but the council's; it needs no Hello and no
	// Handler.
	CouncilOnly bool
	Hooks       Hooks
}

// Hooks change what a mesh does, from Go code only and for tests.
type Hooks struct {
	// Sending sees every message before it goes to a peer, and may add to it what a
	// later version would. Called from many goroutines.
	Sending func(m proto.Message)
	// Above stands between TLS and whatever speaks over it, once hands are shaken with a
	// peer: of both sides of every connection, on all lanes. It returns the connection or
	// one around it. Called from many goroutines.
	Above func(peer string, plane Plane, c net.Conn) net.Conn
}

// Handler is the node behind the mesh. Its methods are called from the mesh's own
// goroutines, for different peers at the same time.
type Handler interface {
	// Forwarded takes a record that a peer sent to its home. It must not block; done
	// is called exactly once, from any goroutine. ctx ends with the peer's stream.
	Forwarded(ctx context.Context, peer string, f regions.Forward, done func(api.Ack, error))
	// OpenMirror answers where this region's copy of a log ends. The sink is nil when
	// the reply is a refusal.
	OpenMirror(ctx context.Context, peer string, o regions.MirrorOpen) (MirrorSink, regions.MirrorReply)
	// Marks is this region's next watermark round for a peer; all asks for every log.
	// It is called once a second, never twice at the same time for one peer.
	Marks(peer string, all bool) regions.Watermarks
	// Watermarks takes a peer's complete round. Rounds of one peer come in order.
	Watermarks(peer string, w regions.Watermarks)
	// LinkChanged tells what has become of a link. Calls for one peer come in order;
	// states between two calls may be left out.
	LinkChanged(s regions.LinkStatus)
}

// Policies is the node's signed policy. Methods are called from the mesh's own goroutines,
// for different peers at the same time.
type Policies interface {
	// Kept is the exact bytes of the signed policy of this serial; nil: the region does not
	// have it. They are not changed.
	Kept(serial int64) []byte
	// Met is called when a peer's hello was accepted and nothing is open yet but the control
	// lane: records pass once it returns, which it does before ctx ends. fetch brings
	// the peer's signed policy.
	Met(ctx context.Context, peer string, h regions.Hello, fetch Fetch)
}

// Fetch brings the exact bytes of a peer's signed policy, 8 MiB at most. Nothing
// is verified.
type Fetch func(ctx context.Context, serial int64) ([]byte, error)

// MirrorSink is the target's end of one flow. One goroutine calls Apply, in order,
// and then Close. ctx ends with the link; an append that has begun by then may still be
// finished, within a bound of its own, after which Apply returns.
type MirrorSink interface {
	Apply(ctx context.Context, b regions.MirrorBatch) regions.MirrorReply
	Close()
}
