package door

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/regions"
	"domicile/regions/identity"
)

// Bounds of a door.
const (
	StreamRecords = 4_096   // records a client may have in flight on one stream
	StreamBytes   = 8 << 20 // and their bytes, as api.Record.Size counts them

	maxMessage           = 9 << 20 // what one message may hold: the credit, and framing
	maxCalls             = 2_048   // calls and streams open at once, over all connections
	streamsPerConnection = 256
	streamWindow         = 1 << 20
	connectionWindow     = 4 << 20

	flushWithin = time.Second // for the last messages, once every handler has returned
)

// Gateway is what the door opens to. *gateway.Gateway is one.
type Gateway interface {
	Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error))
	Read(ctx context.Context, q gateway.ReadRequest, who regions.Principal, send func(gateway.Batch) error) error
}

// Config is what a door works with. One door may serve producers and consumers,
// operators, or both.
type Config struct {
	Listener net.Listener
	// Identity makes the door demand client or operator certificates of the
	// federation. nil is development: plain text, on a loopback address only, and
	// every caller is the principal dev, of class DevClass and with this region as
	// its place.
	Identity *identity.Identity
	Rules    []PrincipalRule
	DevClass string

	Region     string
	Federation *regions.Federation
	Gateway    Gateway                    // nil: no producers and consumers here
	Admin      pb.AdminServiceServer      // nil: no operators here
	Placement  pb.PlacementServiceServer  // with Admin
	Failover   pb.FailoverServiceServer   // with Admin
	Divergence pb.DivergenceServiceServer // with Admin
	Drill      pb.DrillServiceServer      // with Admin
	// Quotas are the node's, if more than this door counts by them; nil: the door's own.
	Quotas *Quotas
	// Refused is told of each record that a quota refused; topic is "" for a name that is
	// not in the manifest. nil: nobody is. It must not block.
	Refused func(topic string, code api.Code)
	Clock   regions.Clock
	Logger  *slog.Logger
}

// Server is an open door.
type Server struct {
	config   Config
	grpc     *grpc.Server
	health   *health.Server
	dev      *caller
	calls    atomic.Int64    // open now
	left     chan struct{}   // the last call has left while the door closes
	draining context.Context // ends when Close begins
	drain    context.CancelFunc
	workers  sync.WaitGroup // Serve, and the work of streams
}

// New checks the configuration. Nothing is served before Start.
func New(c Config) (*Server, error) {
	s := &Server{config: c, health: health.NewServer(), left: make(chan struct{}, 1)}
	s.draining, s.drain = context.WithCancel(context.Background())
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(wire.Codec()), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(streamsPerConnection),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow), grpc.ConnectionTimeout(10 * time.Second),
		// A client that vanished without a word gives its streams back within a minute.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if c.Identity == nil {
		if err := s.checkDev(); err != nil {
			return nil, err
		}
		s.dev = &caller{anything: true, Principal: regions.Principal{Name: "dev", Kind: client, Class: c.DevClass, Place: c.Region}}
	} else {
		if err := CheckRules(c.Rules, c.Federation); err != nil {
			return nil, err
		}
		options = append(options, grpc.Creds(&handshakes{clock: c.Clock, logger: c.Logger,
			TransportCredentials: credentials.NewTLS(c.Identity.ServerTLS(identity.Client, identity.Operator))}))
	}
	s.grpc = grpc.NewServer(options...)
	s.config.Listener = &crowd{Listener: c.Listener, most: maxConnections, full: s.crowded()}
	if c.Gateway != nil {
		quotas := c.Quotas
		if quotas == nil {
			quotas = NewQuotas(c.Federation, c.Rules, c.Clock)
		}
		s.config.Gateway = &metered{Gateway: c.Gateway, quotas: quotas, refused: c.Refused}
		pb.RegisterPublisherServiceServer(s.grpc, &publisher{server: s})
		pb.RegisterReaderServiceServer(s.grpc, &reader{server: s})
	}
	if c.Admin != nil {
		pb.RegisterAdminServiceServer(s.grpc, c.Admin)
	}
	if c.Placement != nil {
		pb.RegisterPlacementServiceServer(s.grpc, c.Placement)
	}
	if c.Failover != nil {
		pb.RegisterFailoverServiceServer(s.grpc, c.Failover)
	}
	if c.Divergence != nil {
		pb.RegisterDivergenceServiceServer(s.grpc, c.Divergence)
	}
	if c.Drill != nil {
		pb.RegisterDrillServiceServer(s.grpc, c.Drill)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.SetServing(false)
	return s, nil
}

