package regions

import (
	"context"
	"time"

	"domicile/api"
)

// WireVersion is the version of the link protocol this binary speaks, and
// OldestWireVersion the oldest it still understands.
const (
	WireVersion       = 2 // from 2 on the ack of a forwarded record leaves its id out
	OldestWireVersion = 1
)

// MaxFieldText bounds the text of a topic's field that another region tells, in bytes.
const MaxFieldText = 4 << 10

// Hello is what two regions tell each other when a link comes up, and again
// whenever it changes.
type Hello struct {
	Federation      string
	Region          string
	FabricID        string // random, made when the region's fabric was created
	BootID          string // random, of this run of the node
	Version         string // of the binary
	WireVersion     int
	OldestWire      int
	PolicySerial    int64
	PolicyRevision  string                       // "" : no policy is active
	ManifestDigest  string                       // of the whole federation.yaml
	TopicDigests    map[string]string            // topic → digest of its declaration
	TopicFields     map[string]map[string]string // topic → field → value, to name what differs
	CertificateEnds time.Time
	Incarnations    map[api.LogID]string // of the logs that may move and have their home there
	Gateway         string               // which of the region's gateways speaks; "": it has one
	TakesTails      bool                 // it takes tail lists
	SignedPolicy    int64                // serial of the signed policy that it hands out; 0: none
	// FencedPolicy is the serial of the signed policy that the region has confirmed: nothing
	// that was judged under an older one is under way there, or is taken there. 0: none.
	FencedPolicy  int64
	PolicySigners string // names the set of keys that signed it; "": not said
}

// Direction of traffic on a link, seen from this region.
type Direction string

// The two directions.
const (
	Out Direction = "out"
	In  Direction = "in"
)

// LinkStatus is what this region knows of a link. Unknown is not up.
type LinkStatus struct {
	Peer      string
	Up        bool      // both directions proven within the last three heartbeats
	OutProven bool      // our heartbeats are answered
	InProven  bool      // the peer's heartbeats reach us
	Since     time.Time // of the present Up value; zero: never known
	LastHeard time.Time // zero: never in this run
	Reason    string    // why it is not up
	Code      api.Code  // a code for the reason, when there is one
	RTT       time.Duration
	Offset    time.Duration // peer's clock minus ours, measured
	OffsetErr time.Duration // ±
	OffsetOK  bool          // an offset was measured in this run
	Hello     *Hello        // the peer's; nil: never met in this run
	Cut       string        // a fault gate is holding the link; what it holds
	BytesOut  uint64        // in flight on the data lane
	Wire      int           // version that both sides speak; 0: no hello was accepted in this run
}

// LogMark is one log's part of a watermark message.
type LogMark struct {
	Log         api.LogID
	Incarnation string
	Epoch       api.Epoch
	Term        uint64
	Head        uint64    // durable
	HeadTime    time.Time // ingest time of the head
	Closed      time.Time // the log is complete up to here
	First       uint64    // first sequence still stored at the origin
	Digest      string    // of the topic's declaration
}

// Watermarks is what a region sends on each control lane every second, also when
// idle: the logs that moved, and the instant up to which the others are complete.
type Watermarks struct {
	Issued  time.Time // the sender's clock
	Instant time.Time // closes every log that is not listed; zero: closes none
	All     bool      // first round after a connect: every log is listed
	Logs    []LogMark
	Refused int // logs beyond the limit of 2,000 that no mark is sent for
}

// Forward is a record on its way to its home, and who published it.
type Forward struct {
	Record    api.Record
	Log       api.LogID
	Principal Principal
	Deadline  time.Time // by our clock
	Serial    int64     // of the policy that let it through here
	Revision  string
}

// Principal is who a verified certificate stands for.
type Principal struct {
	Name  string // from the certificate; never in a log line of a region it is not from
	Kind  string // "client", "operator", "region"
	Class string // of the catalog's principal classes
	Place string // a region, or "" : none declared
}

// MirrorOpen asks the target where its copy of a log ends.
type MirrorOpen struct {
	Log         api.LogID
	Incarnation string
	Epoch       api.Epoch
	Head        uint64
	Digest      string // of the topic's declaration
}

// MirrorBatch is a run of items of one log, in order, judged by egress.
type MirrorBatch struct {
	Incarnation string
	Serial      int64 // egress policy
	Revision    string
	Items       []Item
}

// MirrorReply is the target's answer to an open or a batch.
type MirrorReply struct {
	Cursor Cursor
	// Refused is set when the batch was not applied, and says why: PolicySkew and
	// StorageFull are waited out, the rest stops the flow.
	Refused    api.Code
	Field      string
	Hint       string
	RetryAfter time.Duration
}

// MirrorStream is one flow's way to its target. One goroutine may Send while another
// calls Recv.
type MirrorStream interface {
	// Send hands over one batch; it blocks while the link's credits are used up.
	Send(ctx context.Context, b MirrorBatch) error
	// Recv returns the next reply; the first answers the open. Replies to batches
	// are cumulative and come in order.
	Recv(ctx context.Context) (MirrorReply, error)
	// Moving reports whether patience is in order: the line has carried bytes since the
	// last call, and what this flow waits for may still be on the way, or waits for its
	// turn. False: nothing moves, or it should have been answered.
	Moving() bool
	Close()
}
