package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// ForwardDeadline bounds a forward from the hand-over to the link, at the node's pace.
// A record for this region has the deadline of its log's writer.
const ForwardDeadline = 10 * time.Second

// Links is the way to other regions. Implementations are safe for concurrent use.
type Links interface {
	// Status is what is known of the link to a peer; false for a region without one.
	Status(peer string) (regions.LinkStatus, bool)
	// Forward sends a record to its home and never blocks. done is called exactly
	// once, at the latest when f.Deadline has passed. What waits for one peer is
	// bounded and takes no room from another.
	Forward(peer string, f regions.Forward, done func(api.Ack, error))
}

// Lags says how far this region's copies are behind.
type Lags interface {
	// Lag is the lag of this region's copy of a log.
	Lag(log api.LogID) regions.Lag
}

// Counters hears of outcomes. Methods are called on hot paths from many goroutines
// and must not block. Topics are names from the manifest, or "" for a name that is
// not in it; code is "" for success.
type Counters interface {
	// Published counts one record that was published in this region; home is where
	// it went, "" if it was refused before that was known.
	Published(topic, home string, code api.Code)
	// Took counts one record that another region forwarded to here.
	Took(peer, topic string, code api.Code)
	// Read counts what one batch gave a reader, and what it kept from it.
	Read(topic string, records, withheld int)
}

// Config is what a Gateway works with. All of it is required except Counters, Refused, EpochEnd and Shut.
type Config struct {
	Self       string // this region
	Federation *regions.Federation
	Placement  regions.Placement
	Gate       *policy.Gate
	// Refused counts what other regions forward that no correct node does; nil: nobody counts.
	Refused *regions.PeerRefusals
	// Homes finds an open log that this region owns.
	Homes func(api.LogID) (regions.HomeLog, bool)
	// Shut says why a log stays shut here; nil: it may yet open. The function may be nil.
	Shut func(api.LogID) error
	// Logs lists the logs of a topic that this region holds, homes and copies.
	Logs func(topic string) []regions.Log
	// EpochEnd is the last sequence up to which a log counts in an epoch; false: that is not
	// known here, or the epoch has not ended. nil: no log ever moved.
	EpochEnd func(api.LogID, api.Epoch) (uint64, bool)
	Links    Links
	Lags     Lags
	Clock    regions.Clock
	Pace     regions.Pace
	Counters Counters
}

// Gateway walks records from a producer to their home, and from the local copies to
// readers. It is safe for concurrent use.
type Gateway struct {
	Config
	trails   *trails
	inFlight atomic.Int64
	closing  atomic.Bool
	idle     chan struct{} // closed when closing and nothing is in flight
	idleOnce sync.Once
}

// New checks the configuration. The gateway works until Close.
func New(c Config) (*Gateway, error) {
	if _, ok := c.Federation.Region(c.Self); !ok {
		return nil, &api.Error{Code: api.UnknownRegion, Op: "start gateway", Field: "region", Value: c.Self,
			Hint: "name this region in federation.yaml"}
	}
	if c.Counters == nil {
		c.Counters = noCounters{}
	}
	if c.EpochEnd == nil {
		c.EpochEnd = func(api.LogID, api.Epoch) (uint64, bool) { return 0, false }
	}
	return &Gateway{Config: c, trails: newTrails(c.Clock), idle: make(chan struct{})}, nil
}

// Close refuses what comes from now on with ShuttingDown and waits until every
// outcome in flight is known, or ctx ends. Close the links and logs after it.
func (g *Gateway) Close(ctx context.Context) error {
	g.closing.Store(true)
	if g.inFlight.Load() == 0 {
		g.idleOnce.Do(func() { close(g.idle) })
	}
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close gateway: %d outcomes are still open: %w", g.inFlight.Load(), ctx.Err())
	}
}

// enter counts a record in. false: the gateway is closing.
func (g *Gateway) enter() bool {
	g.inFlight.Add(1)
	if g.closing.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *Gateway) leave() {
	if g.inFlight.Add(-1) == 0 && g.closing.Load() {
		g.idleOnce.Do(func() { close(g.idle) })
	}
}

var errShuttingDown = &api.Error{Code: api.ShuttingDown, Op: "publish",
	Hint: "this node is stopping; send it again with the same id, here or to another address of the region"}

type noCounters struct{}

func (noCounters) Published(string, string, api.Code) {}
func (noCounters) Took(string, string, api.Code)      {}
func (noCounters) Read(string, int, int)              {}
