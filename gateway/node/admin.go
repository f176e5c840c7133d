package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/admin"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/identity"
)

// openAdmin gathers what operators see. It is built before what it reports on: until
// a part is there its figures are unknown.
func (n *Node) openAdmin(ctx context.Context) error {
	var err error
	if n.pages, err = n.openPages(ctx); err != nil {
		return err
	}
	config := admin.Config{
		Region: n.cfg.Region, Version: n.seams.Version, Federation: n.federation, Placement: n.federation,
		Sources: admin.Sources{
			Seat: n.seatState, Links: n.linkStatuses, Lags: n.allLags, Holdings: n.holdings, Policy: n.policyState, Storage: n.storageState,
			Certificates: n.certificates, ClockStep: n.clockStep, Clock: n.fabric.Clock, Warnings: n.warnings, Gossip: n.gossiped, Refused: n.refused.Totals, Combinations: n.combinations, Drill: n.drills.State,
		},
		Explain: n.explain, Reload: n.reload, ActivatePolicy: n.activatePolicy, PolicyStatus: n.policyStatus, PolicyTable: n.policyTable, Traffic: n.trafficHours, ReloadManifest: n.reloadManifest, Delete: n.deleteTopic, Purge: n.purgeTopic, Verify: n.verifyTopic,
		Authority: n.authorityState, Placed: n.placedLogs, Lease: n.lease, Listener: n.pages, Clock: n.seams.Clock, Logger: n.logger,
	}
	if n.out != nil {
		config.Ask = n.ask
	}
	n.admin = admin.New(config)
	n.onClose("pages", func(ctx context.Context) error {
		err := n.admin.Close(ctx)
		_ = n.pages.Close() // still open only if the pages were never served
		return err
	})
	n.serveAsks()
	n.openPlacings()
	return nil
}

// openPages opens the listener of metrics and health: plain on a loopback address,
// where a scraper of this machine reads it, and anywhere else for certificates of
// clients and operators only. The pages name topics and regions.
func (n *Node) openPages(ctx context.Context) (net.Listener, error) {
	l, err := n.listen(ctx, "listen.metrics", n.cfg.Listen.Metrics)
	if err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(n.cfg.Listen.Metrics); n.seams.Dev || err == nil && loopback(host) {
		return l, nil
	}
	config := n.identity.ServerTLS(identity.Client, identity.Operator)
	config.NextProtos = append(config.NextProtos, "http/1.1")
	return tls.NewListener(l, config), nil
}

// lags is a turn as the gateway's source of lag.
type lags turn

// Lag is the lag of this region's copy of a log.
func (l *lags) Lag(id api.LogID) regions.Lag {
	if lag, ok := l.target.Lag(id); ok {
		return lag
	}
	home, _, _ := l.federation.Home(id)
	return regions.Lag{Log: id, Home: home, Target: l.cfg.Region, State: regions.LagUnknown}
}

// seatState is the region's seat as this node knows it.
func (n *Node) seatState() admin.Seat {
	seat, _ := n.seats()
	h := n.fabric.Health()
	s := admin.Seat{Open: n.turn.Load() != nil, Quorum: h.Quorum, Node: n.cfg.Node, Holder: seat.Node, Term: seat.Term, Since: seat.Since}
	for _, m := range h.Members {
		sibling := admin.Sibling{Name: m.Node, Self: m.Self, Up: m.Up, Heard: m.Heard}
		if m.Up {
			sibling.Lacks, sibling.Failed = m.Lacks, m.Failed
		}
		s.Nodes = append(s.Nodes, sibling)
	}
	if s.Open {
		return s
	}
	s.Hands = n.out != nil && !seat.Mine && seat.Node != ""
	why, err := n.absence()
	if err != nil {
		why += ": " + err.Error()
	}
	s.Reason = why
	return s
}

func (n *Node) linkStatuses() []regions.LinkStatus {
	if t := n.turn.Load(); t != nil {
		return t.mesh.Statuses()
	}
	return nil
}

func (n *Node) allLags() []regions.Lag {
	if t := n.turn.Load(); t != nil {
		return append(t.target.Lags(), t.source.Lags()...)
	}
	return nil
}

func (n *Node) holdings() []admin.Holding {
	if t := n.turn.Load(); t != nil {
		return t.logs.holdings()
	}
	return nil
}

func (b *logBook) holdings() []admin.Holding {
	b.mu.RLock()
	homes, copies, synced := maps.Clone(b.homes), maps.Clone(b.copies), maps.Clone(b.synced)
	b.mu.RUnlock() // what a log waits for is asked of the mirror, which asks for logs
	var out []admin.Holding
	for id, log := range homes {
		out = append(out, admin.Holding{Log: log, Home: true, Sync: synced[id].state()})
	}
	for id, log := range copies {
		out = append(out, admin.Holding{Log: log, Sync: synced[id].state()})
	}
	return out
}

func (n *Node) policyState() admin.Policy {
	candidate, problem := n.policies.state()
	s := admin.Policy{Candidate: candidate}
	if problem != nil {
		s.Problem = problem.Error()
	}
	if g := n.gate.Current(); g != nil {
		s.Active, s.Revision, s.Serial = true, g.Revision, g.Serial
	}
	return s
}

