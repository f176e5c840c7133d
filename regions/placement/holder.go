package placement

import (
	"slices"
	"time"

	"domicile/api"
)

// Holder keeps one region's leases. A renewal is for the region as a whole; it prolongs
// them only if the authority covered exactly the logs that this region believes it has.
// It is not safe for concurrent use.
type Holder struct {
	region     string
	generation uint32 // the newest authority that answered
	logs       map[string]*holding
}

type holding struct {
	log   Log
	lease Lease
}

// NewHolder keeps the leases of a region.
func NewHolder(region string) *Holder {
	return &Holder{region: region, logs: map[string]*holding{}}
}

// Follow takes a log's placement in. Another epoch or another length has no lease yet.
func (h *Holder) Follow(l Log) {
	mine := l.Home == h.region && l.leased()
	was := h.logs[l.Incarnation]
	switch {
	case !mine:
		delete(h.logs, l.Incarnation)
	case was == nil || was.log.Epoch != l.Epoch || was.log.Terms.FenceAfter != l.Terms.FenceAfter:
		h.logs[l.Incarnation] = &holding{log: l.Clone()}
	}
}

// Answered takes the answer to a renewal that was sent at the given instant, and reports
// whether it covered what this region believes it has. If not, the region's view is old:
// no lease is prolonged until it has caught up.
func (h *Holder) Answered(g Grant, sent Instant) bool {
	if g.Region != h.region || g.Generation < h.generation {
		return false
	}
	h.generation = g.Generation
	for _, revoked := range g.Revoked {
		delete(h.logs, revoked)
	}
	logs := make([]Log, 0, len(h.logs))
	for _, held := range h.logs {
		logs = append(logs, held.log)
	}
	if CoverDigest(logs) != g.Digest {
		return false
	}
	for _, held := range h.logs {
		held.lease.Grant(g.Generation, sent)
	}
	return true
}

// Check refuses with FENCED if the region may not write the log in this epoch now. It is
// asked before a record is stored and again before it is acknowledged.
func (h *Holder) Check(incarnation string, e api.Epoch, now Instant) error {
	held := h.logs[incarnation]
	if held != nil && held.log.Epoch == e && held.lease.Holds(held.log.Terms.FenceAfter, now) {
		return nil
	}
	return &api.Error{Code: api.Fenced, Op: "write log", Region: h.region, RetryAfter: time.Second,
		Hint: "this region's lease on the log has lapsed; retry with the same id"}
}

// Left is how much of the lease on a log is left; false: the region holds none on it.
func (h *Holder) Left(incarnation string, now Instant) (time.Duration, bool) {
	held := h.logs[incarnation]
	if held == nil {
		return 0, false
	}
	return held.lease.Left(held.log.Terms.FenceAfter, now), true
}

// Suspect lists the logs of which half the lease or less is left, in order.
func (h *Holder) Suspect(now Instant) []string {
	var names []string
	for name, held := range h.logs {
		if held.lease.Left(held.log.Terms.FenceAfter, now) <= held.log.Terms.FenceAfter/2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
