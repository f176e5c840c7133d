package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// votes refuses what only a region that the manifest has vote may do.
func (p *delegate) votes(op string) error {
	if voters := p.federation.Voters(); !slices.Contains(voters, p.cfg.Region) {
		return &api.Error{Code: api.ConfigInvalid, Op: op, Region: p.cfg.Region, Field: "authority.voters", Value: strings.Join(voters, ","),
			Hint: "federation.yaml does not have this region vote: name it there, in every region's file alike, and start the nodes again"}
	}
	return nil
}

// otherVoters are the regions besides this one that vote, by the authority or the manifest.
func (p *delegate) otherVoters() []string {
	all := append(p.placer.Voters(), p.federation.Voters()...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(r string) bool { return r == p.cfg.Region })
}

// foundAnew has the authority go on, in a later generation, from what this region knows of
// it, because those who decided are lost.
func (p *delegate) foundAnew(ctx context.Context) (*governing, error) {
	const op = "found authority"
	if err := p.votes(op); err != nil {
		return nil, err
	}
	refuse := func(hint string) error {
		return &api.Error{Code: api.PlacementRefused, Op: op, Region: p.cfg.Region, Field: "authority", Hint: hint}
	}
	if p.cfg.Witness(p.federation) {
		return nil, refuse("a witness goes on alone for nobody: found it anew at a region that is left")
	}
	name, generation, version := p.placer.Authority()
	_, reached, heard := p.placer.Answered()
	if v := p.Node.voter.Load(); v != nil && has(v) {
		reached = reached || v.Status().Leader != ""
	}
	others := p.otherVoters()
	lost := func(ctx context.Context) error {
		words, _ := council.GreetAll(ctx, p.mesh.Council(), p.near(others))
		for _, region := range slices.Sorted(maps.Keys(words)) {
			if w := words[region]; w.Led && w.Generation >= generation {
				return refuse("the voter of " + region + " hears a leader: the authority is not lost. domicile control voters add and remove change who votes")
			}
		}
		return nil
	}
	switch {
	case generation == 0:
		return nil, refuse("nothing is known here of an authority, so there is nothing to go on from: domicile control found -c node.yaml begins one")
	case reached:
		return nil, refuse("the authority answers: it is not lost. domicile control voters add and remove change who votes")
	case len(others) == 0:
		return nil, refuse("this region alone decides: start its voter")
	}
	if err := lost(ctx); err != nil {
		return nil, err
	}
	age := "nobody was heard since this node started"
	if ago, _, _ := p.placer.Answered(); heard {
		age = "the authority was heard " + p.seams.Pace.Of(ago).Round(time.Second).String() + " ago"
	}
	says := []string{
		fmt.Sprintf("%s founds the authority anew, as generation %d and its one voter, from what it knows of generation %d (version %d; %s)", p.cfg.Region, generation+1, generation, version, age),
		"moves under way are dropped: each of their logs opens a new epoch at the home that it has",
		"the voters before it, " + strings.Join(others, ", ") + ", are asked to decide nothing more as soon as they are heard, and join with domicile control voters add, one by one",
		"a log that both sides gave to someone meanwhile is CONTESTED: both refuse records until domicile failover resolve",
		"whoever approves vouches that the others are lost: if they are only out of reach, their homes go on by leases of theirs, also those with fence_after, and what they acknowledge after a forced move here is void",
	}
	for _, id := range sortedPlaced(p.placedLogs()) {
		if l, _ := p.placer.Log(id); l.Op != nil && l.Status == placement.Moving {
			says = append(says, fmt.Sprintf("dropped: the %s move of %s to %s, at step %s", l.Op.Kind, id, l.Op.Target, l.Op.Step))
		}
	}
	g := &governing{act: "found", plan: foundingPlan(p.federation.Name(), council.Consent{Region: p.cfg.Region, Before: name, Generation: generation, Version: version, Others: others}),
		says: says, approvals: foundingApprovals, role: approval.Incident, may: []string{approval.Incident}}
	g.do = func(ctx context.Context, who, reason string, people []placement.Approval) error {
		if err := lost(ctx); err != nil {
			return err // it may have come back while people approved
		}
		return p.change(ctx, func() error {
			cache, err := p.latestCache(name, version)
			if err != nil {
				return err
			}
			b := council.Birth{Dir: CouncilDir(p.cfg.Data), Region: p.cfg.Region, Authority: rand.Text(), Voters: []string{p.cfg.Region}, Others: others, Cache: cache,
				Actor: who, Reason: reason, Approvals: people}
			if err := regions.WriteWhole(filepath.Join(p.cfg.Data, followerCache), cache); err != nil {
				return err // what it goes on from outlives the folder that it may have come from
			}
			return p.replaceVoter(b)
		})
	}
	return g, nil
}

// foundingApprovals is how many people have to approve that a region founds the authority anew.
const foundingApprovals = 2

func foundingPlan(federation string, c council.Consent) string {
	return planOf("found", federation, c.Region, c.Before, fmt.Sprint(c.Generation, c.Version), strings.Join(c.Others, ","))
}

