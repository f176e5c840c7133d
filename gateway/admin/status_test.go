package admin_test

import (
	"strings"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/admin"
	"domicile/regions"
)

func TestStatusHealthy(t *testing.T) {
	m := admin.Assemble(healthy(t, "us-east"))
	if m.GetLevel() != "ok" || !strings.HasPrefix(m.GetVerdict(), "ok: 2 links up") || len(m.GetTroubles()) != 0 || len(m.GetAdvice()) != 0 || len(m.GetWarnings()) != 0 {
		t.Errorf("%v", m)
	}
	if len(m.GetPolicies()) != 3 || m.GetPolicies()[0].GetRegion() != "us-east" || !m.GetPolicies()[1].GetManifestEqual() {
		t.Errorf("policies %v", m.GetPolicies())
	}
}

func TestR14h_StatusSeenFromARegionThatLostAHome(t *testing.T) {
	v := healthy(t, "us-east")
	cut(&v, "eu-west", 125*time.Second)
	m := admin.Assemble(v)
	if m.GetLevel() != "degraded" || !strings.Contains(m.GetVerdict(), "eu-west unreachable for 2m 05s") {
		t.Errorf("verdict %q", m.GetVerdict())
	}
	orders, catalogue, health := find(m, "orders@eu-west"), find(m, "catalog.updates@home"), find(m, "health.records@eu-west")
	if orders == nil || catalogue == nil || health == nil || find(m, "orders@ap-south") != nil {
		t.Fatalf("troubles %v", m.GetTroubles())
	}
	if !strings.Contains(orders.GetProducers(), string(api.HomeUnreachable)) || orders.GetConsumers() != "wait until the home is back" ||
		orders.GetLag().GetStalenessSeconds() != 125 || orders.GetLag().GetKnowledgeAgeSeconds() != 125 || orders.GetOwner() == "" {
		t.Errorf("orders: %v", orders)
	}
	if !strings.Contains(catalogue.GetConsumers(), "read the copy here, which is 2m 05s old") || catalogue.GetRoom() != "readable for another 57m 55s" {
		t.Errorf("catalogue: %v", catalogue)
	}
	if health.GetConsumers() != "no copy here" || health.GetLag() != nil {
		t.Errorf("health: %v", health)
	}
	advice := strings.Join(m.GetAdvice(), "\n")
	if !strings.Contains(advice, "orders@eu-west: nothing: residency") || !strings.Contains(advice, "health.records@eu-west: nothing: residency") {
		t.Errorf("advice %q", advice)
	}
	for _, word := range []string{"promote", "take over", "failover to", "move"} {
		if strings.Contains(strings.ToLower(advice), word) {
			t.Errorf("advice offers what may not be: %q", advice)
		}
	}
	if len(m.GetHeals()) == 0 {
		t.Error("nothing heals by itself?")
	}
}

func TestStatusSeenFromTheRegionThatWasCutOff(t *testing.T) {
	v := healthy(t, "eu-west")
	cut(&v, "us-east", 125*time.Second)
	cut(&v, "ap-south", 125*time.Second)
	m := admin.Assemble(v)
	x := find(m, "orders@eu-west")
	if x == nil {
		t.Fatalf("troubles %v", m.GetTroubles())
	}
	if !strings.HasPrefix(x.GetProducers(), "stored and acknowledged here as usual") || !x.GetLag().GetExposureKnown() || x.GetLag().GetExposureSeconds() != 125 ||
		!strings.Contains(x.GetRoom(), "6d 23h until retention") || !strings.Contains(x.GetRoom(), "4.0 KiB of") {
		t.Errorf("%v", x)
	}
	if !strings.Contains(m.GetVerdict(), "records whose home is eu-west are stored as usual") {
		t.Errorf("verdict %q", m.GetVerdict())
	}
}

func TestR14d_UnknownIsNeverZero(t *testing.T) {
	v := healthy(t, "us-east")
	v.Links[0].Up, v.Links[0].Since, v.Links[0].Hello, v.Links[0].OffsetOK = false, time.Time{}, nil, false
	for i := range v.Lags {
		if v.Lags[i].Home == v.Links[0].Peer {
			v.Lags[i] = regions.Lag{Log: v.Lags[i].Log, Home: v.Lags[i].Home, Target: v.Lags[i].Target, State: regions.LagUnknown}
		}
	}
	v.Storage, v.Silent = nil, []string{"storage"}
	m := admin.Assemble(v)
	if m.GetLinks()[0].GetState() != "unknown" || m.GetPolicies()[1].GetKnown() || m.GetStorage() != nil || m.GetLevel() != "failed" {
		t.Errorf("%v", m)
	}
	x := m.GetTroubles()[0]
	if x.GetLag().GetStalenessKnown() || x.GetLag().GetKnowledgeKnown() {
		t.Errorf("%v", x)
	}
}

