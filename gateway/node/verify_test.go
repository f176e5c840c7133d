package node_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// audit is what a region's operator is told of a topic's logs, by their slot.
func (x *topicsLab) audit(region, topic, slot string) (map[string]*pb.VerifyTopicResponse, error) {
	found := map[string]*pb.VerifyTopicResponse{}
	err := x.desks[region].VerifyTopic(x.Context(), &pb.VerifyTopicRequest{Topic: topic, Slot: slot}, func(m *pb.VerifyTopicResponse) error {
		found[m.GetLog().GetTopic()+"@"+m.GetLog().GetSlot()] = m
		return nil
	})
	return found, err
}

// RA1: a bit flips on the disk of a region. An operator who asks is told which log and
// which record, and that all others are intact; status says it from then on.
func TestRA1_AuditNamesWhatIsDamaged(t *testing.T) {
	t.Parallel()
	x := openTopics(t)
	x.publish("a", 20)
	x.eventually("the copy has all", func() bool { return x.lag("us-east").GetCursor() == 20 })
	all, err := x.audit("eu-west", "", "")
	if err != nil || len(all) < 3 {
		t.Fatalf("%v: %v", all, err)
	}
	for name, l := range all {
		if l.GetStopped() != "" || l.GetDamaged() > 0 || l.GetRecords() != l.GetChecked() {
			t.Errorf("%s of an intact store: %v", name, l)
		}
	}
	if l := all["orders@eu-west"]; l.GetRole() != "home" || l.GetRecords() != 20 || l.GetFrom() != 1 || l.GetTo() != 20 {
		t.Errorf("%v", l)
	}
	r := x.Region("eu-west")
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	flipBit(t, r.Data(), "Domicile-Id: a-7")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var one map[string]*pb.VerifyTopicResponse
	x.eventually("the region answers again", func() bool {
		one, err = x.audit("eu-west", "orders", "eu-west")
		return err == nil
	})
	l := one["orders@eu-west"]
	if len(one) != 1 || l.GetDamaged() != 1 || l.GetChecked() != 19 || len(l.GetRanges()) != 1 || l.GetRanges()[0].GetFrom() != 8 || l.GetRanges()[0].GetTo() != 8 {
		t.Fatalf("%v", one)
	}
	s, err := x.desks["eu-west"].Status(t.Context())
	if err != nil || !bytes.Contains([]byte(s.String()), []byte("records are damaged or missing on this disk, the first at sequence 8")) {
		t.Errorf("status: %v %v", s.GetWarnings(), err)
	}
	_, err = x.audit("eu-west", "nothing", "")
	x.want(err, api.UnknownTopic, "holds nothing of it")
	_, err = x.audit("eu-west", "", "eu-west")
	x.want(err, api.BadRequest, "name the topic too")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.desks["us-east"].VerifyTopic(ctx, &pb.VerifyTopicRequest{}, func(*pb.VerifyTopicResponse) error { return nil }); err == nil {
		t.Error("an audit that was given up ended well")
	}
}

// flipBit turns one bit of the first place in a region's logs where text is.
func flipBit(t *testing.T, data, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "broker", "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, []byte(text)); at >= 0 {
			b[at+len(text)-1] ^= 0x10
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no log holds %q", text)
}
