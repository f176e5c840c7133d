package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/fabric"
)

// reloadManifest reads federation.yaml and the policy again, and carries out what
// changed of topics: all of it, or nothing and says why.
func (n *Node) reloadManifest(ctx context.Context, req *pb.ReloadManifestRequest) (*pb.ReloadManifestResponse, error) {
	if err := checkReason(req.GetForce(), req.GetReason()); err != nil {
		return nil, err
	}
	done, err := n.alone()
	if err != nil {
		return nil, err
	}
	defer done()
	next, err := regions.LoadManifest(n.cfg.Federation)
	if err != nil {
		return nil, err
	}
	c := &change{Node: n, turn: n.turn.Load(), next: next, forced: req.GetForce(), reason: req.GetReason()}
	if c.plan, err = regions.PlanChange(n.federation, next, n.cfg.Region); err != nil {
		return nil, err
	}
	c.hold()
	reply := c.describe()
	if !reply.Changed {
		return reply, nil
	}
	if err := c.allowed(ctx); err != nil {
		return nil, err
	}
	if req.GetCheck() {
		p, err := n.policies.judge(ctx, next)
		if err != nil {
			return nil, err
		}
		reply.PolicyRevision = p.Generation.Revision
		return reply, n.gate.Check(p.Generation, next)
	}
	audit, err := n.begin(ctx, act{Act: "reload", Forced: c.forced, Reason: c.reason,
		Before: reply.Previous, After: reply.Digest, Changes: c.plan.Texts(), Logs: c.shortened})
	if err != nil {
		return nil, err
	}
	err = c.carryOut(ctx)
	n.finish(audit, err)
	if err != nil {
		return nil, err
	}
	reply.PolicyRevision, reply.Notes = n.policyState().Revision, append(reply.Notes, c.notes...)
	n.logger.Info("another manifest is in force", "digest", reply.Digest, "before", reply.Previous)
	return reply, nil
}

// change is one reload on its way.
type change struct {
	*Node
	turn      *turn // nil: this node does not hold the seat and opens no log
	next      *regions.Federation
	plan      regions.Plan
	forced    bool
	reason    string
	shorter   map[api.LogID][]string // home logs of the turn that next keeps less of than is in force, and in what
	opened    []api.LogID            // by this change
	fresh     []api.LogID            // of those, the ones that were made
	before    []fabric.LogConfig     // of logs that got more room
	shortened []actLog
	notes     []string
}

// hold adds to the plan what an earlier start could not carry out: a file that keeps less
// of a log than is in force.
func (c *change) hold() {
	c.shorter = c.shortens(c.next)
	for _, id := range sortedLogs(c.shorter) {
		if !slices.ContainsFunc(c.plan.Logs, func(s regions.LogStep) bool { return s.Log == id }) {
			c.plan.Logs = append(c.plan.Logs, regions.LogStep{Log: id, Do: regions.Alter, Role: regions.RoleHome})
		}
		if !slices.ContainsFunc(c.plan.Topics, func(t regions.TopicChange) bool { return t.Topic == id.Topic }) {
			c.plan.Topics = append(c.plan.Topics, regions.TopicChange{Topic: id.Topic, Do: regions.Alter, Fields: c.shorter[id]})
		}
	}
}

// shortens lists the home logs that are open here and of which a manifest keeps less than
// is in force, and in what.
func (n *Node) shortens(f *regions.Federation) map[api.LogID][]string {
	t := n.turn.Load()
	if t == nil {
		return nil
	}
	out := map[api.LogID][]string{}
	for _, log := range t.logs.allHomes() {
		if f.Role(log.ID(), n.cfg.Region) != regions.RoleHome {
			continue // it is removed, which takes nothing
		}
		if less := n.fabric.Shortens(t.logs.config(log.ID(), f)); len(less) > 0 {
			out[log.ID()] = less
		}
	}
	return out
}

func sortedLogs(logs map[api.LogID][]string) []api.LogID {
	return slices.SortedFunc(maps.Keys(logs), func(a, b api.LogID) int { return strings.Compare(a.String(), b.String()) })
}

func (c *change) describe() *pb.ReloadManifestResponse {
	r := &pb.ReloadManifestResponse{Digest: c.next.Digest(), Previous: c.federation.Digest(), PolicyRevision: c.policyState().Revision}
	r.Changed = r.Digest != r.Previous || len(c.shorter) > 0
	for _, t := range c.plan.Topics {
		r.Topics = append(r.Topics, &pb.TopicChange{Topic: t.Topic, What: t.Do, Fields: t.Fields})
	}
	for _, s := range c.plan.Logs {
		r.Logs = append(r.Logs, &pb.LogStep{Log: wire.LogToProto(s.Log), What: s.Do, Role: string(s.Role)})
	}
	return r
}

// allowed refuses, before anything moves, what does not fit into the store and what
// would let retention take records that are not copied.
func (c *change) allowed(ctx context.Context) error {
	if err := c.cfg.Validate(c.next, c.seams.Dev); err != nil {
		return err
	}
	more, err := c.growth(ctx)
	if err != nil {
		return err
	}
	if err := c.fabric.Fits(ctx, more); err != nil {
		return err
	}
	var texts []string
	if c.turn == nil && len(c.plan.Shortened) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%s keeps less by this file: that is carried out by a reload at the node that holds the region's seat", c.plan.Shortened[0]))
	}
	for _, id := range sortedLogs(c.shorter) {
		var lacking []string
		if log, ok := c.turn.logs.home(id); ok {
			lacking = missing(id, c.turn.source.Uncopied(id, log.Head().Sequence))
		}
		texts = append(texts, lacking...)
		c.shortened = append(c.shortened, actLog{Log: id.String(), Role: string(regions.RoleHome), NotCopied: lacking})
	}
	if len(texts) > 0 && !c.forced {
		return notCopied("shorten retention", sortedLogs(c.shorter)[0].Topic, c.cfg.Region, texts)
	}
	return nil
}

