package main

import (
	"errors"
	"testing"

	"github.com/cockroachdb/datadriven"

	pb "domicile/api/domicile/v1"
)

// RA1: what an audit says, and what a script learns from its exit code.
func TestRA1_AuditText(t *testing.T) {
	log := func(slot, role string, checked, old uint64, damaged ...*pb.SequenceRange) *pb.VerifyTopicResponse {
		m := &pb.VerifyTopicResponse{Log: &pb.LogId{Topic: "orders", Slot: slot}, Role: role, From: 1, Records: checked + old,
			Checked: checked, WithoutSum: old, Ranges: damaged, RangesWhole: true}
		for _, r := range damaged {
			m.Damaged += r.To - r.From + 1
		}
		m.To = m.Records + m.Damaged
		return m
	}
	short := log("ap-south", "copy", 900, 0)
	short.Stopped = "read block: input/output error;\ncheck the disk"
	closed := &pb.VerifyTopicResponse{Log: ordersEU, Role: "home", Stopped: "it is not open"}
	var many []*pb.SequenceRange
	for i := range uint64(12) {
		many = append(many, &pb.SequenceRange{From: 10 * i, To: 10 * i})
	}
	onA, onB := log("eu-west", "home", 60, 0), log("eu-west", "home", 57, 0, &pb.SequenceRange{From: 31, To: 33})
	onA.Node, onB.Node = "a", "b"
	marks := log("eu-west", "home", 60, 0)
	marks.Node, marks.MarkersDamaged = "c", 2
	cases := map[string]struct {
		logs []*pb.VerifyTopicResponse
		err  error
		code exitCode
	}{
		"intact":      {[]*pb.VerifyTopicResponse{log("eu-west", "home", 12_000, 0), log("us-east", "copy", 0, 0)}, nil, exitOK},
		"old":         {[]*pb.VerifyTopicResponse{log("eu-west", "home", 7, 493)}, nil, exitOK},
		"damaged":     {[]*pb.VerifyTopicResponse{log("eu-west", "home", 56, 0, &pb.SequenceRange{From: 1, To: 1}, &pb.SequenceRange{From: 20, To: 22}), short}, nil, exitRefused},
		"many ranges": {[]*pb.VerifyTopicResponse{log("eu-west", "home", 88, 0, many...)}, nil, exitRefused},
		"unreadable":  {[]*pb.VerifyTopicResponse{short, closed}, nil, exitUnknown},
		"cut short":   {[]*pb.VerifyTopicResponse{log("eu-west", "home", 5, 0)}, errors.New("the node did not answer in time"), exitUnknown},
		"replicas":    {[]*pb.VerifyTopicResponse{onA, onB}, nil, exitRefused},
		"markers":     {[]*pb.VerifyTopicResponse{onA, marks}, nil, exitRefused},
		"nothing":     {nil, nil, exitOK},
	}
	datadriven.RunTest(t, "testdata/audit.txt", func(t *testing.T, d *datadriven.TestData) string {
		c := cases[d.CmdArgs[0].Key]
		if len(d.CmdArgs) > 1 {
			c = cases[d.CmdArgs[0].Key+" "+d.CmdArgs[1].Key]
		}
		if code := auditCode(c.logs, c.err); code != c.code {
			t.Errorf("exit code %d, want %d", code, c.code)
		}
		if d.Cmd == "json" {
			return indented(t, viewAudit(c.logs, c.err))
		}
		return renderAudit(c.logs, c.err)
	})
}
