package node

import (
	"context"
	"slices"

	"domicile/api"
	"domicile/gateway/admin"
	"domicile/gateway/door"
	"domicile/gateway/failover"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// openFailover makes what operators move logs with; where the manifest names no authority
// it says that nothing moves.
func (n *Node) openFailover(context.Context) error {
	n.moves = &admin.Failover{Caller: caller, Authority: n.authorityWords}
	if n.placer == nil {
		return nil
	}
	n.moves.Service = failover.New(failover.Config{
		Self: n.cfg.Region, Federation: n.federation, Placements: n.placer, Facts: n.moveFacts, Audit: n.auditMove,
		Verifier: &approval.Verifier{Federation: n.federation.Name(), Trust: n.identity, Rules: n.operators(), Clock: (*ends)(n)},
		Clock:    n.seams.Clock, Pace: n.seams.Pace, Logger: n.logger,
	})
	return nil
}

// approved refuses a move under way whose approvals do not hold by this node's own trust.
func (n *Node) approved(id api.LogID, l placement.Log) error {
	if n.moves == nil || n.moves.Service == nil {
		return nil
	}
	return n.moves.Service.Approved(id, l)
}

// operators are the roles of node.yaml. Under --dev the one caller has all of them, and
// nobody else can sign.
func (n *Node) operators() approval.Rules {
	if n.seams.Dev {
		return approval.Rules{{Match: "dev", Roles: []string{approval.Operator, approval.Incident, approval.Compliance}}}
	}
	return n.cfg.Operators
}

// authorityWords is whether the authority answers this node, as people read it.
func (n *Node) authorityWords() (answers bool, words string) {
	switch ago, reached, heard := n.placer.Answered(); {
	case reached:
		return true, "the authority answers"
	case heard:
		return false, "the authority has not answered this node for " + regions.Span(n.seams.Pace.Of(ago))
	}
	return false, "the authority has not answered this node since it started"
}

func caller(ctx context.Context) string {
	who, _ := door.Caller(ctx)
	return who.Name
}

// auditMove notes in this region's audit what an operator does to a log's place.
func (n *Node) auditMove(ctx context.Context, a failover.Act) (func(error), error) {
	begun, err := n.begin(ctx, act{Act: a.Name, Topic: a.Log.Topic, Forced: a.Forced, Reason: a.Reason, Plan: a.Plan, Logs: []actLog{{Log: a.Log.String()}}})
	return func(err error) { n.finish(begun, err) }, err
}

// moveFacts is what this node knows of a log that is to be moved.
func (n *Node) moveFacts(ctx context.Context, l placement.Log, r failover.Request) (failover.Facts, error) {
	t := n.turn.Load()
	if t == nil {
		return failover.Facts{}, n.notHere("plan move")
	}
	_, reached, _ := n.placer.Answered()
	f := failover.Facts{Reachable: reached, Up: t.heard, Digests: t.digestsOf(r.Log.Topic), Copies: t.copiesOf(r.Log, l.Home), All: t.target.Whole(r.Log)}
	g := n.gate.Current()
	if g == nil {
		return f, &api.Error{Code: api.PolicyUnavailable, Op: "plan move", Topic: r.Log.Topic, Region: n.cfg.Region, Hint: "without a policy nobody can say where the log may rest: domicile policy check DIR"}
	}
	var stored []string
	if log, _ := t.logs.find(r.Log); log != nil {
		var err error
		if stored, err = n.stock.Tags(ctx, log); err != nil {
			return f, err
		}
	}
	f.Denied = g.MayHold(n.federation.Snapshot(), r.Log, l.Home, r.Target, stored)
	return f, nil
}

// heard reports whether a region is in reach, this one included.
func (t *turn) heard(region string) bool {
	if region == t.cfg.Region {
		return true
	}
	link, ok := t.mesh.Status(region)
	return ok && link.Up
}

// digestsOf is how each region in reach declares a topic.
func (t *turn) digestsOf(topic string) map[string]string {
	out := map[string]string{t.cfg.Region: t.federation.TopicDigest(topic)}
	for _, link := range t.mesh.Statuses() {
		if link.Up && link.Hello != nil {
			out[link.Peer] = link.Hello.TopicDigests[topic]
		}
	}
	return out
}

// copiesOf is what is known here of each region's part of a log, by region.
func (t *turn) copiesOf(id api.LogID, home string) []failover.Copy {
	var out []failover.Copy
	mine, here := t.target.Lag(id)
	for _, region := range slices.Sorted(slices.Values(append(t.federation.Targets(id), home))) {
		c := failover.Copy{Region: region, Home: region == home}
		switch {
		case c.Home && region == t.cfg.Region:
			if log, ok := t.logs.home(id); ok {
				c.Known, c.Sequence = true, log.Head().Sequence
			}
		case c.Home:
			c.Known, c.Sequence = here && mine.RecordsKnown, mine.Head
		case region == t.cfg.Region && here:
			c = seenAtTarget(c, &mine)
		case home == t.cfg.Region:
			if lag, ok := t.source.Lag(id, region); ok {
				c = seenAtHome(c, &lag)
			}
		default:
			c.Cause = "known there and in " + home + " only"
		}
		out = append(out, c)
	}
	return out
}

// seenAtTarget is what this region knows of its own copy. Seconds that are not trusted are
// none.
func seenAtTarget(c failover.Copy, l *regions.Lag) failover.Copy {
	c.Known, c.Sequence, c.Safe = true, l.Cursor, l.SafeTime
	c.LagKnown, c.Lag, c.LagError = l.StalenessKnown && l.SecondsTrusted, l.Staleness, l.StalenessError
	c.Pending, c.PendingKnown, c.Withheld, c.Damaged = l.Records, l.RecordsKnown, l.Ledger.Withheld, l.Ledger.Damaged
	return because(c, l)
}

// seenAtHome is what the home knows of a copy: what it has not confirmed.
func seenAtHome(c failover.Copy, l *regions.Lag) failover.Copy {
	c.Known, c.Sequence = l.RecordsKnown, l.Cursor
	c.LagKnown, c.Lag = l.ExposureKnown, l.Exposure
	c.Pending, c.PendingKnown, c.Withheld, c.Damaged = l.Records, l.RecordsKnown, l.Ledger.Withheld, l.Ledger.Damaged
	return because(c, l)
}

func because(c failover.Copy, l *regions.Lag) failover.Copy {
	if l.State != regions.LagCaughtUp && l.State != regions.LagCatchingUp {
		c.Cause = string(l.State)
		if l.Cause != "" {
			c.Cause += ": " + l.Cause
		}
	}
	return c
}