func TestStatusSaysWhatIsWrongAndWhatMayBeDone(t *testing.T) {
	for name, c := range map[string]struct {
		change                 func(*admin.View)
		level, verdict, advice string
	}{
		"disk": {func(v *admin.View) { v.Storage.Healthy, v.Storage.Reason = false, "sync failed" }, "failed", "sync failed", "repair the disk under /data"},
		"full disk": {func(v *admin.View) { v.Storage.Full = "50.0 MiB are free and 64.0 MiB are kept" }, "failed",
			"50.0 MiB are free and 64.0 MiB are kept; publishing is refused here, reading goes on", "free space under /data"},
		"filled disk": {func(v *admin.View) {
			v.Storage.Healthy, v.Storage.Passes, v.Storage.Reason = false, true, "no space left"
		}, "failed", "no space left; publishing is refused here", "free space under /data"},
		"no policy":     {func(v *admin.View) { v.Policy = admin.Policy{Problem: "catalog.yaml is missing"} }, "failed", "no policy is active", "domicile policy check"},
		"bad candidate": {func(v *admin.View) { v.Policy.Problem = "a rule errs" }, "ok", "ok", "domicile policy check"},
		"candidate":     {func(v *admin.View) { v.Policy.Candidate = "abcd" }, "ok", "a changed policy waits to be loaded", "domicile policy reload"},
		"other policy":  {func(v *admin.View) { v.Links[0].Hello.PolicyRevision = "8-beef" }, "ok", "ap-south has policy 8-beef", ""},
		"peer without":  {func(v *admin.View) { v.Links[0].Hello.PolicyRevision = "" }, "ok", "ap-south has no policy", ""},
		"certificate":   {func(v *admin.View) { v.Certificates[0].Ends = now.Add(48 * time.Hour) }, "ok", "ok", "domicile certs request"},
		"old policy":    {func(v *admin.View) { v.Links[0].Hello.PolicySerial = 6 }, "ok", "ok", "bring the policy of ap-south up to date"},
		"older policy":  {func(v *admin.View) { v.Links[0].Hello.PolicySerial = 1000 }, "ok", "ok", "bring the policy of us-east up to date with ap-south's"},
		"manifest": {func(v *admin.View) {
			h := v.Links[0].Hello
			h.ManifestDigest, h.TopicDigests["orders"] = "other", "other"
			h.TopicFields["orders"]["retention.max_age"] = "24h0m0s"
		}, "degraded", "ap-south has another federation.yaml", "the same federation.yaml"},
		"a peer's clock": {func(v *admin.View) { v.Links[0].OffsetOK, v.Links[0].Offset = true, time.Hour }, "degraded",
			"the clock of ap-south is 1h 00m away from ours: seconds towards it are not to be trusted", "set the clock that is wrong, in ap-south or in us-east"},
		"stalled": {func(v *admin.View) { v.Lags[0].State, v.Lags[0].Cause = regions.LagStalled, "append" }, "degraded", "1 log in trouble", ""},
		"another incarnation": {func(v *admin.View) {
			for i := range v.Lags {
				if v.Lags[i].Target == "us-east" {
					v.Lags[i].State = regions.LagIncarnation
					return
				}
			}
		}, "degraded", "1 log in trouble", "a person decides"},
	} {
		v := healthy(t, "us-east")
		c.change(&v)
		m := admin.Assemble(v)
		if m.GetLevel() != c.level || !strings.Contains(m.GetVerdict(), c.verdict) || !strings.Contains(strings.Join(m.GetAdvice(), "\n"), c.advice) {
			t.Errorf("%s: %s, %q, advice %q", name, m.GetLevel(), m.GetVerdict(), m.GetAdvice())
		}
		if name == "manifest" && (len(m.GetPolicies()[1].GetDifferences()) != 1 || m.GetPolicies()[1].GetDifferences()[0] != "orders.retention.max_age: 168h0m0s | 24h0m0s") {
			t.Errorf("differences %v", m.GetPolicies()[1].GetDifferences())
		}
	}
}

// A region of three: each node has files of its own, and what another has in force counts
// as soon as the seat is there.
func TestStatusNamesNodesWithOtherFiles(t *testing.T) {
	v := healthy(t, "us-east")
	v.Seat = admin.Seat{Open: true, Quorum: true, Node: "a", Holder: "a", Nodes: []admin.Sibling{{Name: "a", Self: true, Up: true}, {Name: "b", Up: true}, {Name: "c", Up: true}}}
	files := func(manifest, policy string) *pb.FilesResponse {
		return &pb.FilesResponse{ManifestDigest: manifest, PolicyRevision: policy}
	}
	v.Files = map[string]*pb.FilesResponse{"a": files("m", "p"), "b": files("m", "p")} // c did not answer
	if m := admin.Assemble(v); m.GetLevel() != "ok" || m.GetSeat().GetNodes()[2].GetManifestDigest() != "" {
		t.Errorf("%s, %v", m.GetVerdict(), m.GetSeat())
	}
	v.Files["b"], v.Files["c"] = files("other", "p"), files("m", "another")
	m := admin.Assemble(v)
	for _, want := range []string{"node b of this region has another federation.yaml in force", "node c of this region has another policy in force"} {
		if m.GetLevel() != "degraded" || !strings.Contains(m.GetVerdict(), want) {
			t.Errorf("no %q in %s", want, m.GetVerdict())
		}
	}
	if !strings.Contains(strings.Join(m.GetAdvice(), "\n"), "domicile config reload") {
		t.Errorf("advice %q", m.GetAdvice())
	}
}
