package drill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/regions/identity"
)

// Node is one region as a drill reaches it, at any of its nodes: which of them has its logs
// open is asked again each time.
type Node struct {
	Region  string
	Place   string // the boundary that the door's certificate puts readers in; "": none
	Address string // of its operators' port
	Admin   *client.Client
	Door    *client.Client       // of the region; with one attempt, so that every answer is seen as it was given
	Desk    *client.Client       // of a region of three: whichever of its operators' ports answers; nil: Admin
	Shown   []*identity.Identity // certificates that the clients show; none: they show none
	Name    string               // in a region of three
	Others  []*Node              // the other nodes of a region of three, without Door and Desk: they hold the drill too
}

// title is the node as people are told of it.
func (n *Node) title() string {
	if n.Name == "" {
		return n.Region
	}
	return n.Region + " at node " + n.Name
}

// members are all nodes of the regions that take part in a plan.
func members(nodes map[string]*Node, p *Plan) ([]*Node, error) {
	var out []*Node
	for _, region := range append([]string{p.Isolate}, p.Peers...) {
		n, ok := nodes[region]
		if !ok {
			return nil, unreached(region)
		}
		out = append(append(out, n), n.Others...)
	}
	return out, nil
}

// everyone is all nodes of all regions.
func (f *Federation) everyone() []*Node {
	var out []*Node
	for _, region := range f.regions() {
		out = append(append(out, f.Nodes[region]), f.Nodes[region].Others...)
	}
	return out
}

func unreached(region string) error {
	return &api.Error{Code: api.UnknownRegion, Op: "ask regions", Region: region, Hint: "no context reaches it"}
}

// answerWithin bounds one question to a node.
const answerWithin = 5 * time.Second

// Federation is what the regions say of themselves, asked at one moment.
type Federation struct {
	Nodes  map[string]*Node
	Status map[string]*pb.StatusResponse
	Drill  map[string]*pb.DrillState
	Topics []*pb.TopicState // as the first region has them
}

// Look asks every region. One that does not answer is an error.
func Look(ctx context.Context, nodes map[string]*Node) (*Federation, error) {
	f := &Federation{Nodes: nodes, Status: map[string]*pb.StatusResponse{}, Drill: map[string]*pb.DrillState{}}
	var mu sync.Mutex
	err := each(ctx, nodes, func(ctx context.Context, n *Node) error {
		n, err := seated(ctx, n)
		if err != nil {
			return err
		}
		status, err := n.Admin.Status(ctx)
		if err != nil {
			return err
		}
		state, err := n.Admin.DrillStatus(ctx)
		mu.Lock()
		defer mu.Unlock()
		f.Status[n.Region], f.Drill[n.Region] = status, state
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	first, err := seated(ctx, nodes[f.regions()[0]])
	if err != nil {
		return nil, err
	}
	topics, err := first.Admin.Topics(ctx, "")
	f.Topics = topics.GetTopics()
	return f, err
}

func (f *Federation) regions() []string { return slices.Sorted(maps.Keys(f.Nodes)) }

// each asks all regions at once, each within answerWithin. The error is that of the first
// region, by name, that had one.
func each(ctx context.Context, nodes map[string]*Node, ask func(context.Context, *Node) error) error {
	var list []*Node
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		list = append(list, nodes[name])
	}
	return all(ctx, list, ask)
}

// all asks the nodes at once, each within answerWithin. The error is that of the first that
// had one.
func all(ctx context.Context, nodes []*Node, ask func(context.Context, *Node) error) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			errs[i] = ask(ctx, n)
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", nodes[i].title(), err)
		}
	}
	return nil
}

// resolve is the plan as a history has it, with the topics as they are declared.
func (f *Federation) resolve(p *Plan, digest string) *history.Plan {
	out := &history.Plan{Isolate: p.Isolate, Peers: p.Peers, Planes: p.Planes, Direction: p.Direction, Fault: p.Fault, Gate: p.Gate, Baseline: p.Baseline, For: p.For, Lease: p.Lease,
		Reason: p.Reason, Digest: digest, Bounds: history.Bounds{Busy: p.Bounds.Busy, Idle: p.Bounds.Idle, Clock: p.Bounds.Clock, Beat: time.Second, See: p.Bounds.See, Catch: p.CatchUp}}
	where := f.Drill[f.regions()[0]].GetMap()
	for _, b := range where.GetBoundaries() {
		out.Legal = append(out.Legal, history.Boundary{Name: b.GetName(), Regions: b.GetRegions()})
	}
	for _, region := range f.regions() {
		out.Policies = append(out.Policies, history.Revision{Region: region, Revision: f.Drill[region].GetMap().GetPolicyRevision()})
	}
	for _, t := range f.Topics {
		out.Topics = append(out.Topics, topicOf(t, where))
	}
	for _, e := range p.Expect {
		out.Expect = append(out.Expect, history.Expectation{Topic: e.Topic, Log: e.Log, Target: e.Target, Moment: e.At, Want: e.Want, Why: e.Why})
	}
	for _, x := range p.Exercise {
		out.Exercise = append(out.Exercise, x.Topic)
	}
	return out
}

// topicOf reads what a node says of a topic's declaration.
func topicOf(m *pb.TopicState, where *pb.DrillMap) history.Topic {
	d := m.GetDeclaration()
	span := func(key string) time.Duration {
		v, err := time.ParseDuration(d[key])
		if err != nil {
			return 0 // it is not declared
		}
		return v
	}
	t := history.Topic{Name: m.GetName(), Mode: d["failover.mode"], Targets: list(d["failover.targets"]), RPO: span("failover.rpo"), RTO: span("failover.rto"), Isolation: d["failover.isolation"],
		Route: d["route"], Producers: d["on_home_loss.producers"], Consumers: d["on_home_loss.consumers"], Owner: d["on_home_loss.owner"], Text: d["on_home_loss.text"]}
	if t.Mode == "" {
		t.Mode = "never"
	}
	for _, combo := range m.GetCombinations() {
		if _, bound, ok := tagsOf(combo); ok && bound != history.Global && bound != "" && !slices.Contains(t.Resident, bound) {
			t.Resident = append(t.Resident, bound)
		}
	}
	slices.Sort(t.Resident)
	for _, l := range m.GetLogs() {
		t.Logs = append(t.Logs, history.Log{Log: l.GetLog().GetTopic() + "@" + l.GetLog().GetSlot(), Home: l.GetHome(), Copies: copies(list(d["mirror"]), l.GetHome(), where)})
	}
	return t
}

// copies are the regions of the mirror list that have a link with the log's home.
func copies(mirror []string, home string, where *pb.DrillMap) []string {
	var out []string
	for _, r := range where.GetRegions() {
		if r.GetName() == home {
			for _, peer := range r.GetPeers() {
				if slices.Contains(mirror, peer) {
					out = append(out, peer)
				}
			}
		}
	}
	return out
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
