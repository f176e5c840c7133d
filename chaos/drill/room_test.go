package drill

import (
	"strings"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
)

// world is what three regions say, each of which has a copy of what eu-west publishes.
func world(age, hold string) *Federation {
	f := &Federation{Nodes: map[string]*Node{"eu-west": {}, "us-east": {}}, Drill: map[string]*pb.DrillState{}, Status: map[string]*pb.StatusResponse{}}
	f.Drill["eu-west"] = &pb.DrillState{Map: &pb.DrillMap{Regions: []*pb.DrillRegion{{Name: "eu-west", Peers: []string{"us-east"}}, {Name: "us-east", Peers: []string{"eu-west"}}}}}
	f.Topics = []*pb.TopicState{{Name: "news", Declaration: map[string]string{"retention.max_age": age, "hold": hold, "mirror": "us-east"},
		Logs: []*pb.LogHolding{{Log: &pb.LogId{Topic: "news", Slot: "home"}, Home: "eu-west"}}}}
	return f
}

// TestR14i_ACutThatOutlastsRetentionIsRefused: by age, for a topic that has a copy across the
// cut and does not wait for it.
func TestR14i_ACutThatOutlastsRetentionIsRefused(t *testing.T) {
	p := NewPlan()
	p.Isolate, p.Peers = "eu-west", []string{"us-east"}
	p.For, p.Lease, p.CatchUp = 30*time.Minute, time.Minute, 29*time.Minute
	for _, c := range []struct {
		age, hold string
		says      string
	}{{"1h0m0s", "false", ""}, {"59m0s", "false", "copies may be behind for 1h 00m"}, {"59m0s", "true", ""}, {"0s", "false", ""}, {"", "", ""}} {
		if err := world(c.age, c.hold).kept(&p); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f := world("59m0s", "false")
	f.Topics[0].Declaration["mirror"] = ""
	if err := f.kept(&p); err != nil {
		t.Errorf("no copy is cut off: %v", err)
	}
}

// TestR14i_ACutThatFillsAStoreIsRefused: at the pace of the baseline.
func TestR14i_ACutThatFillsAStoreIsRefused(t *testing.T) {
	p := NewPlan()
	p.For, p.Lease, p.CatchUp = 80*time.Second, 10*time.Second, 10*time.Second
	const mib = 1 << 20
	at := func(seconds int64, used, limit int64) *Federation {
		f := world("", "")
		f.Status["eu-west"] = &pb.StatusResponse{NowUnixNano: seconds * int64(time.Second), Storage: &pb.StorageState{UsedBytes: used, LimitBytes: limit}}
		f.Status["us-east"] = &pb.StatusResponse{NowUnixNano: seconds * int64(time.Second)}
		return f
	}
	for _, c := range []struct {
		was, is, limit int64
		says           string
	}{
		{100 * mib, 110 * mib, 1000 * mib, ""}, // 1 MiB a second: 210 of 1000
		{700 * mib, 710 * mib, 1000 * mib, ""},
		{800 * mib, 810 * mib, 1000 * mib, "would be 91 % full 1m 40s after"},
		{900 * mib, 890 * mib, 1000 * mib, ""}, // retention took more than came
		{800 * mib, 810 * mib, 0, ""},
	} {
		if err := p.grown(at(0, c.was, c.limit), at(10, c.is, c.limit)); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
