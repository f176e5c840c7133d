package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/oracle"
	"domicile/regions"
)

// Try asks everything that stands before a cut, as a run would, and touches nothing.
func Try(ctx context.Context, c *Config) ([]Cost, error) {
	if err := c.Plan.Check(); err != nil {
		return nil, err
	}
	found, err := Look(ctx, c.Nodes)
	if err != nil {
		return nil, err
	}
	r := &run{Config: *c, found: found, plan: found.resolve(&c.Plan, c.Digest)}
	costs, err := r.check(ctx)
	return costs, errors.Join(err, r.agreed(costs))
}

// Against says what stands against a plan now that has nothing to do with who runs it or who
// has approved: nil if nothing does. It touches nothing.
func Against(ctx context.Context, f *Federation, p *Plan) error {
	r := &run{Config: Config{Plan: *p, Nodes: f.Nodes}, found: f, plan: f.resolve(p, "")}
	return errors.Join(f.sound(p), f.kept(p), r.lasting(ctx))
}

// check asks what may stand against the drill, and what it would cost.
func (r *run) check(ctx context.Context) ([]Cost, error) {
	if _, err := r.sound(ctx); err != nil {
		return nil, err
	}
	costs, err := Predict(ctx, r.found, &r.Plan)
	return costs, errors.Join(err, r.found.kept(&r.Plan), r.permitted(ctx), r.movable(ctx), r.lasting(ctx))
}

// agreed refuses a drill that costs more real records than anybody has said yes to.
func (r *run) agreed(costs []Cost) error {
	var real uint64
	for i := range costs {
		real += costs[i].Refused + costs[i].Delayed
	}
	if real <= r.Plan.ConfirmAbove || r.Confirmed {
		return nil
	}
	return &api.Error{Code: api.PermissionDenied, Op: "begin drill", Field: "confirm_above", Value: fmt.Sprint(r.Plan.ConfirmAbove),
		Hint: fmt.Sprintf("about %d real records would be refused or delayed: say yes with --confirm", real)}
}

// preflight checks, and notes what the drill will cost.
func (r *run) preflight(ctx context.Context) error {
	costs, err := r.check(ctx)
	if err != nil {
		return err
	}
	for i := range costs {
		c := &costs[i]
		for name, n := range map[string]uint64{history.RefusedReal: c.Refused, history.DelayedReal: c.Delayed} {
			r.note(history.Event{Prediction: &history.Figure{Name: name, Topic: c.Topic, Value: float64(n), Unit: "records", Basis: c.Basis}})
		}
	}
	return r.agreed(costs)
}

// permitted asks each node that takes part whether it would be armed: all nodes of a region
// of three, or the cut would be lost with the node that has its links.
func (r *run) permitted(ctx context.Context) error {
	nodes, err := members(r.Nodes, &r.Plan)
	if err != nil {
		return err
	}
	for _, region := range r.found.Drill[r.Plan.Isolate].GetMap().GetRegions() {
		reached := len(slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n.Region != region.GetName() }))
		if has := len(region.GetLinks()); reached > 0 && reached < has {
			return &api.Error{Code: api.ConfigInvalid, Op: "preflight", Region: region.GetName(), Field: "contexts", Value: fmt.Sprint(reached),
				Hint: fmt.Sprintf("the region has %d nodes, and each has to hold the cut: name a context for each", has)}
		}
	}
	return all(ctx, nodes, func(ctx context.Context, n *Node) error { return r.armOne(ctx, n, true) })
}

// sound refuses a federation on which a drill would measure something else than the cut.
func (f *Federation) sound(p *Plan) error {
	refuse := func(region, field, value, hint string) error {
		return &api.Error{Code: api.NotReady, Op: "preflight", Region: region, Field: field, Value: value, Hint: hint}
	}
	first := f.Drill[f.regions()[0]].GetMap()
	for _, region := range f.regions() {
		m, s := f.Drill[region], f.Status[region]
		switch {
		case m.GetMap().GetManifestDigest() != first.GetManifestDigest():
			return refuse(region, "manifest", m.GetMap().GetManifestDigest(), "the regions have different manifests")
		case m.GetMap().GetPolicyRevision() != first.GetPolicyRevision() || first.GetPolicyRevision() == "":
			return refuse(region, "policy", m.GetMap().GetPolicyRevision(), "the regions have different policies in force, or none")
		case m.GetId() != "":
			return refuse(region, "drill", m.GetId(), "another drill is held there")
		case len(m.GetCuts()) > 0:
			return refuse(region, "fault", m.GetCuts()[0].GetPeer(), "a fault gate holds a link already")
		case s.GetStorage() == nil:
			return refuse(region, "storage", "", "it could not say in time how its store is")
		case !s.GetStorage().GetHealthy():
			return refuse(region, "storage", s.GetStorage().GetReason(), "its store does not take records")
		}
		for _, l := range s.GetLinks() {
			if l.GetState() != "up" {
				return refuse(region, "link", l.GetPeer(), "the link is not up: "+l.GetReason())
			}
			if !l.GetOffsetKnown() || !l.GetSecondsTrusted() {
				return refuse(region, "clock", l.GetPeer(), "the clocks of the two are not measured, or are too far apart for seconds to be true")
			}
		}
	}
	return errors.Join(f.apart(), f.exercisable(p))
}

