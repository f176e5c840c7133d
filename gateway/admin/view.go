package admin

import (
	"context"
	"sync"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/gateway/drill"
	"domicile/regions"
	"domicile/regions/clock"
)

// askTimeout bounds how long one source of the status may think. All are asked at
// once, so a status is there within two seconds even if a disk hangs.
const askTimeout = 1500 * time.Millisecond

// Storage is the state of this region's store.
type Storage struct {
	Healthy    bool
	Reason     string // why it is not
	Passes     bool   // it is healthy again by itself once the disk takes writes
	Full       string // why a healthy store takes no new records; "": it does
	Used       int64  // bytes
	Limit      int64  // bytes
	Path       string
	Durability string // what an ack of this region means
	// Overdue is, by log, by how much its oldest record has outlived its age, by the node's
	// clock, which is in doubt.
	Overdue map[string]time.Duration
}

// Certificate is one certificate that this node uses.
type Certificate struct {
	Name, Kind string
	Ends       time.Time
}

// Policy is the state of this region's policy.
type Policy struct {
	Active    bool
	Revision  string
	Serial    int64
	Candidate string // digest of a changed directory that is not loaded; "": none
	Problem   string // why the last load was refused; "": it was not
}

// Holding is one log on this region's disk.
type Holding struct {
	Log  regions.Log
	Home bool   // else a copy
	Sync string // how far it is common to its sync set, or why it takes nothing; "": it has none
}

// Seat is the region's nodes and who of them writes its logs, as this node knows it.
type Seat struct {
	Open   bool   // here: links, lags and holdings can be asked for
	Reason string // why not; no record content
	Hands  bool   // not here, and this node hands publishes to the holder

	Quorum bool      // a majority of the nodes is heard; always so in a region of one
	Node   string    // this node's name; "" in a region of one
	Holder string    // "": nobody, or not known
	Term   uint64    // 0: not known
	Since  time.Time // zero: not known
	Nodes  []Sibling // of a region of three, by name
}

// Gossip is what this node's part in the gossip says. Nothing is decided by it.
type Gossip struct {
	Members []string // that are alive as far as the gossip goes, this node's among them
	Peers   int      // regions that could gossip with this one
	Hints   []string // what to look at, in words
	Refused uint64   // names and members that were turned away in this run
}

// Sibling is a node of a region of three.
type Sibling struct {
	Name     string
	Self, Up bool
	Heard    time.Time // zero: not in this run
	Lacks    string    // of the region's logs, while it is up; "": nothing
	Failed   bool      // while it is up: its store takes nothing until it is started again, and Lacks says why
}

// Sources is where the figures come from. Each is called from any goroutine and
// answers from memory; one that hangs costs its own part of a status only.
type Sources struct {
	Seat         func() Seat
	Links        func() []regions.LinkStatus // one per peer of the manifest
	Lags         func() []regions.Lag        // of this region's copies, and of its home logs towards each target
	Holdings     func() []Holding
	Policy       func() Policy
	Storage      func() Storage
	Certificates func() []Certificate
	ClockStep    func() time.Duration // of the wall clock against the steady one
	Clock        func() clock.Verdict // of the node's clock; nil: it is believed
	Warnings     func() []string
	Drill        func() drill.State           // what is cut on purpose; nil: nothing ever is
	Gossip       func() (Gossip, bool)        // false, or nil: this node does not gossip now
	Refused      func() []regions.PeerRefused // what other regions said that was refused, in this run; nil: nobody counts
	// Combinations lists a topic's allowed tag combinations, each as api.TagString.
	Combinations func(topic string) []string
}

// View is everything a status says, gathered at one moment.
type View struct {
	Region, Version string
	Federation      *regions.Federation
	Placement       regions.Placement
	Now, Started    time.Time
	Seat            Seat
	Links           []regions.LinkStatus
	Lags            []regions.Lag
	Holdings        map[string]LogFigures // by log; nil: not known
	Policy          Policy
	Storage         *Storage // nil: it did not answer
	Certificates    []Certificate
	ClockStep       time.Duration
	Clock           clock.Verdict
	Warnings        []string
	Drill           drill.State
	Gossip          *Gossip // nil: this node does not gossip now
	Refused         []regions.PeerRefused
	Resident        map[string]bool // topics that may carry records of a boundary
	Silent          []string        // sources that did not answer in time

	// Of the region's other nodes.
	Holder *pb.StatusResponse           // the holder's, while this node hands publishes to it; nil: it did not answer
	Files  map[string]*pb.FilesResponse // by node, this one included; absent: not known
}

// LogFigures is what is on this region's disk of one log.
type LogFigures struct {
	regions.Head
	Home bool
	Sync string
}

// probe asks one source and gives up after askTimeout. While a call hangs no second
// one is made.
type probe[T any] struct {
	ask  func() T
	mu   sync.Mutex
	call chan T // nil: none under way
}

func (p *probe[T]) get(ctx context.Context) (v T, ok bool) {
	p.mu.Lock()
	call := p.call
	if call == nil {
		call = make(chan T, 1)
		p.call = call
		go func() {
			v := p.ask()
			p.mu.Lock()
			p.call = nil
			p.mu.Unlock()
			call <- v
		}()
	}
	p.mu.Unlock()
	select {
	case v = <-call:
		call <- v // for others who wait for the same answer
		return v, true
	case <-ctx.Done():
		return v, false
	}
}