func (n *Node) storageState() admin.Storage {
	h := n.fabric.Health()
	overdue := map[string]time.Duration{}
	for _, l := range h.Logs {
		if l.Overdue > 0 {
			overdue[l.Log] = l.Overdue
		}
	}
	s := admin.Storage{Overdue: overdue, Healthy: !h.Failed, Reason: h.Reason, Passes: h.Passes, Used: int64(h.Usage.Bytes), Limit: h.Usage.MaxStore,
		Path: n.cfg.Data, Durability: string(h.Durability)}
	if v := h.Volume; v.Known && !v.Low.IsZero() {
		s.Full = fmt.Sprintf("the data volume has %s free and keeps %s of it, for %s", regions.Bytes(v.Free), regions.Bytes(v.Reserve),
			regions.Span(n.seams.Clock.Now().Sub(v.Low)))
	}
	return s
}

func (n *Node) certificates() []admin.Certificate {
	name := n.identity.Name()
	out := []admin.Certificate{{Name: name.Name, Kind: string(name.Kind), Ends: n.identity.Ends()}}
	for _, s := range n.linkStatuses() {
		if s.Hello != nil && !s.Hello.CertificateEnds.IsZero() {
			out = append(out, admin.Certificate{Name: s.Peer, Kind: "region", Ends: s.Hello.CertificateEnds})
		}
	}
	return out
}

// clockStep is how far the wall clock has moved away from the node's own.
func (n *Node) clockStep() time.Duration {
	if c, ok := n.seams.Clock.(interface{ Step() time.Duration }); ok {
		return c.Step()
	}
	return 0
}

// slowSync is how long a sync may last before status says so.
const slowSync = time.Second

func (n *Node) warnings() []string {
	var out []string
	if err := n.identity.Problem(); err != nil {
		out = append(out, err.Error())
	}
	out = append(out, n.policies.warnings()...)
	h := n.fabric.Health()
	if h.Sync > slowSync {
		out = append(out, "a sync of the data volume has lasted "+regions.Span(h.Sync)+": appends wait for it, and are told OUTCOME_UNKNOWN at their deadline")
	}
	if !h.Volume.Known {
		out = append(out, "the free space of the data volume is not known: records are refused only when a write fails")
	}
	if k := h.Kept; k.Files+k.Over > 0 {
		out = append(out, fmt.Sprintf("%d damaged files of logs were kept as they were in the folder quarantine of the data directory, %s; %d more found no room there", k.Files, regions.Size(k.Bytes), k.Over))
	}
	for _, l := range h.Logs {
		if l.Damaged > 0 {
			out = append(out, fmt.Sprintf("%s: %d records are damaged or missing on this disk, the first at sequence %d; readers and mirrors get a gap", l.Log, l.Damaged, l.Damage[0].From))
		}
		if l.Unread != "" {
			out = append(out, l.Log+": some records can't be read from this disk, and are not taken for lost: "+l.Unread)
		}
		switch {
		case l.Shut != "":
			out = append(out, l.Log+": damaged on this disk and shut; the other logs go on: "+l.Shut)
		case l.Stopped != "":
			out = append(out, l.Log+": "+l.Stopped)
		case !l.FullSince.IsZero():
			out = append(out, l.Log+": full; appends are refused with STORAGE_FULL until retention makes room")
		}
	}
	held := n.shortens(n.federation)
	for _, id := range sortedLogs(held) {
		out = append(out, fmt.Sprintf("%s: federation.yaml keeps less than was in force when this node was stopped, and what was in force is kept (%s): domicile config reload carries it out, or says what it would lose", id, strings.Join(held[id], "; ")))
	}
	return slices.Concat(out, n.placementWarnings(), n.federation.Cautions(), n.keptWarnings())
}

func (n *Node) combinations(topic string) []string {
	g := n.gate.Current()
	if g == nil {
		return nil
	}
	return g.Combinations(topic)
}

func (n *Node) explain(ctx context.Context, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	point, err := policy.ParsePoint(req.GetPoint())
	if err != nil {
		return nil, err
	}
	q := policy.Question{Point: point, Topic: req.GetTopic(), Class: req.GetPrincipalClass(), Place: req.GetPrincipalPlace(),
		Origin: req.GetOrigin(), Target: req.GetTarget()}
	for _, t := range req.GetTags() {
		q.Tags = append(q.Tags, api.Tag{Name: t.GetName(), Value: t.GetValue()})
	}
	if q.Origin == "" {
		q.Origin = n.cfg.Region
	}
	e, err := n.policies.explain(ctx, q)
	if err != nil {
		return nil, err
	}
	return explanationToProto(e), nil
}

func (n *Node) reload(ctx context.Context) (*pb.ReloadResponse, error) {
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	before := n.policyState().Revision
	report, err := n.policies.load(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.ReloadResponse{Changed: report.Revision != before, Revision: report.Revision, Previous: before,
		Cells: uint64(report.Cells), Tests: uint64(report.Tests), Warnings: report.Warnings}, nil
}
