package drill

import (
	"errors"
	"fmt"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// behindFor is how long a copy across the cut may lack a record, by the plan.
func (p *Plan) behindFor() time.Duration { return p.For + p.Lease + p.CatchUp }

// kept refuses a cut in which age alone takes records from a log before their copies have
// them. What size takes depends on the traffic: it is watched under the cut.
func (f *Federation) kept(p *Plan) error {
	resolved := f.resolve(p, "")
	for i, m := range f.Topics {
		age, err := time.ParseDuration(m.GetDeclaration()["retention.max_age"])
		if err != nil || age == 0 || m.GetDeclaration()["hold"] == "true" || age >= p.behindFor() || !copied(resolved, &resolved.Topics[i]) {
			continue
		}
		return &api.Error{Code: api.NotReady, Op: "preflight", Topic: m.GetName(), Field: "retention.max_age", Value: age.String(),
			Hint: fmt.Sprintf("copies may be behind for %s by this plan, catch-up included, and would miss for good what is older: cut for less long, or declare hold: true", regions.Span(p.behindFor()))}
	}
	return nil
}

// copied reports whether the plan cuts a log of the topic off from one of its copies.
func copied(p *history.Plan, t *history.Topic) bool {
	for _, l := range t.Logs {
		for _, c := range l.Copies {
			if severed(p, l.Home, c) {
				return true
			}
		}
	}
	return false
}

// grown refuses a cut at whose end a store would be fuller than the plan bears, at the pace at
// which it has grown in the baseline, with the drill's own records. A store whose limit is not
// known is left to the watch under the cut.
func (p *Plan) grown(before, now *Federation) error {
	var all error
	for _, region := range now.regions() {
		a, b := before.Status[region], now.Status[region]
		was, is, limit := a.GetStorage().GetUsedBytes(), b.GetStorage().GetUsedBytes(), b.GetStorage().GetLimitBytes()
		took := time.Duration(b.GetNowUnixNano() - a.GetNowUnixNano())
		if a.GetStorage() == nil || b.GetStorage() == nil || limit <= 0 || took <= 0 {
			continue
		}
		pace := max(float64(is-was), 0) / took.Seconds()
		if used := (float64(is) + pace*p.behindFor().Seconds()) * 100 / float64(limit); used > float64(p.StopWhen.StorageAbove) {
			all = errors.Join(all, &api.Error{Code: api.NotReady, Op: "baseline", Region: region, Field: "stop_when.storage_above", Value: fmt.Sprint(p.StopWhen.StorageAbove),
				Hint: fmt.Sprintf("its store has grown by %s a second and would be %.0f %% full %s after the cut began: make room, or cut for less long", regions.Bytes(int64(pace)), used, regions.Span(p.behindFor()))})
		}
	}
	return all
}
