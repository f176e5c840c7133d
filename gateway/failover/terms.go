package failover

import (
	"slices"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/placement"
)

// TermsOf is what a log's declaration and the policy make of moving it. Allowed are the
// regions where every record that routing can put into the log may rest; Targets the
// declared ones among them and the region where the manifest puts the log, so that it can
// come back. It fails with POLICY_UNAVAILABLE while there is no policy (g is nil), and with
// HOME_OUTSIDE_BOUNDARY if no declared target is allowed.
func TermsOf(f *regions.Federation, g *policy.Generation, id api.LogID) (placement.Terms, error) {
	t, ok := f.Topic(id.Topic)
	first, known := f.FirstHome(id)
	switch {
	case !ok || !known || !t.Movable():
		return placement.Terms{}, &api.Error{Code: api.UnknownTopic, Op: "declare log", Topic: id.Topic, Field: "log", Value: id.String(),
			Hint: "federation.yaml has no such log, or it never moves"}
	case g == nil:
		return placement.Terms{}, &api.Error{Code: api.PolicyUnavailable, Op: "declare log", Topic: id.Topic,
			Hint: "without a policy nobody can say where the log may rest: domicile policy check DIR"}
	}
	r := &t.Failover
	out := placement.Terms{Mode: placement.Manual, Isolation: placement.Accept, RPO: r.RPO, Approvals: r.Approvals, Digest: f.TopicDigest(id.Topic),
		Address: address(f, id)}
	if r.FenceAfter > 0 {
		out.Isolation, out.FenceAfter = placement.FenceAfter, r.FenceAfter
	}
	var why error
	for _, region := range f.Regions() {
		err := g.MayHold(f, id, first, region, nil)
		declared := slices.Contains(t.TargetsOf(first), region)
		if err != nil && region != first { // where it is it stays, whatever is in it
			if declared {
				why = err
			}
			continue
		}
		out.Allowed = append(out.Allowed, region)
		if declared || region == first {
			out.Targets = append(out.Targets, region)
		}
	}
	if len(out.Targets) < 2 {
		return placement.Terms{}, why
	}
	return out, nil
}
