package admin

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// ReloadManifest hands the request to the node.
func (a *Admin) ReloadManifest(ctx context.Context, req *pb.ReloadManifestRequest) (*pb.ReloadManifestResponse, error) {
	m, err := a.config.ReloadManifest(ctx, req)
	return m, wire.GRPCError(err)
}

// DeleteTopic hands the request to the node.
func (a *Admin) DeleteTopic(ctx context.Context, req *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	m, err := a.config.Delete(ctx, req)
	return m, wire.GRPCError(err)
}

// PurgeTopic hands the request to the node.
func (a *Admin) PurgeTopic(ctx context.Context, req *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	m, err := a.config.Purge(ctx, req)
	return m, wire.GRPCError(err)
}

// VerifyTopic hands the request to the node.
func (a *Admin) VerifyTopic(req *pb.VerifyTopicRequest, out grpc.ServerStreamingServer[pb.VerifyTopicResponse]) error {
	return wire.GRPCError(a.config.Verify(out.Context(), req, out.Send))
}

// PolicyTable hands the request to the policy's room.
func (a *Admin) PolicyTable(_ *pb.PolicyTableRequest, out grpc.ServerStreamingServer[pb.PolicyTableResponse]) error {
	return wire.GRPCError(a.config.PolicyTable(out.Context(), out.Send))
}

// Traffic hands the request to the policy's room.
func (a *Admin) Traffic(req *pb.TrafficRequest, out grpc.ServerStreamingServer[pb.TrafficResponse]) error {
	return wire.GRPCError(a.config.Traffic(out.Context(), req, out.Send))
}

// Forget drops the counters of a log that is not served any more, and those of its topic
// once topicGone.
func (m *Metrics) Forget(log api.LogID, topicGone bool) {
	vectors := []*prometheus.CounterVec{m.confirmed, m.confirmedBytes, m.applied, m.appliedBytes, m.withheld, m.refused, m.rebuilt, m.clamped}
	for _, v := range vectors {
		v.DeletePartialMatch(prometheus.Labels{"log": log.String()})
	}
	m.crossing.DeletePartialMatch(prometheus.Labels{"log": log.String()})
	if !topicGone {
		return
	}
	for _, v := range []*prometheus.CounterVec{m.published, m.took, m.readRecords, m.readNot} {
		v.DeletePartialMatch(prometheus.Labels{"topic": log.Topic})
	}
}

// lostText names a range that was gone before a copy had it.
func lostText(g regions.Gap) string {
	kind := string(g.Kind)
	if kind == "" {
		kind = "gone" // the copy is told the kind when it comes to the gap
	}
	return fmt.Sprintf("%d records %s before the copy had them: %d to %d", g.Count(), kind, g.From, g.To)
}
