package placement

import (
	"domicile/api"
	"domicile/regions"
)

// The rules' ids, as refusals name them.
const (
	RuleOneHome   = "S1"  // one home per epoch
	RuleNoReopen  = "S2"  // an epoch that ended never opens again
	RuleCutFirst  = "S3"  // proof, then cut, then the check of what is lost
	RuleUnknown   = "S4"  // a loss that is not known is too much
	RuleBoundary  = "S5"  // no home outside what is allowed
	RuleOneOp     = "S6"  // one move per log
	RuleOverride  = "S8"  // an override names a rule that may be set aside, and a reason
	RulePinned    = "S10" // nothing makes a log movable, or widens its boundary, but two people
	RuleTail      = "S11" // no move while a divergent tail is open
	RuleApprovals = "S12" // as many people as the declaration asks for
	RuleDigest    = "S13" // home, target and authority hold the same declaration
)

// overridable lists the rules that a forced move may set aside.
var overridable = map[string]bool{RuleCutFirst: true, RuleUnknown: true, RuleTail: true}

// Overridable reports whether a forced move may set a rule aside, by its id.
func Overridable(rule string) bool { return overridable[rule] }

// Bounds of the state.
const (
	MinFenceAfter  = regions.MinFenceAfter
	MaxFenceAfter  = regions.MaxFenceAfter
	MaxLogs        = 20_000
	MaxRegions     = 64
	maxText        = 512 // bytes of a reason, an actor, an id
	maxHistory     = 256 // the oldest are forgotten, and asking for one is an error
	maxDivergences = 16  // per log
	maxApprovals   = 16
	maxRetired     = 100_000
	keptAnswers    = 1024 // commands that are still answered as they were
	keptAudit      = 1024 // entries that snapshots carry
)

// broken is the refusal of a command by a rule.
func broken(rule, hint string) *api.Error {
	return &api.Error{Code: api.PlacementRefused, Op: "place log", Field: "rule", Value: rule, Hint: hint}
}

func outside(region string) *api.Error {
	return &api.Error{Code: api.HomeOutsideBoundary, Op: "place log", Region: region, Field: "rule", Value: RuleBoundary,
		Hint: "the log may not rest there; choose one of its recorded targets"}
}

func conflict(field, present, hint string) *api.Error {
	return &api.Error{Code: api.Conflict, Op: "place log", Field: field, Value: present, Hint: hint}
}

func bad(field, hint string) *api.Error {
	return &api.Error{Code: api.BadRequest, Op: "place log", Field: field, Hint: hint}
}
