package node

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/policy/traffic"
)

// trafficFolder holds the counts of questions, in the data directory.
const trafficFolder = "traffic"

// What one message of a stream holds, so that none is near the largest message.
const (
	answersPerMessage = 500
	askedPerMessage   = 5_000
)

// openTraffic begins to count what is asked of the policy. A node that cannot keep counts
// works without, and says so when it is asked for them.
func (n *Node) openTraffic() {
	n.gate.Count()
	book, err := traffic.Open(traffic.Config{Dir: filepath.Join(n.cfg.Data, trafficFolder), Asked: n.gate,
		Clock: n.seams.Clock, Doubt: func() bool { return n.fabric.Clock().Doubt }, Pace: n.seams.Pace, Logger: n.logger})
	if err != nil {
		n.logger.Error("questions to the policy are not counted", "err", err)
		return
	}
	n.traffic = book
}

// countTraffic keeps the counts until ctx ends.
func (n *Node) countTraffic(ctx context.Context) {
	if n.traffic != nil {
		n.traffic.Run(ctx)
	}
}

// policyTable sends every answer of the policy in force, all of one generation.
func (n *Node) policyTable(_ context.Context, send func(*pb.PolicyTableResponse) error) error {
	g := n.gate.Current()
	if g == nil {
		return &api.Error{Code: api.PolicyUnavailable, Op: "policy table", Region: n.cfg.Region, Hint: "no policy is active; domicile policy check says what is wrong with the directory"}
	}
	m := &pb.PolicyTableResponse{Region: n.cfg.Region, Revision: g.Revision}
	for q, d := range g.All() {
		m.Answers = append(m.Answers, &pb.PolicyAnswer{Question: questionToProto(q), Allow: d.Allow, Code: string(d.Code),
			Regions: d.Regions, Destination: d.Destination, Reasons: reasonsToProto(d.Reasons)})
		if len(m.Answers) == answersPerMessage {
			if err := send(m); err != nil {
				return err
			}
			m = &pb.PolicyTableResponse{Region: n.cfg.Region, Revision: g.Revision}
		}
	}
	return send(m)
}

// trafficHours sends what was counted since a time, hour by hour.
func (n *Node) trafficHours(_ context.Context, req *pb.TrafficRequest, send func(*pb.TrafficResponse) error) error {
	if n.traffic == nil {
		return &api.Error{Code: api.NotReady, Op: "traffic", Region: n.cfg.Region, Hint: "this node could not open its counts when it started; its log says why"}
	}
	since := n.seams.Clock.Now().Add(-traffic.Keep)
	if req.GetSinceUnixNano() != 0 {
		since = time.Unix(0, req.GetSinceUnixNano())
	}
	return n.traffic.Hours(since, func(h *traffic.Hour) error {
		m := &pb.TrafficResponse{Region: n.cfg.Region, HourUnixNano: wire.TimeToProto(h.Start), CoveredSeconds: h.Covered.Seconds(), Uncounted: h.Uncounted}
		for _, question := range slices.Sorted(maps.Keys(h.Asked)) {
			if len(m.Asked) == askedPerMessage {
				if err := send(m); err != nil {
					return err
				}
				m = &pb.TrafficResponse{Region: m.Region, HourUnixNano: m.HourUnixNano}
			}
			m.Asked = append(m.Asked, &pb.Asked{Question: question, Count: h.Asked[question]})
		}
		return send(m)
	})
}

func questionToProto(q policy.Question) *pb.PolicyQuestion {
	return &pb.PolicyQuestion{Point: q.Point.String(), Topic: q.Topic, Tags: wire.TagsToProto(q.Tags), PrincipalClass: q.Class,
		PrincipalPlace: q.Place, Origin: q.Origin, Target: q.Target}
}

func reasonsToProto(reasons []policy.Reason) (out []*pb.PolicyReason) {
	for _, r := range reasons {
		out = append(out, &pb.PolicyReason{Code: r.Code, Rule: r.Rule, Text: r.Text})
	}
	return out
}

// explanationToProto is an explanation as operators get it.
func explanationToProto(e *opa.Explanation) *pb.ExplainResponse {
	d := e.Decision
	m := &pb.ExplainResponse{Allow: d.Allow, Code: string(d.Code), Regions: d.Regions, Destination: d.Destination,
		Reasons: e.Because(), Floor: e.Floor, Revision: e.Revision, Trace: e.Trace, Because: reasonsToProto(d.Reasons), Obligations: d.Obligations()}
	for _, u := range e.Rules {
		m.Rules = append(m.Rules, &pb.PolicyRule{Set: u.Set, Rule: u.Package + "/" + u.Rule, File: u.File, Line: int32(u.Line),
			Article: u.Article, Owner: u.Owner, ReviewBy: u.ReviewBy})
	}
	return m
}
