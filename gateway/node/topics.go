package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/mirror"
	"domicile/regions"
)

// removed remembers, of logs whose topic was taken out of the manifest in this turn, what
// targets lacked then: nothing was appended or copied since. Another turn, here or at
// another node, may have served them again. Safe for concurrent use.
type removed struct {
	mu   sync.Mutex
	logs map[api.LogID][]mirror.Uncopied
}

func (r *removed) put(id api.LogID, lacking []mirror.Uncopied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs == nil {
		r.logs = map[api.LogID][]mirror.Uncopied{}
	}
	r.logs[id] = lacking
}

// forget makes it unknown what targets lack of a log.
func (r *removed) forget(id api.LogID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logs, id)
}

func (r *removed) get(id api.LogID) ([]mirror.Uncopied, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lacking, ok := r.logs[id]
	return lacking, ok
}

// held is one log of a topic on this region's disk.
type held struct {
	id   api.LogID
	role regions.Role
	log  regions.Log // nil: it is not open
}

// heldLogs lists what this region holds of a topic, or of one of its logs.
func (t *turn) heldLogs(ctx context.Context, topic, slot string) ([]held, error) {
	var out []held
	for _, log := range t.logs.ofTopic(topic) {
		role := regions.RoleCopy
		if _, ok := t.logs.home(log.ID()); ok {
			role = regions.RoleHome
		}
		out = append(out, held{log.ID(), role, log})
	}
	kept, err := t.fabric.Kept(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		if k.Log.Topic == topic && !slices.ContainsFunc(out, func(h held) bool { return h.id == k.Log }) {
			out = append(out, held{k.Log, k.Role, nil})
		}
	}
	out = slices.DeleteFunc(out, func(h held) bool { return slot != "" && h.id.Slot != slot })
	slices.SortFunc(out, func(a, b held) int { return strings.Compare(a.id.String(), b.id.String()) })
	if len(out) == 0 {
		return nil, &api.Error{Code: api.UnknownTopic, Op: "find logs", Topic: topic, Region: t.cfg.Region, Field: "log", Value: slot,
			Hint: "this region holds nothing of it" + t.deletedText(topic, slot)}
	}
	return out, nil
}

// deletedText says what was held here before it was deleted.
func (t *turn) deletedText(topic, slot string) string {
	for _, s := range append(t.federation.Regions(), api.HomeSlot) {
		if d, ok := t.fabric.Deleted(api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: s}); ok && (slot == "" || slot == s) {
			return fmt.Sprintf("; %s was deleted at %s", d.Log, d.At.Format(time.RFC3339))
		}
	}
	return ""
}

// formerly is what the manifest that was in force a moment ago says of a log that is
// being removed: its flows are still there.
func (t *turn) formerly(id api.LogID, to uint64) []mirror.Uncopied {
	return t.source.UncopiedFlows(id, to)
}

// actWithin bounds one delete or purge at pace 1, whatever becomes of who asked for it.
const actWithin = 10 * time.Minute

// question is what an act asks of one log before anything is done: the last sequence that
// it is about, and in words what is not copied of it.
type question func(context.Context, *turn, held) (to uint64, lacking []string, err error)

// act is what delete and purge have in common: who may, what would be lost, the audit.
// Once it is in the audit it goes on to its end, also if its caller has left.
func (n *Node) act(ctx context.Context, name string, req *pb.TopicActRequest, ask question, do func(context.Context, *turn, held) (*pb.LogAct, error)) (*pb.TopicActResponse, error) {
	if err := errors.Join(checkReason(req.GetForce(), req.GetReason()), regions.CheckName(req.GetTopic())); err != nil {
		return nil, asAPI(err)
	}
	done, err := n.alone()
	if err != nil {
		return nil, err
	}
	defer done()
	t := n.turn.Load()
	if t == nil {
		return nil, n.notHere(name + " topic")
	}
	logs, err := t.heldLogs(ctx, req.GetTopic(), req.GetSlot())
	if err != nil {
		return nil, err
	}
	a := act{Act: name, Topic: req.GetTopic(), Forced: req.GetForce(), Reason: req.GetReason()}
	var texts []string
	for _, h := range logs {
		to, words, err := ask(ctx, t, h)
		if err != nil {
			return nil, err
		}
		texts = append(texts, words...)
		line := actLog{Log: h.id.String(), Role: string(h.role), To: to, NotCopied: words}
		if h.log != nil {
			line.Incarnation, line.From = h.log.Head().Incarnation, h.log.Head().First
		}
		a.Logs = append(a.Logs, line)
	}
	if len(texts) > 0 && !req.GetForce() {
		return nil, notCopied(name+" topic", req.GetTopic(), n.cfg.Region, texts)
	}
	if a, err = n.begin(ctx, a); err != nil {
		return nil, err
	}
	ctx, cancel := n.detached(ctx, actWithin)
	defer cancel()
	out := &pb.TopicActResponse{}
	for _, h := range logs {
		var l *pb.LogAct
		if l, err = do(ctx, t, h); err != nil {
			break
		}
		line := &a.Logs[len(out.Logs)]
		line.Incarnation, line.From, line.To, line.Records = l.Incarnation, l.From, l.To, l.Records
		out.Logs = append(out.Logs, l)
	}
	if err != nil {
		a.Logs, a.Failed = a.Logs[:len(out.Logs)], logs[len(out.Logs)].id.String()
	}
	n.finish(a, err)
	return out, err
}

// detached is for what has to be carried to its end although its caller may leave. It
// ends when the node is closed: what an act had decided by then the next start finishes.
func (n *Node) detached(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	ctx, done := n.whileOpen(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, n.seams.Pace.Of(within))
	return ctx, func() {
		cancel()
		done()
	}
}

