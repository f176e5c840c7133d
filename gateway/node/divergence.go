package node

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/divergence"
	"domicile/gateway/door"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/fabric"
	"domicile/regions/loss"
	"domicile/regions/placement"
)

// In the data directory: what became of void records, and reports of what moves left behind.
const (
	divergenceFolder = "divergence"
	reportsFolder    = "reports"
)

// readAtOnce is how many records one message of a divergence holds at most.
const readAtOnce, readBytesAtOnce = 256, 1 << 20

// discarding is what two people consent to: the hash of a divergence follows.
const discarding = "discard:"

// divergences is a node as those see it who decide about void records.
type divergences Node

// voids is a turn's store as the desk sees it.
type voids turn

func (t *turn) openDivergence(context.Context) error {
	var err error
	t.voided, err = divergence.New(divergence.Config{Self: t.cfg.Region, Store: (*voids)(t), Dir: filepath.Join(t.cfg.Data, divergenceFolder),
		Closed: t.divergenceClosed, Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger})
	return err
}

// Logs lists the open logs that hold anything void.
func (v *voids) Logs() (out []api.LogID) {
	for _, id := range v.logs.ids() {
		if all, err := v.fabric.Diverged(id); err == nil && len(all) > 0 {
			out = append(out, id)
		}
	}
	return out
}

// Tails is what an open log holds that is void.
func (v *voids) Tails(id api.LogID) (out []divergence.Tail, err error) {
	log, _ := v.logs.find(id)
	all, err := v.fabric.Diverged(id)
	if err != nil || log == nil {
		return nil, err
	}
	for _, d := range all {
		t := divergence.Tail{Log: id, Incarnation: log.Head().Incarnation, Epoch: d.Epoch, End: d.End,
			Tail: loss.Tail{From: d.From, To: d.To, Count: d.Count, Records: d.Records, Bytes: d.Bytes, First: d.First, Last: d.Last, Hash: d.Hash}}
		if s := d.Settled; s != nil {
			t.Decision = &divergence.Decision{How: s.How, Who: s.Who, Reason: s.Reason, At: s.At}
		}
		out = append(out, t)
	}
	return out, nil
}

// Void reads one in order.
func (v *voids) Void(ctx context.Context, id api.LogID, epoch api.Epoch) iter.Seq2[regions.Item, error] {
	return v.fabric.Void(ctx, id, epoch)
}

// Settle puts a decision on record.
func (v *voids) Settle(ctx context.Context, id api.LogID, epoch api.Epoch, hash string, d divergence.Decision) error {
	return v.fabric.Settle(ctx, id, epoch, hash, fabric.Settlement{How: d.How, Who: d.Who, Reason: d.Reason})
}

// Key keys the hashes of ids.
func (v *voids) Key(incarnation string) regions.TailKey { return v.fabric.TailKey(incarnation) }

// divergenceClosed tells the authority what became of a tail, if it knows of it.
func (t *turn) divergenceClosed(ctx context.Context, d divergence.Tail, how string) error {
	if t.placer == nil {
		return nil
	}
	l, ok := t.placer.Log(d.Log)
	if !ok {
		return nil
	}
	for _, known := range l.Divergences {
		if known.Epoch != d.Epoch || known.Region != t.cfg.Region || known.Root != d.Hash || known.Fate != placement.Kept {
			continue
		}
		known.Fate = placement.Fate(how)
		_, err := t.placer.Submit(ctx, placement.Command{Verb: placement.Closed, ID: fmt.Sprintf("%s/%s/%s/%s", l.Incarnation, d.Epoch, placement.Closed, t.cfg.Region),
			Log: l.Incarnation, Expect: l.Epoch, Region: t.cfg.Region, Actor: d.Decision.Who, Reason: d.Decision.Reason, Divergence: &known})
		return err
	}
	return nil
}