// crowded logs a connection that was turned away, once in ten seconds.
func (s *Server) crowded() func() {
	const every = 10 * time.Second
	var last atomic.Int64
	return func() {
		now := s.config.Clock.Now().UnixNano()
		if before := last.Load(); (before == 0 || now-before > int64(every)) && last.CompareAndSwap(before, now) {
			s.config.Logger.Warn("connections are turned away: too many are open at this door", "most", maxConnections)
		}
	}
}

func (s *Server) checkDev() error {
	addr, ok := s.config.Listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		return &api.Error{Code: api.ConfigInvalid, Op: "open door", Field: "door", Value: s.config.Listener.Addr().String(),
			Hint: "without certificates the door opens on a loopback address only, such as 127.0.0.1"}
	}
	if s.config.DevClass == "" {
		return &api.Error{Code: api.ConfigInvalid, Op: "open door", Field: "dev_class", Hint: "name the class of the principal dev"}
	}
	return nil
}

// Start serves in the background until Close.
func (s *Server) Start() {
	s.workers.Go(func() {
		if err := s.grpc.Serve(s.config.Listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.config.Logger.Error("the door stopped", "err", err)
		}
	})
	s.SetServing(true)
}

// SetServing says what the gRPC health service answers. Start and Close call it.
func (s *Server) SetServing(on bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if on {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// Addr is where the door listens.
func (s *Server) Addr() net.Addr { return s.config.Listener.Addr() }

// Close takes no new records, delivers the outcomes of those in flight, ends every
// stream with ShuttingDown and stops. A client that does not read what is sent to it
// is cut off a second after everything else is done. When ctx ends first Close cuts
// all connections; their clients count what is open as unknown.
func (s *Server) Close(ctx context.Context) error {
	s.drain()
	s.health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	if s.calls.Load() == 0 {
		s.allLeft()
	}
	err := s.await(ctx, stopped)
	_ = s.config.Listener.Close() // still open only if it was never served
	s.workers.Wait()
	return err
}

// await waits for the graceful stop, and stops less gracefully when it has to.
func (s *Server) await(ctx context.Context, stopped <-chan struct{}) error {
	var flushed <-chan time.Time
	for {
		select {
		case <-stopped:
			return nil
		case <-s.left:
			flushed = time.After(flushWithin)
		case <-flushed:
			s.grpc.Stop()
			<-stopped
			return nil
		case <-ctx.Done():
			s.grpc.Stop()
			<-stopped
			return ctx.Err()
		}
	}
}

// enter counts a call in, if there is room.
func (s *Server) enter() error {
	if s.calls.Add(1) <= maxCalls {
		return nil
	}
	s.leave()
	return &api.Error{Code: api.Overloaded, Op: "open call", Hint: "too many calls are open at this node; close some, or use another address of the region"}
}

func (s *Server) leave() {
	if s.calls.Add(-1) == 0 && s.draining.Err() != nil {
		s.allLeft()
	}
}

func (s *Server) allLeft() {
	select {
	case s.left <- struct{}{}:
	default:
	}
}

func errShuttingDown(op string) error {
	return &api.Error{Code: api.ShuttingDown, Op: op, Hint: "this node is stopping; go on at another address of the region, or here in a moment"}
}