func asAPI(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.BadName, Op: "find topic", Field: "topic", Hint: err.Error()}
}

// deleteTopic deletes what this region holds of a topic. A home log has to be out of the
// manifest first: as long as it is declared, producers count on it. A copy that is still
// declared is made anew from its start.
func (n *Node) deleteTopic(ctx context.Context, req *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	return n.act(ctx, "delete", req, func(_ context.Context, t *turn, h held) (to uint64, lacking []string, err error) {
		if h.log != nil {
			to = h.log.Head().Sequence
		}
		if h.role == regions.RoleCopy {
			home, _, _ := n.federation.Home(h.id)
			if home == "" && h.id.Slot != api.HomeSlot {
				home = h.id.Slot
			}
			return to, t.homeHeard(h.id, home), nil
		}
		if n.federation.Role(h.id, n.cfg.Region) == regions.RoleHome {
			return to, nil, &api.Error{Code: api.BadRequest, Op: "delete topic", Topic: h.id.Topic, Region: n.cfg.Region, Field: "topics." + h.id.Topic,
				Hint: strings.Join(append([]string{"it is still declared: take it out of federation.yaml, run `domicile config reload` in every region, then delete"}, missing(h.id, t.source.Uncopied(h.id, to))...), "; ")}
		}
		uncopied, known := t.removed.get(h.id)
		if !known {
			return to, []string{fmt.Sprintf("it is not known how much of %s is copied: since its topic was taken out of the manifest the node has started anew, or the region's seat has moved", h.id)}, nil
		}
		return to, missing(h.id, uncopied), nil
	}, func(ctx context.Context, t *turn, h held) (*pb.LogAct, error) { return t.delete(ctx, h) })
}

// delete takes one log out of the store, and then out of everything that uses it: before
// that, whoever uses it would open it again. Until it is decided the log stays in use.
func (t *turn) delete(ctx context.Context, h held) (*pb.LogAct, error) {
	d, err := t.fabric.Delete(ctx, h.id)
	if _, decided := t.fabric.Deleted(h.id); err != nil && !decided {
		return nil, err
	}
	t.logs.drop(h.id)
	t.retire(h.id)
	t.source.LogsChanged()
	if h.role == regions.RoleCopy {
		t.target.Forget(ctx, h.id)
		err = errors.Join(err, t.tails.Forget(h.id))
	}
	if err != nil {
		return nil, err
	}
	_, declared := t.federation.Topic(h.id.Topic)
	t.admin.Forget(h.id, !declared)
	return &pb.LogAct{Log: wire.LogToProto(h.id), Role: string(h.role), Incarnation: d.Incarnation, To: d.Last, Records: d.Records}, nil
}

// checkRange refuses a purge that does not say what is to go: an empty request must not
// mean everything.
func checkRange(req *pb.TopicActRequest) error {
	said := 0
	for _, given := range []bool{req.GetToSequence() > 0, req.GetBeforeUnixNano() != 0, req.GetAll()} {
		if given {
			said++
		}
	}
	if said != 1 || req.GetBeforeUnixNano() < 0 {
		return &api.Error{Code: api.BadRequest, Op: "purge topic", Topic: req.GetTopic(), Field: "to_sequence",
			Hint: "say what is to go: a last sequence, a time after 1970 before which it came, or all; one of them"}
	}
	return nil
}

// purgeTopic takes records out of the front of the logs of a topic.
func (n *Node) purgeTopic(ctx context.Context, req *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	if err := checkRange(req); err != nil {
		return nil, err
	}
	upTo := map[api.LogID]uint64{}
	return n.act(ctx, "purge", req, func(ctx context.Context, t *turn, h held) (to uint64, lacking []string, err error) {
		if h.log == nil {
			return 0, nil, &api.Error{Code: api.BadRequest, Op: "purge topic", Topic: h.id.Topic, Field: "log", Value: h.id.String(), Hint: "it is kept and not served: domicile topic delete removes it"}
		}
		to = h.log.Head().Sequence
		if req.GetToSequence() > 0 {
			to = min(to, req.GetToSequence())
		} else if at := req.GetBeforeUnixNano(); at > 0 {
			if to, err = h.log.After(ctx, time.Unix(0, at)); err != nil {
				return 0, nil, err
			}
		}
		upTo[h.id] = to
		if h.role == regions.RoleCopy {
			home, _, _ := n.federation.Home(h.id)
			return to, t.homeHeard(h.id, home), nil
		}
		return to, missing(h.id, t.source.Uncopied(h.id, to)), nil
	}, func(ctx context.Context, t *turn, h held) (*pb.LogAct, error) {
		s, err := n.fabric.Purge(ctx, h.id, upTo[h.id])
		if err != nil {
			return nil, err
		}
		return &pb.LogAct{Log: wire.LogToProto(h.id), Role: string(h.role), Incarnation: h.log.Head().Incarnation, From: s.From, To: s.To, Records: s.Records}, nil
	})
}

// keptWarnings name the logs on disk that nobody asks for.
func (n *Node) keptWarnings() []string {
	t := n.turn.Load()
	if t == nil {
		return nil // none is open: none is kept
	}
	kept, err := n.fabric.Kept(context.Background())
	if err != nil {
		return nil
	}
	topics := map[string][]string{}
	for _, k := range kept {
		topics[k.Log.Topic] = append(topics[k.Log.Topic], fmt.Sprintf("%s (%s)", k.Log, k.Role))
	}
	var out []string
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		out = append(out, fmt.Sprintf("kept on disk and served to nobody, as federation.yaml does not name it: %s; domicile topic delete %s removes it", strings.Join(topics[topic], ", "), topic))
	}
	return out
}