// holder is the turn that has the logs open.
func (d *divergences) holder(op string) (*turn, error) {
	if t := d.turn.Load(); t != nil {
		return t, nil
	}
	why, _ := (*Node)(d).absence()
	return nil, &api.Error{Code: api.NotReady, Op: op, Region: d.cfg.Region, RetryAfter: d.seams.Pace.Of(time.Second), Hint: why + "; ask the node that has the logs open"}
}

// find is the log and divergence that a request names.
func (d *divergences) find(ctx context.Context, topic, slot string, epoch *pb.Epoch) (*turn, divergence.Tail, error) {
	t, err := d.holder("find divergence")
	if err != nil {
		return nil, divergence.Tail{}, err
	}
	logs, err := t.heldLogs(ctx, topic, slot)
	if err != nil {
		return nil, divergence.Tail{}, err
	}
	var ids []api.LogID
	for _, h := range logs {
		if all, err := d.fabric.Diverged(h.id); err == nil && len(all) > 0 {
			ids = append(ids, h.id)
		}
	}
	if len(ids) != 1 {
		hint := "nothing of the topic is void here, as far as this region knows: see domicile divergence ls"
		if len(ids) > 1 {
			hint = fmt.Sprintf("%d logs of the topic hold something void here: name one with --log, see domicile divergence ls", len(ids))
		}
		return nil, divergence.Tail{}, &api.Error{Code: api.BadRequest, Op: "find divergence", Topic: topic, Region: d.cfg.Region, Field: "log", Value: slot, Hint: hint}
	}
	tail, err := t.voided.Find(ids[0], wire.EpochFromProto(epoch))
	return t, tail, err
}

// List is everything void that the region holds.
func (d *divergences) List(ctx context.Context, req *pb.ListDivergencesRequest) (*pb.ListDivergencesResponse, error) {
	t, err := d.holder("list divergences")
	if err != nil {
		return nil, err
	}
	tails, err := t.voided.List(req.GetTopic())
	m := &pb.ListDivergencesResponse{Complete: t.knowsEnds(ctx)}
	for i := range tails {
		m.Divergences = append(m.Divergences, d.message(&tails[i]))
	}
	return m, err
}

// knowsEnds reports whether the authority answers and every log here goes by the epochs that
// it ended: all that is void here is known to be then.
func (t *turn) knowsEnds(ctx context.Context) bool {
	if t.placer == nil {
		return true
	}
	if !t.placer.Current() {
		return false
	}
	placed, _ := t.placer.Placements()
	for id, l := range placed {
		log, _ := t.logs.find(id)
		if log == nil {
			if _, held, err := t.fabric.Held(ctx, id); held || err != nil {
				return false
			}
			continue
		}
		if log.Head().Epoch == l.Epoch {
			continue
		}
		tenure, _, err := t.fabric.Tenure(id)
		ends, known := l.Epochs(), tenure.History
		if err != nil || len(ends) > 1 && (len(known) == 0 || known[len(known)-1] != ends[len(ends)-1]) {
			return false
		}
	}
	return true
}

func (d *divergences) message(t *divergence.Tail) *pb.Divergence {
	m := &pb.Divergence{Log: wire.LogToProto(t.Log), Epoch: wire.EpochToProto(t.Epoch), Region: d.cfg.Region, End: t.End, From: t.From, To: t.To,
		Count: t.Count, Records: t.Records, Bytes: t.Bytes, FirstUnixNano: wire.TimeToProto(t.First), LastUnixNano: wire.TimeToProto(t.Last), Hash: t.Hash}
	for _, fate := range loss.Fates() {
		m.Fates = append(m.Fates, &pb.DivergenceFate{Fate: string(fate), Records: t.Fates[fate]})
	}
	if s := t.Decision; s != nil {
		m.Settled, m.Who, m.Reason, m.AtUnixNano = s.How, s.Who, s.Reason, wire.TimeToProto(s.At)
	}
	return m
}

