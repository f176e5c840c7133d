package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"domicile/api"
)

// Metrics holds the registry behind /metrics and counts what the gateway and the
// mirror tell it: it is a gateway.Counters and a mirror.Metrics. It is safe for
// concurrent use.
type Metrics struct {
	registry                                 *prometheus.Registry
	published, took, readRecords, readNot    *prometheus.CounterVec
	handed                                   *prometheus.CounterVec
	confirmed, confirmedBytes                *prometheus.CounterVec
	applied, appliedBytes, withheld, refused *prometheus.CounterVec
	rebuilt, clamped                         *prometheus.CounterVec
	crossing                                 *prometheus.HistogramVec
}

func newMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.published = vec("domicile_publish_total", "Records published in this region, by where they went and what came of them.", "topic", "home", "code")
	m.handed = vec("domicile_handover_total", "Records that this node handed to the one that holds the region's seat, by what came of them.", "code")
	m.took = vec("domicile_forwarded_in_total", "Records that other regions forwarded to here, by what came of them.", "peer", "topic", "code")
	m.readRecords = vec("domicile_read_records_total", "Records given to readers.", "topic")
	m.readNot = vec("domicile_read_withheld_total", "Records that readers may not see.", "topic")
	m.confirmed = vec("domicile_mirror_confirmed_records_total", "Records of this region's logs that a target has on its disk.", "log", "target")
	m.confirmedBytes = vec("domicile_mirror_confirmed_bytes_total", "Bytes of this region's logs that a target has on its disk.", "log", "target")
	m.applied = vec("domicile_mirror_applied_records_total", "Records of other regions' logs that came to rest here.", "log")
	m.appliedBytes = vec("domicile_mirror_applied_bytes_total", "Bytes of other regions' logs that came to rest here.", "log")
	m.withheld = vec("domicile_mirror_withheld_total", "Records that policy keeps from a copy.", "log", "target", "side", "code")
	m.refused = vec("domicile_mirror_refused_batches_total", "Batches from a peer that were not applied.", "log", "peer", "code")
	m.rebuilt = vec("domicile_mirror_rebuilt_total", "Flows that stood still and were made anew.", "log", "target", "hop")
	m.clamped = vec("domicile_mirror_clamped_total", "Ages that would be negative: a clock is off.", "log")
	m.crossing = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "domicile_mirror_crossing_seconds",
		Help: "Time from ingest at the home to this region's disk, one sample per batch, its oldest record.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"log"})
	m.registry.MustRegister(m.crossing)
	return m
}

// Published counts one publish in this region.
func (m *Metrics) Published(topic, home string, code api.Code) {
	m.published.WithLabelValues(topic, home, codeLabel(code)).Inc()
}

// Took counts one record that a peer forwarded to here.
func (m *Metrics) Took(peer, topic string, code api.Code) {
	m.took.WithLabelValues(peer, topic, codeLabel(code)).Inc()
}

// HandedOver counts one record that came in at this node without the seat.
func (m *Metrics) HandedOver(code api.Code) { m.handed.WithLabelValues(codeLabel(code)).Inc() }

// Read counts one batch for a reader.
func (m *Metrics) Read(topic string, records, withheld int) {
	m.readRecords.WithLabelValues(topic).Add(float64(records))
	m.readNot.WithLabelValues(topic).Add(float64(withheld))
}

// Confirmed counts what a target has of this region's log.
func (m *Metrics) Confirmed(log api.LogID, target string, records, bytes int) {
	m.confirmed.WithLabelValues(log.String(), target).Add(float64(records))
	m.confirmedBytes.WithLabelValues(log.String(), target).Add(float64(bytes))
}

// Applied counts what this region has of another's log.
func (m *Metrics) Applied(log api.LogID, records, bytes int) {
	m.applied.WithLabelValues(log.String()).Add(float64(records))
	m.appliedBytes.WithLabelValues(log.String()).Add(float64(bytes))
}

// Withheld counts what policy keeps from a copy.
func (m *Metrics) Withheld(log api.LogID, target, side string, code api.Code, records uint64) {
	m.withheld.WithLabelValues(log.String(), target, side, codeLabel(code)).Add(float64(records))
}

// Refused counts a batch that was not applied.
func (m *Metrics) Refused(log api.LogID, peer string, code api.Code) {
	m.refused.WithLabelValues(log.String(), peer, codeLabel(code)).Inc()
}

// Crossed notes how long a batch's oldest record took.
func (m *Metrics) Crossed(log api.LogID, took time.Duration) {
	m.crossing.WithLabelValues(log.String()).Observe(took.Seconds())
}

// Rebuilt counts a flow that was made anew.
func (m *Metrics) Rebuilt(log api.LogID, target, hop string) {
	m.rebuilt.WithLabelValues(log.String(), target, hop).Inc()
}

// Clamped counts a negative age.
func (m *Metrics) Clamped(log api.LogID) { m.clamped.WithLabelValues(log.String()).Inc() }

// codeLabel keeps the label's values within the code table.
func codeLabel(c api.Code) string {
	switch {
	case c == "":
		return "ACKED"
	case !c.Known():
		return "OTHER"
	}
	return string(c)
}
