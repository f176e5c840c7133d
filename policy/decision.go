package policy

import (
	"slices"
	"strings"

	"domicile/api"
)

// The codes of reasons. They are stable: never reused for another meaning.
const (
	ReasonPermitted  = "D101_PERMITTED"
	ReasonForbidden  = "D201_FORBIDDEN"
	ReasonBoundary   = "D202_OUTSIDE_BOUNDARY"
	ReasonPlace      = "D203_READER_PLACE"
	ReasonNoPermit   = "D301_NO_PERMIT"
	ReasonUnknown    = "D304_UNKNOWN_VALUE"
	ReasonObligation = "D406_OBLIGATION"
)

// ReasonCodes lists the codes of reasons.
func ReasonCodes() []string {
	return []string{ReasonPermitted, ReasonForbidden, ReasonBoundary, ReasonPlace, ReasonNoPermit, ReasonUnknown, ReasonObligation}
}

// Reason is one cause of a decision: a stable code, the rule as package/id ("" when
// no author's rule was the cause) and a sentence for people.
type Reason struct{ Code, Rule, Text string }

// Decision is the answer to one cell. It is immutable and shared; its slices must
// not be changed.
type Decision struct {
	Allow       bool
	Code        api.Code // "" for an allow
	Regions     []string // where the record may rest (admit), else the regions permitted; sorted
	Destination string   // admit only: where a record goes that has no log at its origin; "" if not needed
	Reasons     []Reason // sorted by code and rule; never empty

	err *api.Error // what a refused caller gets; nil for an allow
}

// Err is the refusal as an error, nil for an allow. It is shared: do not change it.
func (d *Decision) Err() error {
	if d.err == nil {
		return nil
	}
	return d.err
}

// Obligations lists the rules that ask for an obligation, as package/id. This version
// performs none, so such a decision is a denial.
func (d *Decision) Obligations() (rules []string) {
	for _, r := range d.Reasons {
		if r.Code == ReasonObligation {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// Admission is the answer to admit.
type Admission struct {
	Regions     []string // where the record may rest, within its boundary; shared, do not change
	Destination string   // the region that takes it when its origin may not; "" if none is needed
	Revision    string   // of the policy that decided
}

// MayRest reports whether the record may rest in the region.
func (a Admission) MayRest(region string) bool { return slices.Contains(a.Regions, region) }

// refusal builds the shared error of a decision.
func refusal(q Question, revision string, reasons []Reason) *api.Error {
	e := &api.Error{Code: q.Point.denial(), Op: q.Point.String(), Topic: q.Topic, Region: q.Target, Revision: revision}
	if q.Point == Admit {
		e.Region = q.Origin
	}
	r := strongest(reasons)
	e.Hint, e.Reason, e.Rule = hintOf(reasons), r.Code, r.Rule
	return e
}

// strongest is the first reason that speaks against an answer; zero if none does.
func strongest(reasons []Reason) Reason {
	for _, r := range reasons {
		if r.Code != ReasonPermitted {
			return r
		}
	}
	return Reason{}
}

// hintOf puts the strongest reason into words, the rule first.
func hintOf(reasons []Reason) string {
	r := strongest(reasons)
	if r == (Reason{}) {
		return "policy gave no permit"
	}
	var parts []string
	if r.Rule != "" {
		parts = append(parts, "rule "+r.Rule)
	}
	if r.Text != "" {
		parts = append(parts, r.Text)
	}
	return strings.Join(append(parts, r.Code), ": ")
}

func joinSome(words []string) string {
	const most = 12
	if len(words) > most {
		return strings.Join(words[:most], ", ") + ", …"
	}
	return strings.Join(words, ", ")
}
