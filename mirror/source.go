package mirror

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// SourceConfig is what the origin's side needs. The functions are called from
// several goroutines and must not call back into the Source.
type SourceConfig struct {
	Self       string
	Federation *regions.Federation
	// HomeLogs lists the logs this region owns; call Source.LogsChanged when that, or the
	// manifest, is another.
	HomeLogs func() []regions.HomeLog
	// Relays lists the copies that this region gives on, see Relay; nil: none. Call
	// LogsChanged when it is another list.
	Relays func() []Relay
	// Targets lists the regions that get a copy; nil: Federation.Targets.
	Targets func(api.LogID) []string
	// Shown is a log as it may be told and mirrored to regions outside its sync set; nil:
	// every log as it is. Members of the set get the log itself.
	Shown func(regions.HomeLog) regions.HomeLog
	// Confirmed hears where a target's copy ends, each time the target says so, in order
	// for each target; nil: nobody. It must not block.
	Confirmed func(log api.LogID, target string, cursor regions.Cursor)
	// Movable says whether a log may be moved to a region: what that region does not have
	// is told to it ahead. nil: no log may.
	Movable func(log api.LogID, target string) bool
	// TailKey keys the hashes in what is told ahead. Required with Movable.
	TailKey func(incarnation string) regions.TailKey
	// Link is what is known of the link to a peer; false: there is none.
	Link func(peer string) (regions.LinkStatus, bool)
	// OpenMirror opens a stream; it and the stream live until ctx ends or Close.
	OpenMirror func(ctx context.Context, peer string, o regions.MirrorOpen) (regions.MirrorStream, error)
	// Enter pins the active policy generation.
	Enter   func() Pass
	Clock   regions.Clock
	Pace    regions.Pace
	Logger  *slog.Logger
	Metrics Metrics // nil: none
	// Refused counts what a target answers that no correct node does; nil: nobody counts.
	Refused *regions.PeerRefusals
	Window  Window
	// MaxMarks is how many logs one link carries watermarks for; 0: 2,000.
	MaxMarks int
	Hooks    SourceHooks
}

// Window bounds what one flow has sent and not seen confirmed. Zero fields mean the
// defaults. A single batch may always be in flight.
type Window struct {
	Bytes   int // default 16 MiB
	Records int // items; default 32,768
	Batches int // default 256
}

// SourceHooks break one mechanism from Go code, for tests and self-checks.
type SourceHooks struct {
	// SkipEgress sends everything of a flow without asking the policy.
	SkipEgress func(log api.LogID, target string) bool
}

// Flow names one log's way to one region.
type Flow struct {
	Log    api.LogID
	Target string
}

// Source sends the logs of this region to the regions that get copies. It is safe
// for concurrent use.
type Source struct {
	cfg    SourceConfig
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	scouts chan struct{} // bounds how many flows read ahead at once
	watch  watcher
	marks  marker

	mu      sync.Mutex
	started bool
	closed  bool
	flows   map[Flow]*flow
	byLog   map[api.LogID][]*flow
	links   map[string]linkSeen
	opening map[string]chan struct{} // by target: bounds how many flows open a stream at once
}

// linkSeen is what matters to flows of a link's state.
type linkSeen struct {
	up             bool
	since          time.Time // a flap between two calls shows only here
	boot, manifest string
	serial         int64
}

// NewSource checks the configuration. Nothing runs before Start.
func NewSource(cfg SourceConfig) (*Source, error) {
	if cfg.Federation == nil || cfg.HomeLogs == nil || cfg.Link == nil || cfg.OpenMirror == nil ||
		cfg.Enter == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "make mirror source",
			Hint: "give Federation, HomeLogs, Link, OpenMirror, Enter, Clock and Logger"}
	}
	if cfg.Targets == nil {
		cfg.Targets = cfg.Federation.Targets
	}
	if cfg.Relays == nil {
		cfg.Relays = func() []Relay { return nil }
	}
	if cfg.Shown == nil {
		cfg.Shown = func(log regions.HomeLog) regions.HomeLog { return log }
	}
	if cfg.Confirmed == nil {
		cfg.Confirmed = func(api.LogID, string, regions.Cursor) {}
	}
	if cfg.Movable == nil {
		cfg.Movable = neverMoves
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NoMetrics{}
	}
	if cfg.Window.Bytes == 0 {
		cfg.Window.Bytes = 16 << 20
	}
	if cfg.Window.Records == 0 {
		cfg.Window.Records = 32 << 10
	}
	if cfg.Window.Batches == 0 {
		cfg.Window.Batches = 256
	}
	if cfg.MaxMarks == 0 {
		cfg.MaxMarks = MaxMarks
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Source{
		cfg: cfg, ctx: ctx, cancel: cancel, scouts: make(chan struct{}, 2),
		links: map[string]linkSeen{}, opening: map[string]chan struct{}{}, watch: newWatcher(), flows: map[Flow]*flow{}, byLog: map[api.LogID][]*flow{},
	}, nil
}

