package drill

import (
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// Draft is a plan to isolate a region from all that it has links with: every topic is
// published where its records may rest, and what the failover rules have to answer follows
// from the topics' own declarations. rate is how many records a second each region gets;
// it is spread over the region's feeds, at least one a second for each.
func Draft(f *Federation, isolate string, rate int, reason string) (Plan, error) {
	p := NewPlan()
	p.Isolate, p.Reason = isolate, reason
	if most := time.Duration(f.Drill[f.regions()[0]].GetMaxForNano()); most > 0 {
		p.For = min(p.For, max(most-p.Lease, p.Lease)) // the lease in which it heals counts too
	}
	where := f.Drill[f.regions()[0]].GetMap()
	for _, r := range where.GetRegions() {
		if r.GetName() == isolate {
			p.Peers = r.GetPeers()
		}
	}
	if len(p.Peers) == 0 {
		return Plan{}, &api.Error{Code: api.UnknownRegion, Op: "plan drill", Field: "isolate", Value: isolate, Hint: "a region of the federation that has links"}
	}
	resolved := f.resolve(&p, "")
	for i, m := range f.Topics {
		p.feed(resolved, &resolved.Topics[i], m.GetCombinations(), f.regions())
		p.expect(&resolved.Topics[i])
	}
	perRegion := map[string]int{}
	for _, x := range p.Feeds {
		perRegion[x.Region]++
	}
	for i := range p.Feeds {
		p.Feeds[i].Rate = max(rate/perRegion[p.Feeds[i].Region], 1)
	}
	return p, p.Check()
}

// feed adds a row of records for each combination of tags at each region that would store
// them itself, and one for resident records at the first region that would have to hand
// them over the cut.
func (p *Plan) feed(plan *history.Plan, t *history.Topic, combinations, all []string) {
	for _, combo := range combinations {
		words, bound, ok := tagsOf(combo)
		if !ok {
			continue
		}
		crossed := false
		for _, region := range all {
			home := homeOf(plan, t, region, bound)
			crosses := home != "" && severed(plan, region, home)
			if home != region && (!crosses || crossed) {
				continue
			}
			crossed = crossed || crosses
			p.Feeds = append(p.Feeds, Feed{Region: region, Topic: t.Name, Tags: words, Size: 256})
		}
	}
}

// tagsOf reads a combination of tags, and the residency in it. It is not ok if it is of a
// newer version.
func tagsOf(combo string) (words map[string]string, bound string, ok bool) {
	tags, err := api.ParseTagString(combo)
	words = map[string]string{}
	for _, tag := range tags {
		words[tag.Name] = tag.Value
	}
	return words, words[regions.ResidencyTag], err == nil
}

// expect adds what the rules have to say of a topic's logs.
func (p *Plan) expect(t *history.Topic) {
	for _, l := range t.Logs {
		all := append(slices.Clone(t.Targets), l.Copies...)
		slices.Sort(all)
		switch {
		case len(t.Resident) > 0:
			p.Expect = append(p.Expect, Expect{Topic: t.Name, Log: l.Log, At: history.Always, Want: history.Denied, Why: history.WhyResides})
		case t.Mode == "never":
			p.Expect = append(p.Expect, Expect{Topic: t.Name, Log: l.Log, At: history.Always, Want: history.Denied, Why: "declared"})
		case l.Home == p.Isolate:
			for _, target := range slices.Compact(all) {
				if !slices.Contains(t.Targets, target) || !slices.Contains(p.Peers, target) {
					continue
				}
				for _, at := range []string{history.Before, history.AtCut, history.HalfRPO} {
					p.Expect = append(p.Expect, Expect{Topic: t.Name, Log: l.Log, Target: target, At: at, Want: history.Allowed})
				}
				if 2*t.RPO < p.For {
					p.Expect = append(p.Expect, Expect{Topic: t.Name, Log: l.Log, Target: target, At: history.TwiceRPO, Want: history.Denied, Why: history.WhyLag})
				}
			}
		}
	}
}