// Read sends the records of one; whole ones only to who may read them here.
func (d *divergences) Read(ctx context.Context, req *pb.ReadDivergenceRequest, send func(*pb.ReadDivergenceResponse) error) error {
	t, tail, err := d.find(ctx, req.GetTopic(), req.GetSlot(), req.GetEpoch())
	if err != nil {
		return err
	}
	who, _ := door.Caller(ctx)
	m, size, sent := &pb.ReadDivergenceResponse{}, 0, uint32(0)
	for e, err := range t.voided.Read(ctx, tail, req.GetAfter()) {
		if err != nil {
			return err
		}
		r := &pb.DivergentRecord{Sequence: e.Found.Sequence, IngestUnixNano: wire.TimeToProto(e.Found.Time), Bytes: e.Found.Bytes, IdHash: e.Found.Hash,
			Fate: string(e.Found.Fate), Code: e.Found.Code, Where: e.Found.Where}
		if req.GetWhole() {
			if err := d.mayRead(&e.Item.Record, who); api.CodeOf(err) == api.PolicyUnavailable {
				return err
			} else if r.Withheld = err != nil; !r.Withheld {
				r.Record, size = wire.RecordToProto(&e.Item.Record), size+e.Item.Size()
			}
		}
		m.Records = append(m.Records, r)
		sent++
		last := sent == req.GetLimit()
		if last || len(m.Records) == readAtOnce || size >= readBytesAtOnce {
			if err := send(m); err != nil || last {
				return err
			}
			m, size = &pb.ReadDivergenceResponse{}, 0
		}
	}
	if len(m.Records) == 0 {
		return nil
	}
	return send(m)
}

func (d *divergences) mayRead(r *api.Record, who regions.Principal) error {
	pass := d.gate.Enter()
	defer pass.Leave()
	return pass.Consume(r, who, d.cfg.Region)
}

// Republish publishes what is nowhere else yet, through this region's gateway.
func (d *divergences) Republish(ctx context.Context, req *pb.RepublishDivergenceRequest, send func(*pb.RepublishDivergenceResponse) error) error {
	who, err := d.actor(ctx, req.GetReason(), req.GetDryRun(), approval.Incident, approval.Operator)
	if err != nil {
		return err
	}
	t, tail, err := d.find(ctx, req.GetTopic(), req.GetSlot(), req.GetEpoch())
	if err != nil {
		return err
	}
	if err := d.atItsDoor(tail.Log); err != nil {
		return err
	}
	if req.GetDryRun() {
		n := tail.Fates[loss.Open] + tail.Fates[loss.Kept] + tail.Fates[loss.Refused]
		return send(&pb.RepublishDivergenceResponse{Divergence: d.message(&tail), Done: true,
			Preview: fmt.Sprintf("%d records of %s would be published as they were, under their own ids; those whose producers have sent them again are there already", n, tail.Log)})
	}
	if c := req.GetPrincipalClass(); c != "" {
		who.Class = c
	}
	a, err := (*Node)(d).begin(ctx, act{Act: "republish", Topic: tail.Log.Topic, Reason: req.GetReason(), Changes: []string{"divergence " + req.GetHash() + " as class " + who.Class}})
	if err != nil {
		return err
	}
	publish := func(ctx context.Context, r api.Record, done func(api.Ack, error)) {
		t.gateway.Publish(ctx, r, who, nil, done)
	}
	tail, err = t.voided.Republish(ctx, tail.Log, tail.Epoch, req.GetHash(), divergence.Decision{Who: a.Who, Reason: req.GetReason()}, publish,
		func(now divergence.Tail) error {
			return send(&pb.RepublishDivergenceResponse{Divergence: d.message(&now)})
		})
	(*Node)(d).finish(a, err)
	if err != nil {
		return err
	}
	return send(&pb.RepublishDivergenceResponse{Divergence: d.message(&tail), Done: true})
}

// actor is who asks, in a role that may, with a reason, as the client of this region that
// the policy judges what is republished as.
func (d *divergences) actor(ctx context.Context, reason string, dryRun bool, roles ...string) (regions.Principal, error) {
	if err := checkReason(!dryRun, reason); err != nil {
		return regions.Principal{}, err
	}
	who, _ := door.Caller(ctx)
	if !d.seams.Dev {
		if err := d.cfg.Operators.Has(who.Name, roles...); err != nil {
			return who, err
		}
	}
	who.Kind, who.Place = "client", d.cfg.Region
	return who, nil
}

