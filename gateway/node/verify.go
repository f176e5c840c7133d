package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/fabric"
)

// auditWithin bounds an audit whose caller bounds it with nothing less.
const auditWithin = 24 * time.Hour

// verifyTopic reads logs that this region holds from its disk and hands over what it
// found of each. A log that can't be read to its end says so; the others are still read.
func (n *Node) verifyTopic(ctx context.Context, req *pb.VerifyTopicRequest, send func(*pb.VerifyTopicResponse) error) error {
	if !n.audit.TryLock() {
		return &api.Error{Code: api.NotReady, Op: "verify", Region: n.cfg.Region, RetryAfter: n.seams.Pace.Of(time.Minute),
			Hint: "another audit is reading this node's disk; ask again when it is through"}
	}
	defer n.audit.Unlock()
	t := n.turn.Load()
	if t == nil {
		why, _ := n.absence()
		return &api.Error{Code: api.NotReady, Op: "verify", Region: n.cfg.Region, RetryAfter: n.seams.Pace.Of(time.Second),
			Hint: why + "; an audit reads the disk of the node that has the logs open"}
	}
	ctx, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(t.over, func() {
		end(&api.Error{Code: api.NotReady, Op: "verify", Region: n.cfg.Region, Hint: "the region's seat moved while the logs were read; ask again"})
	})()
	logs, err := t.audited(ctx, req.GetTopic(), req.GetSlot())
	if err != nil {
		return err
	}
	for _, h := range logs {
		m := &pb.VerifyTopicResponse{Log: wire.LogToProto(h.id), Role: string(h.role), Stopped: "it is kept on disk and not open, as federation.yaml does not name it"}
		if err := n.fabric.Shut(h.id); err != nil {
			report(m, fabric.Verified{}, err)
		}
		if h.log != nil {
			v, err := n.fabric.Verify(ctx, h.id)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			report(m, v, err)
			if err := sendReplicas(m, v, err, send); err != nil {
				return err
			}
			continue
		}
		if err := send(m); err != nil {
			return err
		}
	}
	return nil
}

// sendReplicas hands over what the audit found on this node's disk, and then on those of the
// region's other nodes, which are read as far as this one's.
func sendReplicas(m *pb.VerifyTopicResponse, v fabric.Verified, err error, send func(*pb.VerifyTopicResponse) error) error {
	if err := send(m); err != nil {
		return err
	}
	for _, r := range v.Replicas {
		o := &pb.VerifyTopicResponse{Log: m.GetLog(), Role: m.GetRole()}
		var why error
		switch {
		case r.Stopped != "":
			why = errors.New(r.Stopped)
		case err != nil:
			why = errors.New("the disk of the node with the seat was not read to its end")
		}
		report(o, r, why)
		if err := send(o); err != nil {
			return err
		}
	}
	return nil
}

// audited lists the logs that a request means.
func (t *turn) audited(ctx context.Context, topic, slot string) ([]held, error) {
	if topic != "" {
		if err := regions.CheckName(topic); err != nil {
			return nil, asAPI(err)
		}
		return t.heldLogs(ctx, topic, slot)
	}
	if slot != "" {
		return nil, &api.Error{Code: api.BadRequest, Op: "verify", Field: "slot", Value: slot, Hint: "name the topic too"}
	}
	kept, err := t.fabric.Kept(ctx)
	if err != nil {
		return nil, err
	}
	topics := t.federation.Snapshot().Topics()
	for _, k := range kept {
		topics = append(topics, k.Log.Topic)
	}
	slices.Sort(topics)
	var out []held
	for _, name := range slices.Compact(topics) {
		logs, err := t.heldLogs(ctx, name, "")
		if err != nil && api.CodeOf(err) != api.UnknownTopic {
			return nil, err
		}
		out = append(out, logs...)
	}
	return out, nil
}

func report(m *pb.VerifyTopicResponse, v fabric.Verified, err error) {
	m.From, m.To, m.Records, m.Checked, m.WithoutSum = v.From, v.To, v.Records, v.Checked, v.WithoutSum
	m.Damaged, m.RangesWhole, m.MarkersDamaged, m.Stopped, m.Node = v.Damaged, v.DamageKnown, v.Markers, "", v.Node
	for _, r := range v.Ranges {
		m.Ranges = append(m.Ranges, &pb.SequenceRange{From: r.From, To: r.To})
	}
	if err == nil {
		return
	}
	m.Stopped = err.Error()
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Err != nil {
		m.Stopped = e.Err.Error() + "; " + e.Hint
	}
}
