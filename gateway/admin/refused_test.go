package admin_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/gateway/admin"
	"domicile/regions"
)

// A region that says what no correct node says is named, with how often and what it was last.
func TestFA7_StatusNamesThePeerThatIsRefused(t *testing.T) {
	v := healthy(t, "us-east")
	counted := []regions.PeerRefused{
		{Peer: "ap-south", Lane: regions.LaneHello, Reason: regions.Impossible, Count: 1, Last: now.Add(-48 * time.Hour)},
		{Peer: "eu-west", Lane: regions.LaneGossip, Reason: regions.Malformed, Count: 3, Last: now.Add(-time.Minute)},
		{Peer: "eu-west", Lane: regions.LaneHello, Reason: regions.NotTheirs, Count: 2, Last: now.Add(-3 * time.Second)},
	}
	v.Refused = counted
	warnings := admin.Assemble(v).GetWarnings()
	if !slices.ContainsFunc(warnings, func(w string) bool {
		return strings.Contains(w, "5 messages of eu-west refused") && strings.Contains(w, "the last 3.0s ago (hello: not_theirs)")
	}) || strings.Contains(strings.Join(warnings, ""), "ap-south") {
		t.Errorf("warnings %q", warnings)
	}
	a := service(t, v, func(s *admin.Sources) { s.Refused = func() []regions.PeerRefused { return counted } })
	_, page := get(t, a, "/metrics")
	for _, want := range []string{
		"# TYPE domicile_peer_refused_total counter",
		`domicile_peer_refused_total{lane="gossip",peer="eu-west",reason="malformed"} 3`,
		`domicile_peer_refused_total{lane="hello",peer="ap-south",reason="impossible"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