// mayFound is asked before this node believes that another region founded the authority anew: by
// its own trust and roles, as if the people had been asked here. What they approved was done,
// so it may have ended since.
func (n *Node) mayFound(c council.Consent) error {
	plan, v, people := foundingPlan(n.federation.Name(), c), n.verifier(), map[string]bool{}
	var refused error
	for _, a := range c.Approvals {
		s, err := approval.Parse(a.Signed)
		var by approval.Consent
		if err == nil {
			by, err = v.Given(s, plan, approval.Incident)
		}
		if err == nil && by.Name != c.Actor {
			people[by.Name] = true
		}
		refused = errors.Join(refused, err)
	}
	if len(people) < foundingApprovals {
		return &api.Error{Code: api.PermissionDenied, Op: "found authority", Region: c.Region, Field: "approvals", Value: fmt.Sprint(len(people)), Err: refused,
			Hint: fmt.Sprintf("%d people have to have approved %s as incident, by the operators of this node.yaml, other than the one who asked", foundingApprovals, plan)}
	}
	return nil
}

// latestCache is the cached state of exactly the authority and version that was looked at.
func (p *delegate) latestCache(name string, version uint64) ([]byte, error) {
	for _, path := range p.caches() {
		if s, data, err := council.LoadCache(path); err == nil && s.Authority() == name && s.Version() == version {
			return data, nil
		}
	}
	return nil, &api.Error{Code: api.Conflict, Op: "found authority", Region: p.cfg.Region, Field: "plan", Hint: "what this region knows has changed since: look again"}
}

