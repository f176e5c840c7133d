package admin

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"domicile/regions"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	lagSeconds      = desc("domicile_mirror_lag_seconds", "Staleness of this region's copy of a log.", "log", "home", "target")
	exposureSeconds = desc("domicile_mirror_exposure_seconds", "Age of the oldest record of this region's log that the target has not confirmed.", "log", "home", "target")
	safeTimeSeconds = desc("domicile_mirror_safe_time_seconds", "Unix time up to which this region's copy is complete, on the origin's clock.", "log", "home", "target")
	pendingRecords  = desc("domicile_mirror_pending_records", "Records that the target does not have yet, as far as this region knows.", "log", "home", "target")
	pendingBytes    = desc("domicile_mirror_pending_bytes", "Bytes that the target does not have yet, as far as this region knows.", "log", "home", "target")
	lossSeconds     = desc("domicile_mirror_seconds_to_loss", "Seconds until retention overtakes the target's copy, or appends are refused, at the present rates; 0: it has begun; no sample where nothing is ahead.", "log", "home", "target", "kind")
	lostRecords     = desc("domicile_mirror_lost_sequences", "Sequences that were gone before the target had them, in this run.", "log", "home", "target")
	mirrorState     = desc("domicile_mirror_state", "1 for the state a flow is in.", "log", "home", "target", "state")
	linkUp          = desc("domicile_link_up", "1 if both directions of the link are proven; no sample until the node has tried.", "peer")
	linkRTT         = desc("domicile_link_rtt_seconds", "Round trip of a heartbeat.", "peer")
	linkOffset      = desc("domicile_link_clock_offset_seconds", "The peer's clock minus ours, as measured.", "peer")
	policyActive    = desc("domicile_policy_active", "1 if a policy is active.")
	policySerial    = desc("domicile_policy_serial", "Serial of the active policy.")
	policyRefused   = desc("domicile_policy_refused", "1 if the policy that was tried last was refused, and an older one or none is in force.")
	policyCandidate = desc("domicile_policy_candidate", "1 if the policy directory differs from what was loaded last.")
	certificateDays = desc("domicile_certificate_days_left", "Days until a certificate ends.", "name", "kind")
	seatHeld        = desc("domicile_seat_held", "1 if this node holds the region's seat and has its logs open.")
	seatTerm        = desc("domicile_seat_term", "Term of the region's seat, where it is known.")
	nodeUp          = desc("domicile_node_up", "1 for a node of this region that is heard.", "node")
	regionQuorum    = desc("domicile_region_quorum", "1 if a majority of the region's nodes is heard.")
	gossipMembers   = desc("domicile_gossip_members", "Gateways that are alive as far as the gossip goes, this one among them. Nothing is decided by it.")
	gossipPeers     = desc("domicile_gossip_peers", "Regions that could gossip with this one.")
	gossipHints     = desc("domicile_gossip_hints", "What the gossip suggests to look at; status says it in words.")
	gossipRefused   = desc("domicile_gossip_refused", "Names and members that the gossip turned away in this run.")
	peerRefused     = desc("domicile_peer_refused_total", "What another region said that no correct node says, and that was refused in this run, by the lane it came on and why. The peer is that of the certificate.", "peer", "lane", "reason")
	storageHealthy  = desc("domicile_storage_healthy", "1 if this region's store takes records.")
	storageUsed     = desc("domicile_storage_used_bytes", "Bytes used in this region's store.")
	rtoAge          = desc("domicile_rto_evidence_age_seconds", "Since a drill that has passed moved the topic's log and measured its RTO; absent: never, as far as this node knows.", "topic")
	rtoMeasured     = desc("domicile_rto_measured_seconds", "RTO of the topic in that drill.", "topic")
	evidenceAge     = desc("domicile_evidence_age_seconds", "Since the last isolation drill in which this region took part and that has passed; absent: none is known.")
	evidenceKnown   = desc("domicile_evidence_known", "1 if an isolation drill of this region is known to have passed, 0 if none is; absent: federation.yaml permits no drills.")
	rtoKnown        = desc("domicile_rto_evidence_known", "1 if a drill that has passed is known to have measured the RTO of a topic whose logs may move, 0 if none is; absent: federation.yaml permits no drills.", "topic")
	drillActive     = desc("domicile_drill_active", "1 while a drill is armed or holds links of this region cut.", "drill", "isolate", "phase")
	clockInDoubt    = desc("domicile_clock_in_doubt", "1 while the node's clock is in doubt: no record goes by age.")
	recordsOverdue  = desc("domicile_retention_overdue_seconds", "By how much a log's oldest record has outlived its max_age, by the node's clock, and is kept because that is in doubt; absent: it has not.", "log")
	storageLimit    = desc("domicile_storage_limit_bytes", "Bytes this region's store may use.")
)

// collector reads the figures when they are asked for. What is not known has no
// sample.
type collector struct{ admin *Admin }

