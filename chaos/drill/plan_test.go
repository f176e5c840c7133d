package drill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/chaos/drill/history"
)

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestR14i_APlanIsReadAsItIsWritten(t *testing.T) {
	p := NewPlan()
	p.Isolate, p.Peers, p.Reason = "eu-west", []string{"us-east"}, "OPS-7"
	p.Feeds = []Feed{{Region: "us-east", Topic: "orders", Tags: map[string]string{"residency": "eu"}, Rate: 5, Size: 256}}
	p.Expect = []Expect{{Topic: "orders", At: history.Always, Want: history.Denied, Why: history.WhyResides}}
	p.Exercise = []Exercise{{Topic: "news", To: "us-east"}}
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, digest, err := Load(written(t, string(text)))
	if err != nil || digest == "" {
		t.Fatal(err)
	}
	if d := cmp.Diff(p, got); d != "" {
		t.Errorf("(-wrote +read):\n%s", d)
	}
	for name, c := range map[string]struct{ from, to, says string }{
		"no region":            {"isolate: eu-west", "isolate: \"\"", "isolate"},
		"an unknown key":       {"reason:", "reasons:", "reason"},
		"no reason":            {"reason: OPS-7", "reason: \" \"", "reason"},
		"shorter than a lease": {"\nfor: 1m0s", "\nfor: 1s", "at least the lease"},
		"a moment of its own":  {"at: every", "at: 3rpo", "2rpo"},
		"no verdict":           {"want: denied", "want: maybe", "allowed or denied"},
		"a rate of none":       {"rate: 5", "rate: 0", "feeds[0]"},
		"to where it is cut":   {"to: us-east", "to: eu-west", "exercise[0]"},
	} {
		bad := strings.Replace(string(text), c.from, c.to, 1)
		if _, _, err := Load(written(t, bad)); bad == string(text) || api.CodeOf(err) != api.ConfigInvalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.Expect = append(p.Expect, Expect{Topic: "news", At: history.TwiceRPO, Want: history.Denied})
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "exercised") {
		t.Errorf("expected of a log that is elsewhere: %v", err)
	}
}

// three regions, eu-west cut off from us-east alone.
func cutPlan() *history.Plan {
	return &history.Plan{Isolate: "eu-west", Peers: []string{"us-east"}, For: 6 * time.Minute,
		Legal: []history.Boundary{{Name: "eu", Regions: []string{"eu-west"}}, {Name: "us", Regions: []string{"us-east"}}},
		Topics: []history.Topic{
			{Name: "orders", Resident: []string{"eu", "us"}, Mode: "never", Logs: []history.Log{
				{Log: "orders@eu-west", Home: "eu-west", Copies: []string{"us-east", "ap-south"}}, {Log: "orders@us-east", Home: "us-east", Copies: []string{"eu-west", "ap-south"}}}},
			{Name: "news", Mode: "manual", RPO: time.Minute, Logs: []history.Log{{Log: "news@home", Home: "eu-west", Copies: []string{"us-east"}}}},
		}}
}

func TestRP3_RealRecordsAreCountedByWhereTheyGo(t *testing.T) {
	p := cutPlan()
	hour := []asked{
		{region: "us-east", covered: time.Hour, admits: map[string]uint64{"orders eu": 100, "orders us": 1000, "orders global": 10, "news global": 50}},
		{region: "eu-west", covered: time.Hour, admits: map[string]uint64{"orders eu": 200, "news global": 70}},
		{region: "ap-south", admits: map[string]uint64{}},
	}
	orders, news := cost(p, &p.Topics[0], hour), cost(p, &p.Topics[1], hour)
	// A tenth of an hour. EU orders at us-east have no way; what is global there is copied later.
	if orders.Refused != 10 || orders.Delayed != 1 {
		t.Errorf("orders: %+v", orders)
	}
	if news.Refused != 5 || news.Delayed != 7 {
		t.Errorf("news: %+v", news)
	}
	if !strings.Contains(news.Basis, "ap-south: nothing was counted") || !strings.Contains(news.Basis, "eu-west: counts of 1h 00m") {
		t.Errorf("basis: %s", news.Basis)
	}
}

// Each topic is asked at its own multiples of its RPO, the others along with the longest,
// and nobody after the cut.
func TestR14i_MomentsOfACut(t *testing.T) {
	p := cutPlan()
	p.For = 2 * time.Minute
	at, names := moments(p)
	if d := cmp.Diff([]time.Duration{0, 30 * time.Second, time.Minute}, at); d != "" {
		t.Error(d)
	}
	want := map[string]string{"news": history.HalfRPO, "orders": history.HalfRPO}
	if d := cmp.Diff(want, names[30*time.Second]); d != "" {
		t.Error(d)
	}
}
