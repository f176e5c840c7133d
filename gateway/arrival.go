package gateway

import (
	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// arrival is a forwarded record at its home.
type arrival struct {
	regions.Forward
	gateway *Gateway
	peer    string
	topic   *regions.Topic
	leave   func() // nil until judged
	done    func(api.Ack, error)
}

func (a *arrival) check() error {
	t, err := a.gateway.topic(a.Record.Topic)
	if err != nil {
		return err
	}
	a.topic = t
	if err := a.Record.Check(); err != nil {
		a.gateway.Refused.Add(a.peer, regions.LaneForward, regions.Malformed)
		return err
	}
	if !eachOnce(a.Record.Tags) {
		a.gateway.Refused.Add(a.peer, regions.LaneForward, regions.Malformed)
		return a.refuse(api.BadTag, "tags", "one value per dimension")
	}
	if a.Record.ID == "" {
		a.gateway.Refused.Add(a.peer, regions.LaneForward, regions.Malformed)
		return a.refuse(api.BadID, "id", "a forwarded record has an id")
	}
	if p := a.Principal; p.Kind != "client" || p.Place != "" && p.Place != a.peer {
		a.gateway.Refused.Add(a.peer, regions.LaneForward, regions.NotTheirs)
		return a.refuse(api.PermissionDenied, "principal", "a region speaks for clients of its own place only")
	}
	s, ok := a.gateway.Links.Status(a.peer)
	if !ok {
		return a.refuse(api.PermissionDenied, "region", "federation.yaml has no link with the region")
	}
	return a.gateway.agreed(t, s)
}

// eachOnce reports whether no tag is given twice, as after any region's admission.
func eachOnce(tags []api.Tag) bool {
	given := map[string]bool{}
	for i := range tags[:min(len(tags), policy.MaxDimensions)] {
		given[tags[i].Name] = true
	}
	return len(given) == len(tags)
}

// judge decides as if the record had been published here on the peer's behalf, and
// agrees only to the very log that the peer chose.
func (a *arrival) judge(pass *policy.Pass) (Route, string, error) {
	g := a.gateway
	if pass.TooOld(a.Serial) {
		return Route{}, "", a.refuse(api.PolicySkew, "policy", "it was let through under "+a.Revision+", and an older policy than "+pass.Revision()+" is not taken here; it passes once both have the same")
	}
	adm, err := pass.Admit(&a.Record, a.Principal, a.peer)
	if err != nil && pass.Serial() > 0 && pass.Behind(a.Serial, a.Revision) {
		return Route{}, "", a.refuse(api.PolicySkew, "policy", "it was let through under "+a.Revision+", and "+pass.Revision()+", which is older, denies it here; it is judged anew once this region has the newer one")
	}
	if err != nil {
		return Route{}, "", err
	}
	route, err := FindRoute(a.topic, g.Placement, adm, a.peer)
	if err != nil {
		return Route{}, "", err
	}
	for _, r := range FindDetours(a.topic, g.Federation, g.Placement, adm, route) {
		if r.Log == a.Log { // whether the first choice is cut off only the peer can see
			route = r
		}
	}
	if route.Log != a.Log {
		return Route{}, "", a.refuse(api.PolicySkew, "log", "the two regions' policies send it to different logs; it passes once both have the same revision")
	}
	if route.Home != g.Self {
		return Route{}, "", a.refuse(api.HomeUnreachable, "log", "this region is not the log's home; send it again with the same id")
	}
	if err := a.passed(pass); err != nil {
		return Route{}, "", err
	}
	return route, adm.Revision, InSet(a.topic, g.Federation, adm, route)
}

// passed refuses a record that may not have passed through the memory of the region that forwards
// it. Under this very policy and map that region's own door forwards none, so such a refusal counts
// against it; under another it is judged anew once both have the same.
func (a *arrival) passed(pass *policy.Pass) error {
	err := pass.Passed(&a.Record, a.Principal, a.peer)
	switch link, _ := a.gateway.Links.Status(a.peer); {
	case api.CodeOf(err) != api.TransitDenied:
	case a.Revision == pass.Revision() && link.Hello != nil && link.Hello.ManifestDigest == a.gateway.Federation.Digest():
		a.gateway.Refused.Add(a.peer, regions.LaneForward, regions.Impossible)
	default:
		return a.refuse(api.PolicySkew, "policy", "by "+pass.Revision()+" it may not pass through "+a.peer+", which let it through under another policy or manifest; it passes or is refused there once both have the same")
	}
	return err
}

func (a *arrival) refuse(code api.Code, field, hint string) error {
	return &api.Error{Code: code, Op: "take forwarded record", Topic: a.Record.Topic, Region: a.gateway.Self, Field: field, Hint: hint}
}

func (a *arrival) settle(ack api.Ack, err error) {
	name := ""
	if a.topic != nil {
		name = a.topic.Name
	}
	a.gateway.Counters.Took(a.peer, name, api.CodeOf(err))
	a.done(ack, withoutCause(err))
	if a.leave != nil {
		a.leave()
	}
	a.gateway.leave()
}

// withoutCause drops the cause of an error before it goes to another region: its
// text was written for this region's eyes.
func withoutCause(err error) error {
	e, ok := err.(*api.Error)
	if !ok || e.Err == nil {
		return err
	}
	bare := *e
	bare.Err = nil
	return &bare
}
