package lab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
	"domicile/regions/approval"
	"domicile/regions/loss"
)

// redriven is what eu-west says became of its void records, and what its audit holds. ids
// are those that it may show to nobody any more, by sequence.
func (m *moved) redriven(revision string, ids map[uint64]string) invariant.Redrive {
	m.Helper()
	d := m.divergence("eu-west")
	out := invariant.Redrive{Log: m.id.String(), Region: "eu-west", Hash: d.GetHash(), How: d.GetSettled(), Who: d.GetWho(), Reason: d.GetReason(), Revision: revision}
	err := m.desk("eu-west").ReadDivergence(m.Context(), &pb.ReadDivergenceRequest{Topic: "orders", Whole: true}, func(r *pb.ReadDivergenceResponse) error {
		for _, x := range r.GetRecords() {
			v := invariant.Voided{Fate: loss.Fate(x.GetFate()), Code: api.Code(x.GetCode()), Where: x.GetWhere(),
				Item: ledger.Item{Region: "eu-west", Log: m.id.String(), Sequence: x.GetSequence(), ID: ids[x.GetSequence()], Hash: ledger.Hash([]byte("a book"))}}
			if !x.GetWithheld() {
				v.ID, v.Key, v.Item.Hash = x.GetRecord().GetId(), x.GetRecord().GetKey(), ledger.Hash(x.GetRecord().GetBody())
			}
			out.Void = append(out.Void, v)
		}
		return nil
	})
	if err != nil {
		m.Fatal(err)
	}
	out.Acts = m.acts("eu-west")
	return out
}

// acts is a region's audit.
func (m *moved) acts(region string) (acts []invariant.Act) {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.Region(region).Data(), "acts.jsonl"))
	if err != nil {
		m.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var a struct {
			invariant.Act
			ApprovedBy []string `json:"approved_by"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			m.Fatal(err)
		}
		a.Act.ApprovedBy = a.ApprovedBy
		acts = append(acts, a.Act)
	}
	return acts
}

// shelf is the log as a region gives it to readers.
func (m *moved) shelf(region string) []ledger.Shelf {
	m.Helper()
	s := ledger.Shelf{Region: region, Log: m.id.String(), Home: true}
	for sequence, r := range m.holds(region) {
		s.Items = append(s.Items, ledger.Item{Region: region, Log: s.Log, Sequence: sequence, ID: r.GetRecord().GetId(), Key: r.GetRecord().GetKey(),
			Hash: ledger.Hash(r.GetRecord().GetBody()), Epoch: wire.EpochFromProto(r.GetEpoch()).String(), Revision: r.GetPolicyRevision()})
	}
	return []ledger.Shelf{s}
}

// TestR14g_ARedriveGoesPastNoPolicy leaves records behind of which the policy that is in force
// when their region is back does not know one any more. The others are published anew as they
// were, under that policy; that one is refused, and given up by two people. The audit says who
// decided, why, and who agreed.
func TestR14g_ARedriveGoesPastNoPolicy(t *testing.T) {
	j := judging(t)
	m := j.moved
	void := m.tail(0, 8) // nobody need have heard of them
	r := orderOf("global", "a secret")
	r.Tags[0].Value = "secret"
	secret, err := door(t, m.Lab, "eu-west", 0).Publish(t.Context(), &r)
	if err != nil {
		t.Fatal(err)
	}
	m.move("us-east", "away", "us-east", forced)
	m.settled("us-east", "us-east", "eu-central")
	m.back()
	for _, region := range []string{"eu-west", "eu-central", "us-east"} {
		j.says(region, unknown)
	}
	d := m.divergence("eu-west")
	ask := &pb.RepublishDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "eu-west is back"}
	m.until("it is republished", func() error {
		var last *pb.Divergence
		err := m.desk("eu-west").RepublishDivergence(t.Context(), ask, func(r *pb.RepublishDivergenceResponse) error { last = r.GetDivergence(); return nil })
		if fates := fatesOf(last); err == nil && (fates[loss.Republished] < uint64(len(void)) || fates[loss.Refused] != 1 || last.GetSettled() != "") {
			err = fmt.Errorf("%v, %q", fates, last.GetSettled())
		}
		return err
	})
	ids := map[uint64]string{secret.Sequence: secret.ID}
	judge := func(how string) invariant.Redrive {
		t.Helper()
		one := m.redriven(fmt.Sprint(j.serial), ids)
		for _, v := range invariant.Redrives([]invariant.Redrive{one}, m.shelf("us-east")) {
			t.Error(v)
		}
		if one.How != how || len(one.Void) < len(void)+1 {
			t.Errorf("%d records are void, settled %q, want %q", len(one.Void), one.How, how)
		}
		return one
	}
	judge("")
	up := &pb.DiscardDivergenceRequest{Topic: "orders", Hash: d.GetHash(), Reason: "policy does not know it any more", Approvals: []string{m.consent("anna", "discard:"+d.GetHash(), approval.Incident)}}
	if _, err := m.desk("eu-west").DiscardDivergence(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	one := judge("discarded")
	one.Void[0].ID = "another"
	for i := range one.Acts {
		one.Acts[i].ApprovedBy = nil
	}
	if red := invariant.Redrives([]invariant.Redrive{one}, m.shelf("us-east")); len(red) < 2 {
		t.Errorf("of another id and an audit without who agreed only %v is found", red)
	}
}