// Start begins to mirror. It may be called before the links are up.
func (s *Source) Start() {
	s.mu.Lock()
	if s.started || s.closed {
		s.mu.Unlock()
		return
	}
	s.started = true
	s.work.Add(2)
	s.mu.Unlock()
	go s.watchHeads()
	go s.sampleRates()
	s.LogsChanged()
}

// LinkChanged tells of a link that went up or down, or whose peer said something new
// of itself. Call it after Link reports the new state; calls that tell nothing new
// cost nothing.
func (s *Source) LinkChanged(status regions.LinkStatus) {
	seen := linkSeen{up: status.Up, since: status.Since}
	if h := status.Hello; h != nil {
		seen.boot, seen.manifest, seen.serial = h.BootID, h.ManifestDigest, h.PolicySerial
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.links[status.Peer]; ok && last == seen {
		return
	}
	s.links[status.Peer] = seen
	for _, f := range s.flows {
		if f.target == status.Peer {
			f.attempt.Store(0)
			s.kickLocked(f)
		}
	}
}

// PolicyChanged tells that another policy generation is active in this region: what
// waits to be sent is judged anew.
func (s *Source) PolicyChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		if !f.settled() {
			f.attempt.Store(0)
			s.kickLocked(f)
		}
	}
}

// Close ends all flows and waits for them.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for _, f := range s.flows {
		stopAfter(f.timer)
	}
	s.mu.Unlock()
	s.cancel()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.Join(&api.Error{Code: api.ShuttingDown, Op: "close mirror source", Hint: "a flow did not end in time"}, ctx.Err())
	}
}

// Safe is the highest sequence that every target has confirmed: what retention may
// take without a copy missing it. 0 while a target was not heard in this run;
// math.MaxUint64 for a log that nobody copies.
func (s *Source) Safe(log api.LogID) uint64 {
	s.mu.Lock()
	flows := s.byLog[log]
	s.mu.Unlock()
	if len(flows) < len(s.cfg.Targets(log)) {
		return 0
	}
	safe := uint64(math.MaxUint64)
	for _, f := range flows {
		f.mu.Lock()
		if !f.met {
			safe = 0
		} else {
			safe = min(safe, f.cursor.Sequence)
		}
		f.mu.Unlock()
	}
	return safe
}

// Running is the number of flows that hold a goroutine now. An idle flow holds none.
func (s *Source) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, f := range s.flows {
		if f.running {
			n++
		}
	}
	return n
}

// Missing says why a target takes nothing of a log now; "" while it does.
func (s *Source) Missing(log api.LogID, target string) string {
	s.mu.Lock()
	f := s.flows[Flow{log, target}]
	s.mu.Unlock()
	if f == nil {
		return "it is not mirrored to"
	}
	link, _ := s.cfg.Link(target)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch state, cause := f.state(link, f.log.Head().Sequence); {
	case state == regions.LagCaughtUp, state == regions.LagCatchingUp:
		return ""
	case cause == "":
		return string(state)
	default:
		return string(state) + ", " + cause
	}
}

func (s *Source) skipEgress(log api.LogID, target string) bool {
	return s.cfg.Hooks.SkipEgress != nil && s.cfg.Hooks.SkipEgress(log, target)
}

// openings is the bound on streams that are being opened towards a target. Each has
// its own: one that answers nothing takes no room from the others.
func (s *Source) openings(target string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.opening[target]
	if c == nil {
		c = make(chan struct{}, maxOpening)
		s.opening[target] = c
	}
	return c
}

func (s *Source) linkUp(peer string) bool {
	status, ok := s.cfg.Link(peer)
	return ok && status.Up
}