// growth is how many more bytes the logs may take after the change.
func (c *change) growth(ctx context.Context) (more int64, err error) {
	kept, err := c.fabric.Kept(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range c.plan.Logs {
		after, _ := c.next.Topic(s.Log.Topic)
		switch s.Do {
		case regions.Declare:
			if !slices.ContainsFunc(kept, func(k fabric.Kept) bool { return k.Log == s.Log }) {
				more += fabric.Need(int64(after.Retention.MaxBytes))
			}
		case regions.Alter:
			before, _ := c.federation.Topic(s.Log.Topic)
			more += max(0, int64(after.Retention.MaxBytes-before.Retention.MaxBytes))
		}
	}
	return more, nil
}

// settleWithin bounds, at pace 1, what has to follow a reload that came to be in force or
// was refused halfway, also if its caller has left.
const settleWithin = 5 * time.Minute

// carryOut opens what is new, flips policy and manifest in one step, and then follows
// with what cannot be refused any more.
func (c *change) carryOut(ctx context.Context) error {
	err := c.policies.adopt(ctx, c.next, c.prepare)
	ctx, cancel := c.detached(ctx, settleWithin)
	defer cancel()
	if err != nil {
		return errors.Join(err, c.undo(ctx))
	}
	if c.turn != nil {
		c.follow(ctx)
	}
	c.policies.changed()
	return nil
}

// prepare opens the logs that are new here and gives more room to those that get it.
func (c *change) prepare(ctx context.Context) error {
	if c.turn == nil {
		return nil
	}
	kept, err := c.fabric.Kept(ctx)
	if err != nil {
		return err
	}
	for _, s := range c.plan.Logs {
		switch s.Do {
		case regions.Declare:
			if err := c.turn.logs.openAs(ctx, s.Log, s.Role, c.next); err != nil {
				return err
			}
			c.opened = append(c.opened, s.Log)
			if !slices.ContainsFunc(kept, func(k fabric.Kept) bool { return k.Log == s.Log }) {
				c.fresh = append(c.fresh, s.Log)
			}
		case regions.Alter:
			cfg, err := c.fabric.InForce(s.Log)
			if err != nil {
				return err
			}
			if after := c.turn.logs.config(s.Log, c.next); after.MaxBytes > cfg.MaxBytes {
				c.before = append(c.before, cfg)
				cfg.MaxBytes = after.MaxBytes
				if err := c.fabric.Alter(ctx, cfg); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// undo closes again what prepare opened, and deletes what it made: nobody could write
// to it.
func (c *change) undo(ctx context.Context) error {
	var errs []error
	for _, id := range c.opened {
		c.turn.logs.drop(id)
		if slices.Contains(c.fresh, id) {
			_, err := c.fabric.Delete(ctx, id)
			errs = append(errs, err)
		} else {
			errs = append(errs, c.fabric.CloseLog(ctx, id))
		}
	}
	for _, cfg := range c.before {
		cfg.Keep = false
		errs = append(errs, c.fabric.Alter(ctx, cfg))
	}
	return errors.Join(errs...)
}

// follow does what the manifest, now in force, asks of the turn.
func (c *change) follow(ctx context.Context) {
	trouble := func(id api.LogID, what string, err error) {
		if err != nil {
			c.logger.Error("a reload left something behind", "log", id.String(), "what", what, "err", err)
			c.notes = append(c.notes, fmt.Sprintf("%s: %s: %v", id, what, err))
		}
	}
	leaving := map[api.LogID]func() bool{} // home logs: what was counted is all there is
	for _, s := range c.plan.Logs {
		switch s.Do {
		case regions.Alter:
			trouble(s.Log, "its bounds could not be changed; the next start does", c.fabric.Alter(ctx, c.turn.logs.config(s.Log, c.federation)))
		case regions.Remove:
			if log, ok := c.turn.logs.home(s.Log); ok {
				end := log.Head().Sequence
				uncopied := c.turn.formerly(s.Log, end)
				c.turn.removed.put(s.Log, uncopied)
				leaving[s.Log] = func() bool { return log.Head().Sequence == end }
				c.notes = append(c.notes, missing(s.Log, uncopied)...)
			}
			c.turn.logs.drop(s.Log)
		}
	}
	c.turn.source.LogsChanged()
	c.turn.target.ManifestChanged(ctx)
	for _, s := range c.plan.Logs {
		if s.Do == regions.Remove {
			err := c.fabric.CloseLog(ctx, s.Log)
			trouble(s.Log, "it was not closed cleanly", err)
			if whole := leaving[s.Log]; whole != nil && (err != nil || !whole()) {
				c.turn.removed.forget(s.Log) // a record in flight came after the count
			}
			_, declared := c.federation.Topic(s.Log.Topic)
			c.admin.Forget(s.Log, !declared)
			c.notes = append(c.notes, fmt.Sprintf("%s is served no more; its data stays: domicile topic delete %s removes it", s.Log, s.Log.Topic))
		}
	}
}
