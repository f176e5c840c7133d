package regions

import (
	"time"

	"domicile/api"
)

// LagState says what a flow, one log towards one region, is doing.
type LagState string

// The states of a flow. Unknown is a state, never a zero.
const (
	LagHome            LagState = "HOME"                // this region is the log's home: no lag
	LagCaughtUp        LagState = "CAUGHT_UP"           //
	LagCatchingUp      LagState = "CATCHING_UP"         // behind, and moving
	LagStalled         LagState = "STALLED"             // behind, the link is up, nothing moves; Cause names the hop
	LagLinkDown        LagState = "LINK_DOWN"           //
	LagTargetFull      LagState = "TARGET_FULL"         // the copy has no room; resumes by itself
	LagPolicySkew      LagState = "POLICY_SKEW"         // waits for the target's newer policy
	LagManifestDiffers LagState = "MANIFEST_MISMATCH"   // declared differently on the two sides
	LagIncarnation     LagState = "INCARNATION_CHANGED" // the origin's log is another one; a person decides
	LagCursorAhead     LagState = "CURSOR_AHEAD_OF_LOG" // the copy has more than the origin; a person decides
	LagUnknown         LagState = "UNKNOWN"             // nothing heard in this run
)

// Lag is one log's lag towards one region, as far as this region knows it. Each
// figure is meaningful only while its Known flag is set. The headline lag is
// Staleness: how old the target's copy is. Exposure is what would be lost with the
// origin: the age of the oldest eligible record that the target has not confirmed.
type Lag struct {
	Log    api.LogID
	Home   string
	Target string
	State  LagState
	Cause  string

	Staleness      time.Duration // (now − measured clock offset) − safe time
	StalenessError time.Duration // ±
	StalenessKnown bool
	SafeTime       time.Time // the copy is complete up to here, on the origin's clock; zero: none yet
	SecondsTrusted bool      // clock offset measured and within 1 s

	Exposure      time.Duration // on the origin's clock
	ExposureKnown bool

	Records      uint64 // pending
	RecordsKnown bool
	Bytes        uint64 // pending
	BytesKnown   bool

	Head   uint64 // at the origin, as last known
	Cursor uint64 // at the target, as last known
	Ledger Ledger // at the target, as last known

	KnowledgeAge   time.Duration // since the other side was last heard
	KnowledgeKnown bool

	// At the home, towards one target.
	Loss Loss  // when retention will have overtaken the copy
	Lost []Gap // ranges that were gone before the copy had them, in this run; Kind "": not told to the copy yet
}

// LossState says what is to be expected of retention while a copy is behind.
type LossState string

// The states. The zero state is unknown.
const (
	LossUnknown LossState = ""
	LossNone    LossState = "none"    // not at the present rates, or nothing waits
	LossAhead   LossState = "ahead"   // retention takes records the copy does not have in Loss.In
	LossNow     LossState = "now"     // it has
	LossRefusal LossState = "refusal" // the topic holds: appends are refused in Loss.In
)

// Loss is a forecast at the present rates.
type Loss struct {
	State LossState
	In    time.Duration // of LossAhead and LossRefusal
	Soon  bool          // worth a warning: half of the retention's time is used up
}

// Retention by bytes begins at HighWater of a log's max_bytes and ends at LowWater, in
// percent.
const (
	HighWater = 90
	LowWater  = 75
)
