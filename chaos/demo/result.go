package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"domicile/api"
)

// The names of the checks.
const (
	CheckEgressWithheld = "egress_withheld" // residents were withheld on leaving, each once; arrival had to refuse none
	CheckIngressRefuses = "ingress_refuses" // a resident record sent past egress was refused on arrival
	CheckFloorRefuses   = "floor_refuses"   // the same with the rules' verdict forced to allow
	CheckDedupe         = "dedupe"          // records sent again are stored once, and the ack says so
	CheckAckAfterSync   = "ack_after_sync"  // each ack left after its record was on disk
	CheckLedger         = "ledger"          // what producers were told is what is stored, where it may rest
	CheckCanary         = "canary"          // no token in any file of a region outside its boundary
	CheckCanaryAtHome   = "canary_at_home"  // every token of an acknowledged record in a file at home
	CheckLinks          = "links"           // no token on a link but towards its boundary; the probes were heard
	CheckSlope          = "slope"           // cut off, exported lag grows one second per second
)

// checks lists all checks in the order in which they are told.
var checks = []string{
	CheckEgressWithheld, CheckIngressRefuses, CheckFloorRefuses, CheckDedupe, CheckAckAfterSync,
	CheckLedger, CheckCanary, CheckCanaryAtHome, CheckLinks, CheckSlope,
}

// Result is what a run found. Its JSON form is the last line of the output in JSON
// mode; field names and meanings stay.
type Result struct {
	Acked                int                `json:"acked"`     // different records acknowledged
	Forwarded            int                `json:"forwarded"` // of them, stored by another region than the one asked
	Mirrored             int                `json:"mirrored"`  // record × region, home not counted
	Refused              int                `json:"refused"`   // different records refused, nothing stored
	Unknown              int                `json:"unknown"`   // different records whose outcome nobody could say, after asking again
	Codes                map[api.Code]int   `json:"codes"`     // answers that were no ack, by code
	ResidentBytesOutside int                `json:"resident_bytes_outside"`
	Lost                 int                `json:"lost"`
	Duplicates           int                `json:"duplicates"`
	LagSlopeDuringCut    *float64           `json:"lag_slope_during_cut"` // seconds per second, the fit farthest from 1; null: not enough samples
	Slopes               map[string]float64 `json:"slopes"`               // "log in region" → slope
	Checks               map[string]bool    `json:"checks"`
	Why                  map[string]string  `json:"why,omitempty"` // for each check that does not hold
	Seconds              float64            `json:"seconds"`       // the whole run
}

// Holds reports whether every check holds.
func (r *Result) Holds() bool {
	for _, name := range checks {
		if !r.Checks[name] {
			return false
		}
	}
	return true
}

// Failed lists the checks that do not hold.
func (r *Result) Failed() []string {
	var failed []string
	for _, name := range checks {
		if !r.Checks[name] {
			failed = append(failed, name)
		}
	}
	return failed
}

func newResult() Result {
	return Result{Codes: map[api.Code]int{}, Slopes: map[string]float64{}, Checks: map[string]bool{}, Why: map[string]string{}}
}

// verdict notes a check; why is told when it does not hold. A check that is noted
// twice holds only if both do.
func (r *Result) verdict(name string, holds bool, why string) {
	before, told := r.Checks[name]
	r.Checks[name] = holds && (before || !told)
	if !holds && r.Why[name] == "" {
		r.Why[name] = why
	}
}

func (r *Result) writeJSON(w io.Writer) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// tell prints the checks in plain words.
func (r *Result) tell(say func(format string, args ...any)) {
	words := map[string]string{
		CheckEgressWithheld: "resident records were held back before they left",
		CheckIngressRefuses: "one sent past that was refused on arrival",
		CheckFloorRefuses:   "also when the rules said yes: the boundary itself refused it",
		CheckDedupe:         "records sent again were stored once",
		CheckAckAfterSync:   "every ack left after its record was on disk",
		CheckLedger:         "what producers were told is what is stored",
		CheckCanary:         "no resident byte in any file of another region",
		CheckCanaryAtHome:   "every resident record was found at home (the search works)",
		CheckLinks:          "no resident byte on a link but towards its boundary (the probes were heard)",
		CheckSlope:          "cut off, the lag grew one second per second",
	}
	for _, name := range checks {
		mark := "yes"
		if !r.Checks[name] {
			mark = "NO "
		}
		say("  %s  %-16s %s", mark, name, words[name])
		if why := r.Why[name]; why != "" {
			say("       %s", why)
		}
	}
}

// codeList is "RESIDENCY_DENIED 3, UNKNOWN_TAG 2".
func codeList(codes map[api.Code]int) string {
	parts := make([]string, 0, len(codes))
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		parts = append(parts, fmt.Sprintf("%s %d", c, codes[c]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