// atItsDoor refuses to republish where the record would go to another log than its own.
func (d *divergences) atItsDoor(id api.LogID) error {
	topic, ok := d.federation.Topic(id.Topic)
	if ok && topic.Writes == regions.WritesLocal && id.Slot != d.cfg.Region {
		return &api.Error{Code: api.BadRequest, Op: "republish", Topic: id.Topic, Region: d.cfg.Region, Field: "log", Value: id.String(),
			Hint: "published here its records would go to another log: what " + id.Slot + " holds too is republished there; what only this region has can be exported or discarded, and not be republished in this version"}
	}
	return nil
}

// Discard puts on record that the rest is not wanted, with the consent of another person.
func (d *divergences) Discard(ctx context.Context, req *pb.DiscardDivergenceRequest) (*pb.DiscardDivergenceResponse, error) {
	who, err := d.actor(ctx, req.GetReason(), req.GetDryRun(), approval.Incident)
	if err != nil {
		return nil, err
	}
	t, tail, err := d.find(ctx, req.GetTopic(), req.GetSlot(), req.GetEpoch())
	if err != nil {
		return nil, err
	}
	if req.GetDryRun() {
		n := tail.Fates[loss.Open] + tail.Fates[loss.Kept] + tail.Fates[loss.Refused]
		return &pb.DiscardDivergenceResponse{Divergence: d.message(&tail), Approve: discarding + tail.Hash,
			Preview: fmt.Sprintf("%d records of %s would be given up; they stay on this region's disk until retention takes them", n, tail.Log)}, nil
	}
	people, err := d.approved(req.GetApprovals(), discarding+req.GetHash(), who.Name)
	if err != nil {
		return nil, err
	}
	a, err := (*Node)(d).begin(ctx, act{Act: "discard", Topic: tail.Log.Topic, Reason: req.GetReason(), ApprovedBy: people, Changes: []string{"divergence " + req.GetHash()}})
	if err != nil {
		return nil, err
	}
	tail, err = t.voided.Discard(ctx, tail.Log, tail.Epoch, req.GetHash(), divergence.Decision{Who: a.Who, Reason: req.GetReason()})
	(*Node)(d).finish(a, err)
	if err != nil {
		return nil, err
	}
	return &pb.DiscardDivergenceResponse{Divergence: d.message(&tail)}, nil
}

// approved demands that one person more than the one who asks has consented, and names all
// who have.
func (d *divergences) approved(texts []string, what, asker string) ([]string, error) {
	if d.identity == nil {
		return nil, &api.Error{Code: api.PermissionDenied, Op: "discard", Region: d.cfg.Region, Field: "approvals", Hint: "without certificates nobody can consent: start the node without --dev"}
	}
	var signed []approval.Signed
	for _, text := range texts {
		s, err := approval.Parse(text)
		if err != nil {
			return nil, err
		}
		signed = append(signed, s)
	}
	v := &approval.Verifier{Federation: d.federation.Name(), Trust: d.identity, Rules: d.cfg.Operators, Clock: (*ends)(d)}
	people, refused := v.People(signed, what, asker, approval.Incident, approval.Compliance)
	var names []string
	for _, p := range people {
		names = append(names, p.Name)
	}
	switch {
	case len(names) > 0:
		return names, nil
	case len(refused) > 0:
		return nil, refused[0]
	}
	return nil, &api.Error{Code: api.PermissionDenied, Op: "discard", Region: d.cfg.Region, Field: "approvals",
		Hint: "it takes another person's consent to " + what + ", as incident or compliance: domicile divergence approve"}
}

// TailKey keys the hashes that stand for the ids of a log's records in this region's reports.
func (n *Node) TailKey(incarnation string) regions.TailKey { return n.fabric.TailKey(incarnation) }
