package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/node"
	"domicile/policy"
	"domicile/policy/opa"
)

const reviewedRules = soloRules + `
# METADATA
# labels: {article: GDPR Art. 44, owner: data protection office, review_by: "2027-06-30"}
forbid contains {"rule": "no_global", "text": "nothing global is taken here"} if input.tags.residency == "global"
`

// publishGlobal publishes a record that the reviewed rules refuse.
func (w *world) publishGlobal(n *node.Node, id string) error {
	r := api.Record{ID: id, Key: "key-canary", Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "global"}}, Body: []byte("body-canary")}
	_, err := dial(w.t, n.Door()).Publish(w.t.Context(), &r)
	return err
}

// A refused producer is told the code, the rule and the revision that explain gives for
// the same question, at the node and from the directory, and nothing of a record.
func TestR14b_ExplainSaysWhatTheProducerWasTold(t *testing.T) {
	w := newWorld(t)
	w.policy(1, reviewedRules)
	n := w.start()
	var told *api.Error
	if err := w.publishGlobal(n, "id-canary"); !errors.As(err, &told) || told.Code != api.ResidencyDenied {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(told.Error(), "canary") {
		t.Errorf("the refusal holds something of the record: %v", told)
	}
	c := dial(t, n.Admin())
	said, err := c.Explain(t.Context(), &pb.ExplainRequest{Point: "admit", Topic: "orders", Tags: []*pb.Tag{{Name: "residency", Value: "global"}},
		PrincipalClass: "app", PrincipalPlace: "eu-west"})
	if err != nil {
		t.Fatal(err)
	}
	if said.GetAllow() || said.GetCode() != string(told.Code) || said.GetRevision() != told.Revision || len(said.GetRules()) != 2 {
		t.Fatalf("told %+v, explained %v", told, said)
	}
	rule := said.GetRules()[1]
	if rule.GetRule() != "orders/no_global" || rule.GetFile() != "rules/orders.rego" || rule.GetLine() != 8 || rule.GetArticle() != "GDPR Art. 44" || rule.GetOwner() != "data protection office" {
		t.Errorf("rule %v", rule)
	}
	found := false
	for _, b := range said.GetBecause() {
		found = found || strings.Contains(told.Hint, b.GetCode()) && strings.Contains(told.Hint, "rule "+b.GetRule())
	}
	if !found {
		t.Errorf("told %q, explained %v", told.Hint, said.GetBecause())
	}
	p, err := opa.Load(t.Context(), w.config.Policies, w.f)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Explain(t.Context(), policy.Question{Point: policy.Admit, Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "global"}}, Class: "app", Place: "eu-west", Origin: "eu-west"})
	if err != nil || strings.Join(e.Because(), "\n") != strings.Join(said.GetReasons(), "\n") || e.Revision != said.GetRevision() {
		t.Errorf("the directory says %v %v, the node %v", e, err, said.GetReasons())
	}
}

// What a node's policy was asked is counted by question, over a restart, and nothing of a
// record is in it.
func TestRP3_TrafficCountsWhatWasAsked(t *testing.T) {
	w := newWorld(t)
	w.policy(1, reviewedRules)
	n := w.start()
	for _, id := range []string{"one-canary", "two-canary", "three-canary"} {
		if _, err := w.publish(n, id); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.publishGlobal(n, "four-canary")
	w.stop(n)
	n = w.start()
	_ = w.publishGlobal(n, "five-canary")
	asked := map[string]uint64{}
	covered := 0.0
	err := dial(t, n.Admin()).Traffic(t.Context(), &pb.TrafficRequest{}, func(m *pb.TrafficResponse) error {
		covered += m.GetCoveredSeconds()
		for _, q := range m.GetAsked() {
			asked[q.GetQuestion()] += q.GetCount()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eu, global := "admit topic=orders tags=residency=eu class=app place=eu-west origin=eu-west target=none", "admit topic=orders tags=residency=global class=app place=eu-west origin=eu-west target=none"
	if asked[eu] != 3 || asked[global] != 2 || covered <= 0 {
		t.Errorf("asked %v, covered %v s", asked, covered)
	}
	files, err := filepath.Glob(filepath.Join(w.config.Data, "traffic", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "canary") {
			t.Errorf("%s holds something of a record, or cannot be read: %v", file, err)
		}
	}
}

// The table in force is what the node decides by: every question, of one revision.
func TestR14h_TheTableInForceIsHandedOver(t *testing.T) {
	w := newWorld(t)
	c := func(n *node.Node) (cells int, revisions map[string]bool, err error) {
		revisions = map[string]bool{}
		err = dial(t, n.Admin()).PolicyTable(t.Context(), func(m *pb.PolicyTableResponse) error {
			cells += len(m.GetAnswers())
			revisions[m.GetRevision()] = true
			return nil
		})
		return cells, revisions, err
	}
	n := w.start()
	if _, _, err := c(n); api.CodeOf(err) != api.PolicyUnavailable {
		t.Errorf("without a policy: %v", err)
	}
	w.policy(1, reviewedRules)
	if err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := opa.Load(t.Context(), w.config.Policies, w.f)
	if err != nil {
		t.Fatal(err)
	}
	if cells, revisions, err := c(n); err != nil || cells != p.Report.Cells || len(revisions) != 1 || !revisions[p.Report.Revision] {
		t.Errorf("%d cells of %v, %v; want %d of %s", cells, revisions, err, p.Report.Cells, p.Report.Revision)
	}
}
