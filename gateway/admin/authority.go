package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/placement"
)

var (
	authorityReached = desc("domicile_authority_reached", "1 if the placement authority answered this region within the last seconds.")
	authorityTrouble = desc("domicile_authority_trouble", "1 if something is wrong with this node's part in the placement authority; status says what.")
	authorityVersion = desc("domicile_authority_version", "Version of what the placement authority decided, as this node has it.")
	voterLed         = desc("domicile_voter_led", "1 if the voter on this node leads or hears a leader.")
	voterCount       = desc("domicile_voter_count", "Voters, as the one on this node has it.")
	voterApplied     = desc("domicile_voter_applied_entries", "Entries of the voters' log that this one has taken in.")
	leaseLeft        = desc("domicile_lease_left_seconds", "What is left of this region's lease on a log of its own with fence_after; 0: it has run out, and the log takes no record.", "log")
	logContested     = desc("domicile_log_contested", "1 if two authorities gave the log two homes: nobody may write it.", "log")
	voterFree        = desc("domicile_voter_free_bytes", "Free on the disk that the voter keeps its log and its votes on.")
)

// collectAuthority is what a node tells of its part in the placement authority, if it has one.
func collectAuthority(s *pb.AuthorityState, gauge func(*prometheus.Desc, float64, ...string)) {
	if len(s.GetVoters()) == 0 {
		return
	}
	gauge(authorityTrouble, truth(s.GetTrouble() != ""))
	if s.GetName() != "" {
		gauge(authorityVersion, float64(s.GetVersion()))
	}
	if !s.GetWitness() && s.GetHeard() {
		gauge(authorityReached, truth(s.GetReached()))
	}
	if s.GetRole() != "voter" {
		return
	}
	gauge(voterLed, truth(s.GetLeader() != ""))
	gauge(voterApplied, float64(s.GetApplied()))
	if n := len(s.GetVoting()); n > 0 { // else it does not know
		gauge(voterCount, float64(n))
	}
	if s.GetFreeKnown() {
		gauge(voterFree, float64(s.GetFreeBytes()))
	}
}

// collectPlaced is what a node knows of the logs that may move: whether they are contested, and
// of its region's own how much of the lease is left.
func (a *Admin) collectPlaced(gauge func(*prometheus.Desc, float64, ...string)) {
	if a.config.Placed == nil {
		return
	}
	for id, l := range a.config.Placed() {
		gauge(logContested, truth(l.Status == placement.Contested), id.String())
		if l.Home != a.config.Region || l.Status != placement.Active || l.Terms.Isolation != placement.FenceAfter {
			continue
		}
		if left, ok := a.config.Lease(id); ok {
			gauge(leaseLeft, max(0, left).Seconds(), id.String())
		}
	}
}

// witness is the metrics of a node that votes and does nothing else.
type witness struct {
	authority    func() *pb.AuthorityState
	certificates func() []Certificate
	refused      func() []regions.PeerRefused
	clock        regions.Clock
}

// Describe sends nothing: what is not known has no sample.
func (w *witness) Describe(chan<- *prometheus.Desc) {}

// Collect asks the voter.
func (w *witness) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	collectAuthority(w.authority(), gauge)
	collectRefused(w.refused(), out)
	for _, c := range w.certificates() {
		gauge(certificateDays, c.Ends.Sub(w.clock.Now()).Hours()/24, c.Name, c.Kind)
	}
}
