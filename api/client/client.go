package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// DefaultPatience bounds what is done under a context without a deadline.
const DefaultPatience = 30 * time.Second

// Config says where a region is and how to speak to it.
type Config struct {
	Addresses []string // host:port of doors of one region; one that answers is used
	// TLS holds the client certificate and how to check the other side, for example
	// identity.Identity.ClientTLS. nil: plain text, which only a development door on
	// this machine accepts. A certificate that GetClientCertificate gives anew is used once
	// the one before has ended: at most one call is refused for it.
	TLS *tls.Config
	// Attempts is how often a record is sent at most; 0: again until the context's
	// deadline, or DefaultPatience without one.
	Attempts int
	// Dial replaces the network, for tests. nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Client speaks to one region. It is safe for concurrent use.
type Client struct {
	config Config
	conn   *grpc.ClientConn
	pub    pb.PublisherServiceClient
}

const (
	scheme         = "domicile"
	maxAnswer      = 16 << 20
	attemptTimeout = 15 * time.Second // one try; the door's own deadlines are shorter
)

// New checks the configuration. It does not connect: the first call does.
func New(c Config) (*Client, error) {
	if len(c.Addresses) == 0 {
		return nil, &api.Error{Code: api.BadRequest, Op: "open client", Field: "addresses", Hint: "give at least one host:port"}
	}
	builder := manual.NewBuilderWithScheme(scheme)
	state := resolver.State{}
	for _, a := range c.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, &api.Error{Code: api.BadRequest, Op: "open client", Field: "addresses", Value: a, Hint: "write host:port"}
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	builder.InitialState(state)
	creds := insecure.NewCredentials()
	if c.TLS != nil {
		creds = credentials.NewTLS(c.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithResolvers(builder), grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		// A door that went silent is given up, and another address tried.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: spread + 2*time.Second,
			Backoff: grpcbackoff.Config{BaseDelay: pauseBetween, Multiplier: 1, Jitter: 0.2, MaxDelay: pauseBetween}}),
	}
	dial := c.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	r := &redialer{dial: dial, shown: c.shown, open: map[*doorConn]bool{}}
	options = append(options, grpc.WithContextDialer(r.connect), grpc.WithUnaryInterceptor(r.unary), grpc.WithStreamInterceptor(r.stream))
	conn, err := grpc.NewClient(scheme+":///region", options...)
	if err != nil {
		return nil, &api.Error{Code: api.BadRequest, Op: "open client", Err: err}
	}
	return &Client{config: c, conn: conn, pub: pb.NewPublisherServiceClient(conn)}, nil
}

// Close closes the connection. Close publishers first.
func (c *Client) Close() error { return c.conn.Close() }

// Publish publishes one record and waits for its outcome. A record without an id
// gets one, also in r. Refusals that pass are tried again with the same id. If
// nobody can say whether the record is stored the error's code is OutcomeUnknown, and
// r.Retry says what is known: publish it again, as it is.
func (c *Client) Publish(ctx context.Context, r *api.Record) (api.Ack, error) {
	if err := prepare(r); err != nil {
		return api.Ack{}, err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	request := &pb.PublishRequest{Record: wire.RecordToProto(r)}
	t := trial{retry: r.Retry}
	for {
		request.Retry = wire.RetryToProto(t.retry)
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
		response, err := c.pub.Publish(attempt, request)
		done()
		if err == nil {
			return wire.AckFromProto(response.GetAck()), nil
		}
		pause, again := t.failed(wire.ErrorFromGRPC(err), c.config.Attempts)
		if !again || !sleep(ctx, pause) {
			if t.retry.Again {
				r.Retry = t.retry
			}
			return api.Ack{}, t.verdict()
		}
	}
}

// prepare refuses what the door would refuse, and gives the record its id.
func prepare(r *api.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	if !wire.TimeFits(r.EventTime) {
		return &api.Error{Code: api.BadRequest, Op: "check record", Field: "event_time", Hint: "any time from 1678 to 2261 but the first instant of 1970, which stands for none"}
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	return nil
}

func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultPatience)
}
