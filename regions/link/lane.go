package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/identity"
)

const (
	maxMessage = 8 << 20  // bytes: a batch of at most 2 MiB that ends in one record of 1 MiB, and room
	httpWindow = 16 << 20 // bytes, static: estimated windows take seconds to open on a long path
	// What gRPC collects before it writes: a record that waits behind it waits for all
	// of it, and on a slow line these are seconds.
	writeBuffer = 4 << 10
	sniSuffix   = ".link.domicile"
)

// serverName tells the accepting side, in the first TLS message, which lane this is
// and who says so, so that its gate can hold the handshake too. The certificate that
// follows must carry the same region.
func serverName(plane Plane, self string) string { return string(plane) + "." + self + sniSuffix }

func parseServerName(name string) (Plane, string, bool) {
	rest, ok := strings.CutSuffix(name, sniSuffix)
	plane, region, ok2 := strings.Cut(rest, ".")
	p := Plane(plane)
	return p, region, ok && ok2 && slices.Contains(Planes(), p)
}

// lane is one dialed connection of a session: TLS done by us, gRPC on top of it.
// gRPC never dials by itself; a lane that breaks takes its session with it.
type lane struct {
	raw    *gatedConn
	state  tls.ConnectionState
	cc     *grpc.ClientConn
	client pb.PeerServiceClient
	broke  *causeConn
	hello  regions.Hello // of the peer, that answered ours
}

// shake dials and shakes hands. A dial that gets no answer is given up soon, since it may
// be the path that is gone; a handshake on a slow line takes longer.
func (p *peerLink) shake(ctx context.Context, plane Plane, address string) (*gatedConn, *tls.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, p.mesh.cfg.Pace.Of(dialTimeout))
	defer cancel()
	raw, err := dialGated(dialCtx, p.mesh.dial, p.mesh.gates, p.mesh.cfg.Clock, p.name, plane, address)
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", address, plain(err))
	}
	if plane == Data {
		raw.pacer = newPacer(p.mesh.cfg.Clock)
	}
	cfg := p.mesh.cfg.Identity.ClientTLS(identity.Region, p.name)
	cfg.ServerName = serverName(plane, p.mesh.cfg.Self)
	if protocol, _ := plane.stream(); protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	conn := tls.Client(raw, cfg)
	shakeCtx, cancelShake := context.WithTimeout(ctx, p.mesh.cfg.Pace.Of(acceptTimeout))
	defer cancelShake()
	if err := conn.HandshakeContext(shakeCtx); err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("handshake with %s: %w", address, explainTLS(err))
	}
	return raw, conn, nil
}

// openLane dials, shakes hands and puts gRPC on top.
func (p *peerLink) openLane(ctx context.Context, plane Plane) (*lane, error) {
	raw, conn, err := p.shake(ctx, plane, p.address)
	if err != nil {
		return nil, err
	}
	l := &lane{raw: raw, state: conn.ConnectionState(), broke: &causeConn{Conn: p.mesh.cfg.Hooks.above(p.name, plane, conn)}}
	var used atomic.Bool
	l.cc, err = grpc.NewClient("passthrough:///"+p.name, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is done, below
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the session is over")
			}
			return l.broke, nil
		}),
		grpc.WithInitialWindowSize(httpWindow), grpc.WithInitialConnWindowSize(httpWindow), grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec()), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
	}, p.mesh.calls...)...)
	if err != nil {
		raw.Close()
		return nil, err
	}
	l.client = pb.NewPeerServiceClient(l.cc)
	return l, nil
}

// close ends the lane at once: the socket first, since TLS would wait to say goodbye
// through a black hole.
func (l *lane) close() {
	l.raw.Close()
	l.cc.Close()
}

// why prefers what broke the connection to what gRPC made of it.
func (l *lane) why(err error) error {
	if cause := l.broke.cause.Load(); cause != nil {
		return explainTLS(*cause)
	}
	return err
}

// heard is when something was last read.
func (l *lane) heard(now time.Time) time.Time {
	if last := l.raw.lastRead.Load(); last != 0 {
		return time.Unix(0, last)
	}
	return now
}

// causeConn remembers the first read error: with TLS 1.3 a refused certificate shows
// up only there, after the handshake.
type causeConn struct {
	net.Conn
	cause atomic.Pointer[error]
}

func (c *causeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.cause.CompareAndSwap(nil, &err)
	}
	return n, err
}