// Describe sends nothing: the collector's metrics depend on what is known.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the sources.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	v := c.admin.view(context.Background())
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	collectSeat(&v.Seat, gauge)
	for i := range v.Lags {
		collectLag(&v.Lags[i], v.Region, gauge)
	}
	for _, l := range v.Links {
		if !l.Since.IsZero() {
			gauge(linkUp, truth(l.Up), l.Peer)
		}
		if l.OffsetOK {
			gauge(linkRTT, l.RTT.Seconds(), l.Peer)
			gauge(linkOffset, l.Offset.Seconds(), l.Peer)
		}
	}
	if ask := c.admin.config.Authority; ask != nil {
		collectAuthority(ask(), gauge)
	}
	c.admin.collectPlaced(gauge)
	if g := v.Gossip; g != nil {
		gauge(gossipMembers, float64(len(g.Members)))
		gauge(gossipPeers, float64(g.Peers))
		gauge(gossipHints, float64(len(g.Hints)))
		gauge(gossipRefused, float64(g.Refused))
	}
	collectRefused(v.Refused, out)
	if !slices.Contains(v.Silent, silentPolicy) {
		gauge(policyActive, truth(v.Policy.Active))
		gauge(policyRefused, truth(v.Policy.Problem != ""))
		gauge(policyCandidate, truth(v.Policy.Candidate != ""))
	}
	if v.Policy.Active {
		gauge(policySerial, float64(v.Policy.Serial))
	}
	if d := &v.Drill; d.ID != "" {
		gauge(drillActive, 1, d.ID, d.Spec.Isolate, string(d.Phase))
	}
	collectEvidence(&v, gauge)
	gauge(clockInDoubt, truth(v.Clock.Doubt))
	for _, cert := range v.Certificates {
		gauge(certificateDays, cert.Ends.Sub(v.Now).Hours()/24, cert.Name, cert.Kind)
	}
	if s := v.Storage; s != nil {
		gauge(storageHealthy, truth(s.Healthy && s.Full == ""))
		gauge(storageUsed, float64(s.Used))
		gauge(storageLimit, float64(s.Limit))
		for log, late := range s.Overdue {
			gauge(recordsOverdue, late.Seconds(), log)
		}
	}
}

func collectRefused(refused []regions.PeerRefused, out chan<- prometheus.Metric) {
	for _, r := range refused {
		out <- prometheus.MustNewConstMetric(peerRefused, prometheus.CounterValue, float64(r.Count), r.Peer, string(r.Lane), string(r.Reason))
	}
}

// collectEvidence is what drills have proven here. What none has proven has no age: it is told
// as not known, where drills are permitted.
func collectEvidence(v *View, gauge func(*prometheus.Desc, float64, ...string)) {
	if at := v.Drill.Proof.At; !at.IsZero() {
		gauge(evidenceAge, v.Now.Sub(at).Seconds())
	}
	for _, m := range v.Drill.Measured {
		gauge(rtoAge, v.Now.Sub(m.At).Seconds(), m.Topic)
		gauge(rtoMeasured, m.RTO.Seconds(), m.Topic)
	}
	for _, e := range evidence(v) {
		if e.GetTopic() == "" {
			gauge(evidenceKnown, truth(e.GetDrill() != ""))
		} else {
			gauge(rtoKnown, truth(e.GetDrill() != ""), e.GetTopic())
		}
	}
}

func collectSeat(s *Seat, gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(seatHeld, truth(s.Open))
	if s.Term > 0 {
		gauge(seatTerm, float64(s.Term))
	}
	if s.Node == "" {
		return
	}
	gauge(regionQuorum, truth(s.Quorum))
	for _, n := range s.Nodes {
		gauge(nodeUp, truth(n.Up), n.Name)
	}
}

func collectLag(l *regions.Lag, region string, gauge func(*prometheus.Desc, float64, ...string)) {
	if l.State == regions.LagHome {
		return
	}
	labels := []string{l.Log.String(), l.Home, l.Target}
	gauge(mirrorState, 1, append(labels, string(l.State))...)
	if l.Target == region && l.StalenessKnown {
		gauge(lagSeconds, l.Staleness.Seconds(), labels...)
	}
	if l.Target == region && !l.SafeTime.IsZero() {
		gauge(safeTimeSeconds, float64(l.SafeTime.UnixMicro())/1e6, labels...)
	}
	if l.Home == region && l.ExposureKnown {
		gauge(exposureSeconds, l.Exposure.Seconds(), labels...)
	}
	if l.Home == region {
		collectLoss(l, labels, gauge)
	}
	if l.RecordsKnown {
		gauge(pendingRecords, float64(l.Records), labels...)
	}
	if l.BytesKnown {
		gauge(pendingBytes, float64(l.Bytes), labels...)
	}
}

// collectLoss is for the home, which alone knows what its retention is about to take.
func collectLoss(l *regions.Lag, labels []string, gauge func(*prometheus.Desc, float64, ...string)) {
	switch l.Loss.State {
	case regions.LossNow:
		gauge(lossSeconds, 0, append(labels, "loss")...)
	case regions.LossAhead:
		gauge(lossSeconds, l.Loss.In.Seconds(), append(labels, "loss")...)
	case regions.LossRefusal:
		gauge(lossSeconds, l.Loss.In.Seconds(), append(labels, "refusal")...)
	}
	var lost uint64
	for i := range l.Lost {
		lost += l.Lost[i].Count()
	}
	gauge(lostRecords, float64(lost), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
