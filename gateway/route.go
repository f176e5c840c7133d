package gateway

import (
	"slices"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// Route is where a record goes.
type Route struct {
	Log   api.LogID
	Home  string // the region that owns the log now
	Epoch api.Epoch
}

// FindDetours lists where else a record may go whose route is first, in the order of the
// regions' names: to logs of the topic whose homes lie in the same boundary as first's
// and may keep the record. None unless the topic says route: within_boundary.
func FindDetours(t *regions.Topic, f *regions.Federation, p regions.Placement, adm policy.Admission, first Route) []Route {
	if t.Route != regions.RouteWithinBoundary {
		return nil
	}
	var detours []Route
	area := f.Neighbours(first.Home)
	for _, slot := range area {
		if slot == first.Log.Slot || !slices.Contains(t.Regions, slot) {
			continue
		}
		log := api.LogID{Tenant: first.Log.Tenant, Topic: t.Name, Slot: slot}
		if home, epoch, ok := p.Home(log); ok && slices.Contains(area, home) && adm.MayRest(home) {
			detours = append(detours, Route{Log: log, Home: home, Epoch: epoch})
		}
	}
	return detours
}

// FindRoute picks the log of an admitted record that was published in region origin,
// and the log's home: first the slot, from the topic and the policy's answer alone,
// then the home, from placement alone. A home that may not keep the record is refused
// with HomeOutsideBoundary: placement never widens what policy allows.
func FindRoute(t *regions.Topic, p regions.Placement, adm policy.Admission, origin string) (Route, error) {
	slot := api.HomeSlot
	if t.Writes == regions.WritesLocal {
		var err error
		if slot, err = localSlot(t, adm, origin); err != nil {
			return Route{}, err
		}
	}
	log := api.LogID{Tenant: api.DefaultTenant, Topic: t.Name, Slot: slot}
	home, epoch, ok := p.Home(log)
	if !ok {
		return Route{}, &api.Error{Code: api.UnknownTopic, Op: "route", Topic: t.Name, Field: "log", Value: log.String(),
			Hint: "the federation has no such log"}
	}
	if !adm.MayRest(home) {
		return Route{}, outside(t, home, adm, "the record may not rest at the log's home")
	}
	return Route{Log: log, Home: home, Epoch: epoch}, nil
}

// InSet refuses a record that may not rest in every region that its ack would wait for.
func InSet(t *regions.Topic, f *regions.Federation, adm policy.Admission, r Route) error {
	if t.Sync == nil {
		return nil
	}
	for _, region := range f.SyncSet(r.Log) {
		if !adm.MayRest(region) {
			return outside(t, region, adm, "the topic's sync set needs the record there too, and it may not rest there")
		}
	}
	return nil
}

func localSlot(t *regions.Topic, adm policy.Admission, origin string) (string, error) {
	if adm.MayRest(origin) && slices.Contains(t.Regions, origin) {
		return origin, nil
	}
	d := adm.Destination
	if d == "" {
		return "", outside(t, origin, adm, "the record may not rest where it was published, and the policy names no destination")
	}
	if !adm.MayRest(d) || !slices.Contains(t.Regions, d) {
		return "", outside(t, d, adm, "the policy's destination may not keep the record, or the topic has no log there")
	}
	return d, nil
}

func outside(t *regions.Topic, region string, adm policy.Admission, hint string) error {
	return &api.Error{Code: api.HomeOutsideBoundary, Op: "route", Topic: t.Name, Region: region, Revision: adm.Revision, Hint: hint}
}