// explainTLS turns the alerts of TLS into what has to be done about them.
func explainTLS(err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours
	}
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &record):
		return &api.Error{Code: api.PermissionDenied, Op: "link handshake", Field: "tls", Err: err, Hint: "the other side does not speak TLS: is this the link port of a region?"}
	case errors.As(err, &alert), errors.As(err, &op) && op.Op == "remote error":
		return &api.Error{Code: api.PermissionDenied, Op: "link handshake", Field: "certificate", Err: err,
			Hint: "the peer refused our certificate or name; its log says why: check authority, kind, region and dates"}
	}
	return plain(err)
}

// plain takes the ports out of an error of a socket, and tells an end in no two ways:
// one cause should read the same at each attempt.
func plain(err error) error {
	var ours *api.Error
	if errors.As(err, &ours) { // it says what it is already
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return errClosedByPeer
	}
	return err
}

// laneInfo is who opened an accepted connection, verified.
type laneInfo struct {
	credentials.CommonAuthInfo
	peer  identity.Peer
	plane Plane
	conn  *gatedConn
}

func (laneInfo) AuthType() string { return "domicile-link" }

// laneCredentials is the accepting side's handshake: region certificates only, and
// only of regions that have a link with this one.
type laneCredentials struct{ mesh *Mesh }

func (c laneCredentials) ServerHandshake(rawConn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw := rawConn.(*gatedConn)
	var caller identity.Peer
	conn := tls.Server(raw, c.config(raw, &caller))
	err := conn.Handshake() // bounded by the deadline that gRPC has set
	_, plane := raw.who()
	stream := c.mesh.accepting[plane]
	var above net.Conn
	if err == nil {
		state := conn.ConnectionState()
		raw.state.Store(&state)
		above = c.mesh.cfg.Hooks.above(caller.Name.Name, plane, conn)
		if stream != nil {
			raw.dispatch()
			err = stream.take(above, raw, caller.Name.Name)
		}
	}
	if err != nil {
		c.mesh.refusals.Log(c.mesh.cfg.Logger, "link", c.mesh.cfg.Clock.Now(), raw.RemoteAddr(), explainServerTLS(err))
		return nil, nil, err
	}
	if stream != nil {
		return nil, nil, credentials.ErrConnDispatched
	}
	return above, laneInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		peer:           caller, plane: plane, conn: raw,
	}, nil
}

// config is the accepting side's, for one connection. It names the connection by the first
// message and sets caller once the certificate is verified, which must carry the region
// that this message named.
func (c laneCredentials) config(raw *gatedConn, caller *identity.Peer) *tls.Config {
	cfg := c.mesh.cfg.Identity.ServerTLS(identity.Region)
	cfg.VerifyConnection = func(s tls.ConnectionState) (err error) {
		region, _ := raw.who()
		*caller, err = c.mesh.cfg.Identity.Verify(s, region, identity.Region)
		return err
	}
	plain := cfg.Clone()
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		plane, region, ok := parseServerName(hello.ServerName)
		if !ok {
			return nil, &api.Error{Code: api.PermissionDenied, Op: "link handshake", Field: "server_name", Hint: "this port is for links between regions"}
		}
		p, known := c.mesh.peers[region]
		if !known {
			return nil, &api.Error{Code: api.UnknownRegion, Op: "link handshake", Field: "region", Hint: "the manifest has no link between it and this region"}
		}
		raw.identify(region, plane)
		switch stream := c.mesh.accepting[plane]; {
		case plane != Council && c.mesh.cfg.CouncilOnly:
			return nil, errNoSeat
		case plane != Council && p.witness:
			return nil, errNoLink
		case stream == nil:
			return nil, nil
		case !stream.accepts():
			return nil, errNoVoter
		}
		protocol, _ := plane.stream()
		plain.NextProtos = []string{protocol}
		return plain, nil
	}
	return cfg
}

func explainServerTLS(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return &api.Error{Code: api.PermissionDenied, Op: "link handshake", Field: "tls", Err: err, Hint: "the caller does not speak TLS"}
	}
	return err
}

// ClientHandshake is never used: lanes shake hands before gRPC sees them.
func (c laneCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials accept only")
}

func (c laneCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (c laneCredentials) Clone() credentials.TransportCredentials { return c }
func (c laneCredentials) OverrideServerName(string) error         { return nil }