// replaceVoter makes the voter's folder, and puts one that is there aside once the new one
// is whole.
func (p *delegate) replaceVoter(b council.Birth) error {
	home := b.Dir
	b.Dir = home + ".new"
	if err := os.RemoveAll(b.Dir); err != nil {
		return err // of a try that was cut short
	}
	if err := council.Create(b); err != nil {
		return err
	}
	if _, err := os.Stat(home); err == nil {
		former := filepath.Join(p.cfg.Data, formerVoters, p.seams.Clock.Now().UTC().Format("20060102T150405.000000000Z"))
		if err := os.MkdirAll(filepath.Dir(former), 0o700); err != nil {
			return err
		}
		if err := os.Rename(home, former); err != nil {
			return err
		}
		p.logger.Warn("this region's former voter is put aside", "dir", former)
	}
	if err := os.Rename(b.Dir, home); err != nil {
		return err
	}
	dir, err := os.Open(p.cfg.Data)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// joinVoters gives this region a vote in the authority that it follows.
func (p *delegate) joinVoters(ctx context.Context) (*governing, error) {
	const op = "add voter"
	if err := p.votes(op); err != nil {
		return nil, err
	}
	name, generation, _ := p.placer.Authority()
	others := p.otherVoters()
	v := p.Node.voter.Load()
	switch {
	case generation == 0:
		return nil, &api.Error{Code: api.NotReady, Op: op, Region: p.cfg.Region, Hint: "nothing was heard of an authority yet, so there is none to join"}
	case v != nil && has(v):
		return nil, &api.Error{Code: api.Conflict, Op: op, Region: p.cfg.Region, Field: "region", Value: p.cfg.Region, Hint: "it votes already"}
	}
	says := []string{fmt.Sprintf("%s joins the voters of generation %d (%s), on this node", p.cfg.Region, generation, strings.Join(others, ", "))}
	mine := v != nil && v.Status().Authority == name && v.Joining()
	if !mine {
		if err := p.hasNoVote(ctx); err != nil {
			return nil, err
		}
	}
	if p.hasVoter() && !mine {
		says = append(says, "the voter's folder that is here is put aside, in "+formerVoters)
	}
	g := &governing{act: "add-voter", plan: planOf("add-voter", p.federation.Name(), p.cfg.Region, name, strings.Join(others, ",")), says: says, role: approval.Incident,
		may: []string{approval.Operator, approval.Incident}}
	g.do = func(ctx context.Context, who, reason string, _ []placement.Approval) error {
		if !mine {
			if err := p.hasNoVote(ctx); err != nil {
				return err
			}
			if err := p.change(ctx, func() error {
				return p.replaceVoter(council.Birth{Dir: CouncilDir(p.cfg.Data), Region: p.cfg.Region, Authority: name, Join: others, Others: others})
			}); err != nil {
				return err
			}
		}
		v := p.Node.voter.Load()
		if v == nil {
			return &api.Error{Code: api.NotReady, Op: op, Region: p.cfg.Region, Hint: "the new voter does not open; status says why"}
		}
		err := v.ChangeVoters(ctx, council.VoterChange{Region: p.cfg.Region, Actor: who, Reason: reason})
		if api.CodeOf(err) == api.PlacementRefused {
			// A voter that nobody gave a vote to must not stand where the region's own is looked for.
			err = errors.Join(err, p.change(ctx, func() error { return os.RemoveAll(CouncilDir(p.cfg.Data)) }))
		}
		return err
	}
	return g, nil
}

// hasNoVote refuses, by the leader's word, to make a voter for a region that votes already:
// one that forgot what it voted for, or a second one in a region of three, would vote twice.
func (p *delegate) hasNoVote(ctx context.Context) error {
	members, err := p.members(ctx)
	if err == nil && slices.Contains(members, p.cfg.Region) {
		err = &api.Error{Code: api.PlacementRefused, Op: "add voter", Region: p.cfg.Region, Field: "voters", Value: strings.Join(members, ","),
			Hint: "it is one of the voters: if its voter is lost, take its vote away first, at another region: domicile control voters remove " + p.cfg.Region + "; if it lives on another node of the region, it votes already"}
	}
	return err
}

// has reports whether a voter has its say.
func has(v *council.Voter) bool {
	_, aside := v.Aside()
	return !aside
}

// removeVoter takes a region's vote away.
func (p *delegate) removeVoter(region string) (*governing, error) {
	const op = "remove voter"
	v := p.Node.voter.Load()
	if v == nil || !has(v) {
		return nil, &api.Error{Code: api.BadRequest, Op: op, Region: p.cfg.Region, Field: "region", Value: region, Hint: "ask a node whose voter has a vote: domicile control voters says which"}
	}
	before := slices.Sorted(slices.Values(v.Status().Voters))
	if !slices.Contains(before, region) {
		return nil, &api.Error{Code: api.BadRequest, Op: op, Field: "region", Value: region, Hint: "it has no vote; those who have: " + strings.Join(before, ", ")}
	}
	g := &governing{act: "remove-voter", plan: removalPlan(p.federation.Name(), v.Status(), region), approvals: removalApprovals,
		role: approval.Incident,
		may:  []string{approval.Operator, approval.Incident}}
	g.says = []string{fmt.Sprintf("%s loses its vote; %d of %d are left", region, len(before)-1, len(before))}
	if len(before) <= 3 {
		g.says = append(g.says, "with fewer than three voters nothing is decided while one is lost")
	}
	g.do = func(ctx context.Context, who, reason string, people []placement.Approval) error {
		return v.ChangeVoters(ctx, council.VoterChange{Region: region, Remove: true, Actor: who, Reason: reason, Approvals: people})
	}
	return g, nil
}

// shortenLog has the voter of this node write its audit out and shorten its log.
func (p *delegate) shortenLog() (*governing, error) {
	const op = "snapshot authority"
	v := p.Node.voter.Load()
	if v == nil {
		return nil, &api.Error{Code: api.BadRequest, Op: op, Region: p.cfg.Region, Hint: "no voter runs on this node: ask a node that has one"}
	}
	s := v.Status()
	says := fmt.Sprintf("the voter of %s writes its audit out and shortens its log: up to %d entries stay before the last, which is %d by now", p.cfg.Region, council.TrailingLogs, s.Entries)
	g := &governing{act: "snapshot", plan: planOf("snapshot", p.federation.Name(), p.cfg.Region, s.Authority), says: []string{says, "what was decided stays as it is, and the other voters keep their own logs"},
		may: []string{approval.Operator, approval.Incident}}
	g.do = func(context.Context, string, string, []placement.Approval) error { return v.Snapshot() }
	return g, nil
}

// removalPlan names the removal of a region from these voters. A region that was added again
// votes by another voter, so no approval of an earlier removal counts against it.
func removalPlan(federation string, s council.Status, region string) string {
	return planOf("remove-voter", federation, s.Authority, region, strings.Join(slices.Sorted(slices.Values(s.Seats)), ","))
}

// removalApprovals is how many people have to approve that a voter goes. However many are left,
// no region does it by itself: what one voter asks of the leader, a liar could.
const removalApprovals = 2

// mayChangeVoters is asked where the leader is: by this node's own manifest, trust and roles.
func (n *Node) mayChangeVoters(c council.VoterChange, _ []string) error {
	if !c.Remove {
		if voters := n.federation.Voters(); !slices.Contains(voters, c.Region) {
			return &api.Error{Code: api.PlacementRefused, Op: "add voter", Region: n.cfg.Region, Field: "authority.voters", Value: strings.Join(voters, ","),
				Hint: "the leader's federation.yaml does not have " + c.Region + " vote: name it there, in every region's file alike"}
		}
		return nil
	}
	v := n.voter.Load()
	if v == nil {
		return n.notHere("change voters")
	}
	g := &governing{act: "remove-voter", plan: removalPlan(n.federation.Name(), v.Status(), c.Region), approvals: removalApprovals,
		role: approval.Incident}
	var texts []string
	for _, a := range c.Approvals {
		texts = append(texts, a.Signed)
	}
	_, err := n.consents(g, c.Actor, texts)
	return err
}

func sortedPlaced(logs map[api.LogID]placement.Log) []api.LogID {
	var out []api.LogID
	for id := range logs {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b api.LogID) int { return strings.Compare(a.String(), b.String()) })
	return out
}
