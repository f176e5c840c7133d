package intruder_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// boot and fabric are what the liar calls its run and its store, unless it lies about them.
const (
	boot   = "boot-of-us-east"
	fabric = "fabric-of-us-east"
)

// liar is the third region. It speaks the links' own wire in both directions, and says on it
// what an honest region would, until a lie puts something else into its mouth.
type liar struct {
	world       *world
	identity    *identity.Identity
	certificate []byte // of the identity, DER
	key         crypto.Signer
	address     string
	listener    net.Listener // until it is up first
	mesh        *link.Mesh
	gossip      *link.StreamLane
	council     *link.StreamLane
	work        sync.WaitGroup

	mu      sync.Mutex
	script  script
	cursors map[api.LogID]regions.Cursor // of the copies that it says it keeps
	stored  atomic.Uint64                // forwarded records that it says it has stored
}

// script is what a lie changes. The zero script is honest.
type script struct {
	hello func(*pb.PeerHello)
	sent  func(proto.Message)           // every message
	marks map[string]regions.Watermarks // by peer; said once
	tails map[string]regions.TailList   // by peer; said once
	reply func(*regions.MirrorReply)
	ack   func(*api.Ack)
	kept  []byte                       // the signed policy that it hands out
	chair func(c net.Conn, who string) // how it answers as a voter; nil: it has none
	chat  func(c net.Conn, who string) // how it answers what others begin to gossip
	said  chan struct{}                // gets one when what is said once was said
}

// up has the liar listen and dial.
func (l *liar) up() (err error) {
	at := l.listener
	if l.listener = nil; at == nil {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if at, err = listen(ctx, l.address); err != nil {
			return err
		}
	}
	peers := map[string][]string{}
	for name, r := range l.world.regions {
		peers[name] = []string{r.listen.Link}
	}
	l.mu.Lock()
	l.script, l.cursors = script{}, map[api.LogID]regions.Cursor{}
	l.mu.Unlock()
	l.mesh, err = link.New(link.Config{Self: traitor, Peers: peers, Identity: l.identity, Listener: at, Hello: l.hello, Handler: l, Tails: l, Policies: l,
		Clock: regions.NewSteadyClock(), Pace: pace, Logger: slog.New(slog.DiscardHandler), Hooks: link.Hooks{Sending: l.sending}})
	if err != nil {
		return errors.Join(err, at.Close())
	}
	l.mesh.Start(context.Background())
	l.gossip, l.council = l.mesh.Gossip(), l.mesh.Council()
	l.work.Go(func() { l.answer(l.gossip, func(s *script) func(net.Conn, string) { return s.chat }) })
	l.work.Go(func() { l.answer(l.council, func(s *script) func(net.Conn, string) { return s.chair }) })
	return nil
}

// down ends what up began.
func (l *liar) down() {
	if l.listener != nil {
		_ = l.listener.Close()
	}
	if l.mesh == nil {
		return
	}
	_, _ = l.gossip.Close(), l.council.Close() // they only end Accept
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.mesh.Close(ctx) // what is still under way is nobody's loss
	l.work.Wait()
	l.mesh = nil
}

// answer takes the connections of a lane.
func (l *liar) answer(lane *link.StreamLane, how func(*script) func(net.Conn, string)) {
	for {
		c, who, err := lane.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		say := how(&l.script)
		l.mu.Unlock()
		l.work.Go(func() {
			defer c.Close()
			if say != nil {
				_ = c.SetDeadline(time.Now().Add(2 * time.Second))
				say(c, who)
			}
		})
	}
}

// linked says whether an honest region believes the liar that it is one of the federation.
func (l *liar) linked(name string) error {
	if s, _ := l.mesh.Status(name); !s.Up {
		return fmt.Errorf("the liar's link with %s is not up: %s", name, s.Reason)
	}
	return nil
}

// now changes the script.
func (l *liar) now(change func(*script)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.script)
}

// theirs is what an honest region said of itself last.
func (l *liar) theirs(name string) regions.Hello {
	if s, _ := l.mesh.Status(name); s.Hello != nil {
		return *s.Hello
	}
	return regions.Hello{}
}

