package node

import (
	"fmt"
	"strings"

	pb "domicile/api/domicile/v1"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
)

// explained is an explanation as operators get it, with the boundary's own word
// beside the policy's.
func explained(f *regions.Federation, e *opa.Explanation, revision string) *pb.ExplainResponse {
	d := e.Decision
	out := &pb.ExplainResponse{Allow: d.Allow, Code: string(d.Code), Regions: d.Regions, Destination: d.Destination,
		Revision: revision, Floor: floorText(f, e.Question), Trace: e.Trace}
	for _, r := range d.Reasons {
		out.Reasons = append(out.Reasons, reasonText(r))
	}
	for _, u := range e.Rules {
		out.Reasons = append(out.Reasons, fmt.Sprintf("%s %s/%s speaks, %s:%d", u.Set, u.Package, u.Rule, u.File, u.Line))
	}
	return out
}

func reasonText(r policy.Reason) string {
	text := r.Code
	if r.Rule != "" {
		text += " rule " + r.Rule
	}
	if r.Text != "" {
		text += ": " + r.Text
	}
	return text
}

func floorText(f *regions.Federation, q policy.Question) string {
	residency := ""
	for _, t := range q.Tags {
		if t.Name == regions.ResidencyTag {
			residency = t.Value
		}
	}
	floor := f.Floor(residency)
	if len(floor) == 0 {
		return fmt.Sprintf("a record of residency %s may rest nowhere", residency)
	}
	return fmt.Sprintf("a record of residency %s may rest in %s", residency, strings.Join(floor, ", "))
}
