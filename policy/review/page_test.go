package review_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"domicile/policy"
	"domicile/policy/review"
)

// The page holds what the policy answers, needs nothing from anywhere, and shows what
// authors wrote as text.
func TestR14h_ThePageStandsAlone(t *testing.T) {
	f := federation(t)
	day := func(n int) time.Time { return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).AddDate(0, 0, n) }
	old := build(t, f, 1, open(f))
	now := build(t, f, 2, func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
		if q.Point == policy.MirrorIngress && q.Target == "us-east" {
			return denial, nil
		}
		return open(f)(ctx, q)
	})
	d := review.Compare(old, now, f)
	d.Weigh(map[string]uint64{"mirror_ingress topic=orders tags=residency=global class=none place=none origin=eu-west target=us-east": 41})
	d.Targets = []review.Target{{Log: "orders@us-east", Home: "us-east", Region: "eu-central", Why: "residency=us: rests elsewhere"}}
	page := review.Page{Policy: now, Federation: f, Against: d, Live: "eu-west", Now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		Matrix: []byte("# reviewed\npoint,topic,tags,origin,target,answer,code\nadmit,orders,*,*,*,allow,D101\n"),
		Terms: policy.Terms{Exceptions: map[string]policy.Term{"audit": {Owner: "legal", Approvers: []string{"anna", "ben"}, Reason: "<b>case 12</b>", From: day(-1), Until: day(20)}},
			Mechanisms: map[string]policy.Term{"scc_us": {Owner: "legal", Approvers: []string{"anna", "eve"}, Reason: "contract 7", From: day(-30), Until: day(50)},
				"scc_in": {Owner: "legal", Approvers: []string{"anna", "eve"}, Reason: "contract 6", From: day(-60), Until: day(0)}, "bcr": {From: day(2), Until: day(40)}}},
		Rules: []review.PageRule{
			{Name: "p/no", Set: "forbid", Text: "<script>alert(1)</script>", Article: "GDPR Art. 44", Owner: "DPO", ReviewBy: "2026-01-01", Where: "rules/p.rego:4", Cells: 1200, Overdue: true},
			{Name: "p/open", Set: "permit", Where: "rules/p.rego:9", Cells: 3},
		}}
	var out strings.Builder
	if err := page.Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"2-2", "newly denied", "asked 41 times", "GDPR Art. 44", "overdue", "nobody", "1,200 questions",
		"mirror_ingress  orders  residency=global | residency=us  from eu-central|eu-west  to us-east", "orders@eu-west", "may not rest there any more", "&lt;script&gt;alert", "may arrive as a copy",
		"may take it no longer", "residency=us: rests elsewhere", "case 12&lt;/b&gt;", "anna, eve", "ends soon", "has not begun", "is over", "2026-04-20 10:00 UTC"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if bad := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|src=|url\(|@import|https?:`).FindString(text); bad != "" {
		t.Errorf("the page holds %q", bad)
	}
	for _, id := range regexp.MustCompile(`href="#([a-z]+)"`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(text, `id="`+id[1]+`"`) {
			t.Errorf("a link leads to #%s, which is not there", id[1])
		}
	}
	if strings.Index(text, "scc_in") > strings.Index(text, "audit") || !strings.Contains(text, ">lasts<") {
		t.Error("what ends first is not in front, or nothing lasts")
	}
	out.Reset()
	page.Against, page.Matrix, page.Rules, page.Terms = nil, nil, nil, policy.Terms{}
	if err := page.Write(&out); err != nil || !strings.Contains(out.String(), "Not compared") || !strings.Contains(out.String(), "nobody has written down") {
		t.Errorf("without matrix and node: %v", err)
	}
}
