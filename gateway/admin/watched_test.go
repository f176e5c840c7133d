package admin_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/deploy"
	"domicile/gateway/admin"
	"domicile/gateway/drill"
	"domicile/regions"
	"domicile/regions/placement"
)

// movable is the example federation in which catalog.updates may move and people may drill.
func movable(t *testing.T) *regions.Federation {
	t.Helper()
	text := bytes.Replace(deploy.FederationYAML, []byte("topics:\n"), []byte("authority: {voters: [eu-west, us-east, ap-south]}\ndrills: {max_for: 15m}\ntopics:\n"), 1)
	text = bytes.Replace(text, []byte("    home: eu-west "), []byte("    failover: {mode: manual, targets: [us-east], rpo: 2m, rto: 1m}\n    home: eu-west "), 1)
	f, err := regions.ParseManifest("federation.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestR14i_EvidenceThatIsMissingIsTold: where drills are permitted, what none has proven is
// told as not known. It has no age, and is never 0 seconds old.
func TestR14i_EvidenceThatIsMissingIsTold(t *testing.T) {
	v := healthy(t, "eu-west")
	page := func() string {
		_, page := get(t, service(t, v, func(s *admin.Sources) { s.Drill = func() drill.State { return v.Drill } }), "/metrics")
		return page
	}
	if p := page(); strings.Contains(p, "evidence") {
		t.Errorf("nobody may drill, and the page asks for it:\n%s", p)
	}
	v.Federation = movable(t)
	p := page()
	for _, want := range []string{"domicile_evidence_known 0\n", `domicile_rto_evidence_known{topic="catalog.updates"} 0` + "\n"} {
		if !strings.Contains(p, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, never := range []string{"evidence_age_seconds", "rto_measured", `topic="orders"`} {
		if strings.Contains(p, never) {
			t.Errorf("%s, of which nothing is known:\n%s", never, p)
		}
	}
	v.Drill.Proof = drill.Proof{ID: "drill-1", At: now.Add(-time.Hour)}
	v.Drill.Measured = []drill.Measured{{Topic: "catalog.updates", Drill: "drill-1", At: now.Add(-time.Hour), RTO: 12 * time.Second}}
	p = page()
	for _, want := range []string{"domicile_evidence_known 1\n", "domicile_evidence_age_seconds 3600\n", `domicile_rto_evidence_known{topic="catalog.updates"} 1` + "\n",
		`domicile_rto_evidence_age_seconds{topic="catalog.updates"} 3600` + "\n", `domicile_rto_measured_seconds{topic="catalog.updates"} 12` + "\n"} {
		if !strings.Contains(p, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestR14d_LeasesAndContestsAreTold: a lease that ran out is 0, one that the region has not to
// hold has no sample.
func TestR14d_LeasesAndContestsAreTold(t *testing.T) {
	log := func(home string, isolation placement.Isolation, status placement.Status) placement.Log {
		return placement.Log{Home: home, Status: status, Terms: placement.Terms{Isolation: isolation, FenceAfter: time.Minute}}
	}
	v := healthy(t, "eu-west")
	left := map[api.LogID]time.Duration{logID("held@home"): 40 * time.Second, logID("out@home"): -time.Second, logID("goes-on@home"): time.Second, logID("moves@home"): 0}
	c := config(t, v, nil)
	c.Placed = func() map[api.LogID]placement.Log {
		return map[api.LogID]placement.Log{
			logID("held@home"): log("eu-west", placement.FenceAfter, placement.Active), logID("out@home"): log("eu-west", placement.FenceAfter, placement.Active),
			logID("goes-on@home"): log("eu-west", placement.Accept, placement.Active), logID("moves@home"): log("eu-west", placement.FenceAfter, placement.Moving),
			logID("away@home"): log("us-east", placement.FenceAfter, placement.Active), logID("two@home"): log("eu-west", placement.Accept, placement.Contested),
		}
	}
	c.Lease = func(id api.LogID) (time.Duration, bool) { l, ok := left[id]; return l, ok }
	a := serve(t, c)
	code, page := get(t, a, "/metrics")
	for _, want := range []string{`domicile_lease_left_seconds{log="held@home"} 40`, `domicile_lease_left_seconds{log="out@home"} 0`,
		`domicile_log_contested{log="two@home"} 1`, `domicile_log_contested{log="away@home"} 0`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(page, "\ndomicile_lease_left_seconds{"); code != http.StatusOK || n != 2 {
		t.Errorf("%d: %d leases:\n%s", code, n, page)
	}
}
