package mirror

import (
	"time"

	"domicile/api"
	"domicile/regions"
)

// Pass is one pinned policy generation. *policy.Pass is one.
type Pass interface {
	// Leave ends the pass. What was decided under it must be handed over by then.
	Leave()
	// Stale reports that another generation is active now: judge again.
	Stale() bool
	Serial() int64
	// Behind reports whether a judgement of this serial and revision is by a newer policy
	// than this one.
	Behind(serial int64, revision string) bool
	// TooOld reports whether one of this serial is by an older policy than is still taken.
	TooOld(serial int64) bool
	Revision() string
	// Egress says whether the record may leave origin for target; nil: it may.
	Egress(r *api.Record, origin, target string) error
	// Ingress says whether a record from origin may rest in target; nil: it may.
	Ingress(r *api.Record, origin, target string) error
	// Lawful reports whether a record may lie in a region at all, by the map of boundaries.
	Lawful(r *api.Record, region string) bool
}

// Metrics is told what happens, as it happens. Methods are called from several
// goroutines and must not block. Embed NoMetrics to implement only some.
type Metrics interface {
	// Confirmed: the target has these records on its disk.
	Confirmed(log api.LogID, target string, records, bytes int)
	// Applied: this region has these records of another's log on its disk.
	Applied(log api.LogID, records, bytes int)
	// Withheld: policy left a gap of this many records in a copy. side is "egress"
	// (counted once the target has the gap) or "ingress".
	Withheld(log api.LogID, target, side string, code api.Code, records uint64)
	// Refused: a batch from peer was not applied.
	Refused(log api.LogID, peer string, code api.Code)
	// Crossed: how long a record took from ingest at its home to this disk, corrected
	// by the measured clock offset. One sample per batch, its oldest record.
	Crossed(log api.LogID, took time.Duration)
	// Rebuilt: a flow made no progress, and its reader and stream were made anew.
	Rebuilt(log api.LogID, target, hop string)
	// Clamped: a staleness would be negative, and is 0 or unknown; a clock is off.
	Clamped(log api.LogID)
}

// NoMetrics does nothing.
type NoMetrics struct{}

// Confirmed does nothing.
func (NoMetrics) Confirmed(api.LogID, string, int, int) {}

// Applied does nothing.
func (NoMetrics) Applied(api.LogID, int, int) {}

// Withheld does nothing.
func (NoMetrics) Withheld(api.LogID, string, string, api.Code, uint64) {}

// Refused does nothing.
func (NoMetrics) Refused(api.LogID, string, api.Code) {}

// Crossed does nothing.
func (NoMetrics) Crossed(api.LogID, time.Duration) {}

// Rebuilt does nothing.
func (NoMetrics) Rebuilt(api.LogID, string, string) {}

// Clamped does nothing.
func (NoMetrics) Clamped(api.LogID) {}

// The sides that may withhold a record.
const (
	sideEgress  = "egress"
	sideIngress = "ingress"
)

// Intervals, before regions.Pace.
const (
	watchdogAfter = 10 * time.Second       // behind, link up, nothing confirmed
	idleAfter     = time.Second            // a flow with nothing to do lets go of everything
	gapLinger     = 100 * time.Millisecond // a batch of gaps only: nobody waits for it
	pollReader    = 20 * time.Millisecond  // a reader that gives nothing though there is more
	backoffMin    = 200 * time.Millisecond
	backoffMax    = 5 * time.Second
	retrySkew     = time.Second
	freshFor      = 3 * time.Second       // a head heard longer ago is not the head
	openDeadline  = 5 * time.Second       // creating or opening a copy
	pollStale     = 20 * time.Millisecond // a send that waits looks whether its judgement still stands
)

// MaxOffset is how far a peer's clock may be off before seconds are untrusted.
const MaxOffset = time.Second

// maxOpening is how many flows to one target open a stream at a time.
const maxOpening = 64

// MaxMarks is how many logs one link carries watermarks for, unless configured.
const MaxMarks = 2000

func stopAfter(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// trouble is why a flow does not move.
type trouble struct {
	state regions.LagState
	cause string
}

func (t trouble) alarm() bool {
	return t.state == regions.LagIncarnation || t.state == regions.LagCursorAhead
}