// apart refuses a controller whose way to a region is what a drill cuts.
func (f *Federation) apart() error {
	var links []string
	for _, r := range f.Drill[f.regions()[0]].GetMap().GetRegions() {
		links = append(links, r.GetLinks()...)
	}
	for _, n := range slices.Concat(slices.Collect(maps.Values(f.Nodes)), f.others()) {
		for _, address := range strings.Split(n.Address, ",") {
			if slices.Contains(links, strings.TrimSpace(address)) {
				return &api.Error{Code: api.ConfigInvalid, Op: "preflight", Region: n.Region, Field: "admin", Value: address,
					Hint: "that is the address of a link, which the drill cuts: name the operators' address of the region"}
			}
		}
	}
	return nil
}

// others are the nodes of regions of three that do not have their region's links.
func (f *Federation) others() []*Node {
	var out []*Node
	for _, n := range f.Nodes {
		out = append(out, n.Others...)
	}
	return out
}

// exercisable refuses to move what never moves.
func (f *Federation) exercisable(p *Plan) error {
	for _, x := range p.Exercise {
		i := slices.IndexFunc(f.Topics, func(t *pb.TopicState) bool { return t.GetName() == x.Topic })
		if i < 0 || f.Topics[i].GetDeclaration()["failover.mode"] != "manual" || !slices.Contains(list(f.Topics[i].GetDeclaration()["failover.targets"]), x.To) {
			return &api.Error{Code: api.PlacementRefused, Op: "preflight", Topic: x.Topic, Field: "exercise", Value: x.To, Hint: "the topic's logs do not move there; everything else is asked without moving anything"}
		}
	}
	return nil
}

// watch has the oracle begin to publish what the plan says, to read and to ask.
func (r *run) watch(ctx context.Context) (err error) {
	c := oracle.Config{History: r.history, Plan: r.plan, Every: r.Every}
	for _, name := range r.found.regions() {
		n := r.Nodes[name]
		c.Regions = append(c.Regions, oracle.Region{Name: name, Place: n.Place, Door: n.Door, Admin: cmp.Or(n.Desk, n.Admin)})
	}
	for _, f := range r.Plan.Feeds {
		feed := oracle.Feed{Region: f.Region, Topic: f.Topic, Residency: f.Tags["residency"], Rate: f.Rate, Size: f.Size}
		for name, value := range f.Tags {
			feed.Tags = append(feed.Tags, api.Tag{Name: name, Value: value})
		}
		c.Feeds = append(c.Feeds, feed)
	}
	r.oracle, err = oracle.Start(context.WithoutCancel(ctx), c)
	return err
}

// baseline watches the federation as it is. The oracle goes on until the drill is over.
func (r *run) baseline(ctx context.Context) error {
	before, err := Look(ctx, r.Nodes)
	if err != nil {
		return err
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	if err := pass(ctx, r.Plan.Baseline); err != nil {
		return err
	}
	if err := r.ask(ctx, history.Before, nil); err != nil {
		return err
	}
	now, err := r.sound(ctx)
	if err != nil {
		return errors.Join(r.quick(), err)
	}
	return errors.Join(r.quick(), r.Plan.grown(before, now))
}

// quick refuses to cut where acknowledgements take too long already: the cut would be
// stopped for what it has not done.
func (r *run) quick() error {
	if p99, over := r.slow(0); over {
		return &api.Error{Code: api.NotReady, Op: "baseline", Field: "stop_when.ack_p99", Value: r.Plan.StopWhen.AckP99.String(),
			Hint: fmt.Sprintf("99 of 100 acknowledgements take up to %s without any cut: find out why, or let the plan stop later", regions.Span(p99))}
	}
	return nil
}

// soundWithin is how long a federation may take to be seen sound: an answer that came too
// late on a busy machine is no trouble.
const soundWithin = 15 * time.Second

// sound looks until nothing stands against the drill, and says what did to the last.
func (r *run) sound(ctx context.Context) (*Federation, error) {
	ctx, cancel := context.WithTimeout(ctx, soundWithin)
	defer cancel()
	for {
		now, err := Look(ctx, r.Nodes)
		if err == nil {
			if err = now.sound(&r.Plan); err == nil {
				return now, nil
			}
		}
		if pass(ctx, watchEvery/4) != nil {
			return nil, err
		}
	}
}
