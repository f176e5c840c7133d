package mirror_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/mirror"
	"domicile/regions"
	"domicile/regions/syncset"
	"domicile/regions/tail"
)

const manifest = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  us-east: {link: "127.0.0.1:2"}
boundaries: {eu: [eu-west], us: [us-east]}
topics:
  orders:
    writes: local
    mirror: [all]
    batch: {records: 16, bytes: 65536, linger: 5ms}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`

var (
	start  = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	orders = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
)

// book is a policy in miniature: a record may go where the map lets it rest. Its
// serial can be raised, and denials added, while flows run.
type book struct {
	entered atomic.Pointer[string] // where the last record that was judged on arrival came from
	fed     *regions.Federation
	now     atomic.Pointer[edition]

	mu     sync.Mutex
	passes map[*edition]int
}

type edition struct {
	serial    int64
	floor     int64
	revision  string
	none      bool
	unknown   bool   // the topic is not in its catalog
	forbidden string // residency that may not rest anywhere, though the map allows it
	lawless   string // residency that may not lie where records come from
}

func newBook(fed *regions.Federation) *book {
	b := &book{fed: fed, passes: map[*edition]int{}}
	b.now.Store(&edition{serial: 1, revision: "1-a"})
	return b
}

func (b *book) Enter() mirror.Pass {
	p := &pass{book: b, edition: b.now.Load()}
	b.count(p.edition, 1)
	return p
}

func (b *book) count(e *edition, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passes[e] += n
}

// out is how many passes of an edition have not left.
func (b *book) out(e *edition) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passes[e]
}

type pass struct {
	book *book
	*edition
	left sync.Once
}

func (p *pass) Leave()           { p.left.Do(func() { p.book.count(p.edition, -1) }) }
func (p *pass) Stale() bool      { return p.book.now.Load() != p.edition }
func (p *pass) Serial() int64    { return p.serial }
func (p *pass) Revision() string { return p.revision }

func (p *pass) Behind(serial int64, _ string) bool { return p.serial < serial }
func (p *pass) TooOld(serial int64) bool           { return serial < p.floor }

func (p *pass) Egress(r *api.Record, _, target string) error { return p.ask(r, target) }
func (p *pass) Ingress(r *api.Record, from, target string) error {
	p.book.entered.Store(&from)
	return p.ask(r, target)
}

func (p *pass) Lawful(r *api.Record, _ string) bool {
	return p.lawless == "" || r.Tag(regions.ResidencyTag) != p.lawless
}

func (p *pass) ask(r *api.Record, target string) error {
	residency := r.Tag(regions.ResidencyTag)
	switch {
	case p.none:
		return &api.Error{Code: api.PolicyUnavailable}
	case p.unknown:
		return &api.Error{Code: api.UnknownTopic}
	case residency == p.forbidden, !p.book.fed.MayRest(residency, target):
		return &api.Error{Code: api.ResidencyDenied, Revision: p.revision}
	}
	return nil
}

// wire is the link between the two regions: it can be cut, and lose replies.
type wire struct {
	mu       sync.Mutex
	up       bool
	since    time.Time
	heard    time.Time
	offset   time.Duration
	hello    *regions.Hello
	target   *mirror.Target
	streams  map[*pipe]bool
	opens    atomic.Int64
	batches  atomic.Int64
	lose     atomic.Bool // replies of applied batches
	hold     atomic.Bool // batches are taken and never applied
	slow     atomic.Bool // the line says that it still carries what was sent
	inflight atomic.Int64
	most     atomic.Int64 // bytes in flight at most
	flying   atomic.Int64 // batches in flight
	crowd    atomic.Int64 // batches in flight at most
	dry      atomic.Bool  // a Send waits for credits
	dried    atomic.Int64 // Sends that have waited so
}

func (w *wire) status(peer string) (regions.LinkStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return regions.LinkStatus{Peer: peer, Up: w.up, Since: w.since, LastHeard: w.heard, Offset: w.offset, OffsetOK: true,
		OffsetErr: time.Millisecond, Reason: "cut", Hello: w.hello}, true
}

var errCut = errors.New("link is down")

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = false
	for p := range w.streams {
		p.end()
	}
}

func (w *wire) open(ctx context.Context, _ string, o regions.MirrorOpen) (regions.MirrorStream, error) {
	w.opens.Add(1)
	w.mu.Lock()
	up, target := w.up, w.target
	w.mu.Unlock()
	if !up {
		return nil, errCut
	}
	sink, reply := target.OpenMirror(ctx, "eu-west", o)
	pctx, cancel := context.WithCancel(ctx)
	p := &pipe{wire: w, ctx: pctx, cancel: cancel, sink: sink, batches: make(chan regions.MirrorBatch, 64), replies: make(chan regions.MirrorReply, 65)}
	p.replies <- reply
	w.mu.Lock()
	w.streams[p] = true
	w.mu.Unlock()
	if sink != nil {
		p.done.Go(p.serve)
	}
	return p, nil
}

type pipe struct {
	wire    *wire
	ctx     context.Context
	cancel  context.CancelFunc
	sink    *mirror.Sink
	batches chan regions.MirrorBatch
	replies chan regions.MirrorReply
	done    sync.WaitGroup
}

func (p *pipe) end() { p.cancel() }

func (p *pipe) serve() {
	defer p.sink.Close()
	for {
		select {
		case <-p.ctx.Done():
			return
		case b := <-p.batches:
			if p.wire.hold.Load() {
				continue
			}
			r := p.sink.Apply(p.ctx, b)
			p.wire.inflight.Add(-size(b))
			p.wire.flying.Add(-1)
			if p.wire.lose.Load() {
				p.end()
				return
			}
			p.replies <- r
		}
	}
}

// thirst waits until there are credits again.
func (p *pipe) thirst(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for p.wire.dry.Load() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func raise(most *atomic.Int64, now int64) {
	for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
	}
}

func size(b regions.MirrorBatch) (n int64) {
	for i := range b.Items {
		n += int64(b.Items[i].Size())
	}
	return n
}

func (p *pipe) Send(ctx context.Context, b regions.MirrorBatch) error {
	if p.wire.dry.Load() {
		p.wire.dried.Add(1)
		if err := p.thirst(ctx); err != nil {
			return err
		}
	}
	p.wire.batches.Add(1)
	raise(&p.wire.most, p.wire.inflight.Add(size(b)))
	raise(&p.wire.crowd, p.wire.flying.Add(1))
	select {
	case p.batches <- b:
		return nil
	case <-p.ctx.Done():
		return errCut
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipe) Recv(ctx context.Context) (regions.MirrorReply, error) {
	select {
	case r := <-p.replies:
		return r, nil
	case <-p.ctx.Done():
		return regions.MirrorReply{}, errCut
	case <-ctx.Done():
		return regions.MirrorReply{}, ctx.Err()
	}
}

// Moving is what the wire says: slow for a line that is still carrying.
func (p *pipe) Moving() bool { return p.wire.slow.Load() }

func (p *pipe) Close() {
	p.end()
	p.wire.mu.Lock()
	delete(p.wire.streams, p)
	p.wire.mu.Unlock()
	p.done.Wait()
}

// rig is eu-west's log orders@eu-west and its copy in us-east.
type rig struct {
	t        *testing.T
	fed      *regions.Federation
	clock    *regions.ManualClock
	euPolicy *book
	usPolicy *book
	home     *memoryLog
	copy     *memoryLog
	wire     *wire
	source   *mirror.Source
	target   *mirror.Target
	counts   *counts
	refused  *regions.PeerRefusals
	window   mirror.Window
	pace     regions.Pace
	tails    *tail.Book
	tailDir  string
	lends    bool // any other region may give its copy on
	common   *syncset.Mark
}

func movable(_ api.LogID, target string) bool { return target == "us-east" }

func tailKey(incarnation string) (k regions.TailKey) {
	copy(k[:], incarnation)
	return k
}

// counts is what the hooks were told.
type counts struct {
	mirror.NoMetrics
	rebuilt, clamped, confirmed, egress, ingress, refused atomic.Int64
}

func (c *counts) Rebuilt(api.LogID, string, string)         { c.rebuilt.Add(1) }
func (c *counts) Clamped(api.LogID)                         { c.clamped.Add(1) }
func (c *counts) Confirmed(_ api.LogID, _ string, n, _ int) { c.confirmed.Add(int64(n)) }
func (c *counts) Refused(api.LogID, string, api.Code)       { c.refused.Add(1) }
func (c *counts) Withheld(_ api.LogID, _, side string, _ api.Code, n uint64) {
	if side == "egress" {
		c.egress.Add(int64(n))
	} else {
		c.ingress.Add(int64(n))
	}
}

func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	fed, err := regions.ParseManifest("test", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fed: fed, clock: regions.NewManualClock(start), euPolicy: newBook(fed), usPolicy: newBook(fed), pace: 0.25,
		wire: &wire{streams: map[*pipe]bool{}, up: true}, counts: &counts{}, tailDir: t.TempDir()}
	r.refused = regions.NewPeerRefusals(r.clock, quiet())
	r.home = newMemoryLog(orders, "inc-1", r.clock)
	r.copy = newMemoryLog(orders, "", r.clock)
	for _, c := range change {
		c(r)
	}
	r.startTarget()
	r.startSource()
	t.Cleanup(func() { r.stopSource() })
	return r
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (r *rig) startTarget() {
	var err error
	if r.tails, err = tail.Open(r.tailDir, r.clock, quiet()); err != nil {
		r.t.Fatal(err)
	}
	target, err := mirror.NewTarget(mirror.TargetConfig{
		Common: func(api.LogID) *syncset.Mark { return r.common }, Movable: movable, Tails: r.tails, Lends: func(api.LogID, string) bool { return r.lends },
		Self: "us-east", Federation: r.fed, Link: r.wire.status, Enter: r.usPolicy.Enter, Clock: r.clock, Pace: r.pace,
		Logger: quiet(), Metrics: r.counts, Refused: r.refused,
		Copy: func(context.Context, api.LogID, api.Epoch) (regions.CopyLog, error) { return r.copy, nil },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.target = target
	target.Start(r.t.Context())
	r.wire.mu.Lock()
	r.wire.target = target
	r.wire.mu.Unlock()
}

func (r *rig) startSource() {
	source, err := mirror.NewSource(mirror.SourceConfig{
		Movable: movable, TailKey: tailKey,
		Self: "eu-west", Federation: r.fed, Link: r.wire.status, Enter: r.euPolicy.Enter, Clock: r.clock, Pace: r.pace,
		Logger: quiet(), Metrics: r.counts, OpenMirror: r.wire.open, Window: r.window,
		HomeLogs: func() []regions.HomeLog { return []regions.HomeLog{r.home} },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.source = source
	source.Start()
}

func (r *rig) stopSource() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.source.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) cut() {
	r.wire.cut()
	r.linkChanged()
}

func (r *rig) heal() {
	r.wire.mu.Lock()
	r.wire.up = true
	r.wire.mu.Unlock()
	r.linkChanged()
	r.target.Watermarks("eu-west", r.source.Marks("us-east", true))
}

func (r *rig) linkChanged() {
	status, _ := r.wire.status("us-east")
	r.source.LinkChanged(status)
}

// round is one watermark message, if the link lets it through.
func (r *rig) round() {
	r.wire.mu.Lock()
	up := r.wire.up
	if up {
		r.wire.heard = r.clock.Now()
	}
	r.wire.mu.Unlock()
	if up {
		r.target.Watermarks("eu-west", r.source.Marks("us-east", false))
	}
}

// second lets one second pass, with a round at its end.
func (r *rig) second() {
	r.clock.Advance(time.Second)
	r.round()
}

func (r *rig) publish(n int, residency string) {
	for range n {
		r.home.append(residency, 100)
	}
}

func (r *rig) mirrored() {
	r.t.Helper()
	r.eventually("the copy has everything", func() bool {
		l := r.origin()
		return r.copy.Cursor().Sequence == r.home.Head().Sequence && l.State == regions.LagCaughtUp
	})
}

func (r *rig) origin() regions.Lag {
	l, _ := r.source.Lag(orders, "us-east")
	return l
}

func (r *rig) atTarget() regions.Lag {
	l, _ := r.target.Lag(orders)
	return l
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	eventually(r.t, what, ok)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}