func (l *liar) hello() regions.Hello {
	f := l.world.federation.Snapshot()
	h := regions.Hello{Federation: f.Name(), Region: traitor, FabricID: fabric, BootID: boot, Version: "test", WireVersion: regions.WireVersion, OldestWire: regions.OldestWireVersion,
		ManifestDigest: f.Digest(), TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{}}
	for _, name := range f.Topics() {
		t, _ := f.Topic(name)
		h.TopicDigests[name], h.TopicFields[name] = f.TopicDigest(name), t.Fields()
	}
	if l.mesh != nil {
		theirs := l.theirs(west)
		h.PolicySerial, h.PolicyRevision = theirs.PolicySerial, theirs.PolicyRevision
	}
	return h
}

// sending puts the lie into every hello.
func (l *liar) sending(m proto.Message) {
	l.mu.Lock()
	lie, sent := l.script.hello, l.script.sent
	l.mu.Unlock()
	if sent != nil {
		sent(m)
	}
	if lie == nil {
		return
	}
	switch m := m.(type) {
	case *pb.HelloRequest:
		lie(m.GetHello())
	case *pb.HelloResponse:
		lie(m.GetHello())
	case *pb.ControlRequest:
		if h := m.GetHello(); h != nil {
			lie(h)
		}
	}
}

// Forwarded says that it has stored the record.
func (l *liar) Forwarded(_ context.Context, _ string, f regions.Forward, done func(api.Ack, error)) {
	a := api.Ack{ID: f.Record.ID, Log: f.Log, Region: traitor, Epoch: api.StaticEpoch(traitor), Incarnation: "own", WriterTerm: 1,
		Sequence: l.stored.Add(1), IngestTime: time.Now(), Durability: "disk-1", PolicyRevision: f.Revision}
	l.mu.Lock()
	lie := l.script.ack
	l.mu.Unlock()
	if lie != nil {
		lie(&a)
	}
	done(a, nil)
}

// OpenMirror says how much of a log it has a copy of.
func (l *liar) OpenMirror(_ context.Context, _ string, o regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cursors[o.Log]
	if c.Incarnation != o.Incarnation {
		c = regions.Cursor{}
		l.cursors[o.Log] = c
	}
	return &sink{l, o}, l.replied(c)
}

// replied is the answer that says where a copy ends. l.mu is held.
func (l *liar) replied(c regions.Cursor) regions.MirrorReply {
	r := regions.MirrorReply{Cursor: c}
	if l.script.reply != nil {
		l.script.reply(&r)
	}
	return r
}

// sink keeps nothing and counts it.
type sink struct {
	liar *liar
	open regions.MirrorOpen
}

// Apply says that a batch is on the disk.
func (s *sink) Apply(_ context.Context, b regions.MirrorBatch) regions.MirrorReply {
	l := s.liar
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cursors[s.open.Log]
	for i := range b.Items {
		it := &b.Items[i]
		c.Ledger.Add(it)
		c.Incarnation, c.Epoch, c.Sequence, c.Time = b.Incarnation, it.Epoch, it.Sequence, it.Time
	}
	l.cursors[s.open.Log] = c
	return l.replied(c)
}

// Refuse says where the copy ends.
func (s *sink) Refuse(error) regions.MirrorReply {
	s.liar.mu.Lock()
	defer s.liar.mu.Unlock()
	return s.liar.replied(s.liar.cursors[s.open.Log])
}

// Close ends the flow.
func (s *sink) Close() {}

// Marks says what became of its own logs: nothing.
func (l *liar) Marks(peer string, all bool) regions.Watermarks {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w, ok := l.script.marks[peer]; ok {
		delete(l.script.marks, peer)
		tell(l.script.said)
		return w
	}
	return regions.Watermarks{Issued: time.Now(), All: all}
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Watermarks are of no use to it.
func (l *liar) Watermarks(string, regions.Watermarks) {}

// LinkChanged is of no use to it.
func (l *liar) LinkChanged(regions.LinkStatus) {}

// TellTail says what a peer lacks of its own logs: nothing.
func (l *liar) TellTail(ctx context.Context, peer string, _ int, send func(context.Context, regions.TailList) error) {
	l.mu.Lock()
	list, ok := l.script.tails[peer]
	delete(l.script.tails, peer)
	said := l.script.said
	l.mu.Unlock()
	if ok {
		_ = send(ctx, list) // it ends with the link
		tell(said)
	}
}

// HearTail is of no use to it.
func (l *liar) HearTail(string, regions.TailList) {}

// Kept is the signed policy that it hands out.
func (l *liar) Kept(int64) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.script.kept
}

// Met fetches nothing.
func (l *liar) Met(context.Context, string, regions.Hello, link.Fetch) {}

// shake opens a connection to an honest region's link port under the genuine certificate.
func (l *liar) shake(ctx context.Context, victim, server string, protocols ...string) (*tls.Conn, error) {
	raw, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", l.world.regions[victim].listen.Link)
	if err != nil {
		return nil, err
	}
	cfg := l.identity.ClientTLS(identity.Region, victim)
	cfg.ServerName, cfg.NextProtos = server, protocols
	c := tls.Client(raw, cfg)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

func server(plane link.Plane, region string) string {
	return string(plane) + "." + region + ".link.domicile"
}

// lane is a connection of the liar's own, beside those of its mesh. A hello that is accepted
// there ends the mesh's, which dials anew.
type lane struct {
	conn   *grpc.ClientConn
	client pb.PeerServiceClient
}

func (l *liar) lane(ctx context.Context, victim string, plane link.Plane) (*lane, error) {
	c, err := l.shake(ctx, victim, server(plane, traitor), "h2")
	if err != nil {
		return nil, err
	}
	var used atomic.Bool
	cc, err := grpc.NewClient("passthrough:///"+victim, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, net.ErrClosed
			}
			return c, nil
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &lane{cc, pb.NewPeerServiceClient(cc)}, nil
}

// greet says an honest hello on the lane.
func (l *liar) greet(ctx context.Context, a *lane) error {
	h := l.hello()
	h.TakesTails = true
	_, err := a.client.Hello(ctx, &pb.HelloRequest{Hello: wire.HelloToProto(h)})
	return err
}

func (a *lane) close() { _ = a.conn.Close() }

// bytesCodec sends messages as they are.
type bytesCodec struct{}

// Marshal gives the bytes.
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal keeps them.
func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// Name is that of the codec which the other side has.
func (bytesCodec) Name() string { return "proto" }

// stream opens a call on which messages are bytes.
func (a *lane) stream(ctx context.Context, method string) (grpc.ClientStream, error) {
	return a.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(bytesCodec{}))
}

// flow opens a mirror flow of a log that the liar says is its own, and says batches on it, each
// behind the last. It answers what the target said last.
func (l *liar) flow(ctx context.Context, victim string, o regions.MirrorOpen, batches ...regions.MirrorBatch) (first, last regions.MirrorReply, err error) {
	s, err := l.mesh.OpenMirror(ctx, victim, o)
	if err != nil {
		return first, last, err
	}
	defer s.Close()
	if first, err = s.Recv(ctx); err != nil || first.Refused != "" {
		return first, first, err
	}
	last = first
	for _, b := range batches {
		for i := range b.Items { // sequences are from the copy's end on
			it := &b.Items[i]
			it.Sequence += first.Cursor.Sequence
			if g := it.Gap; g != nil {
				moved := *g
				moved.From, moved.To = g.From+first.Cursor.Sequence, g.To+first.Cursor.Sequence
				it.Gap = &moved
			}
		}
		if err := s.Send(ctx, b); err != nil {
			return first, last, err
		}
		if last, err = s.Recv(ctx); err != nil {
			return first, last, err
		}
	}
	return first, last, nil
}

// link waits until both honest regions take the liar for one of the federation, or one of them.
func (l *liar) link(ctx context.Context, names ...string) error {
	return lab.Poll(ctx, soon, func() error {
		var errs []error
		for _, name := range names {
			errs = append(errs, l.linked(name))
		}
		return errors.Join(errs...)
	})
}

// incarnations is what the liar calls its logs.
func incarnationOf(topic string) string { return "own" + topic }

// clone is a hello's topics, to be lied about.
func clone[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}
