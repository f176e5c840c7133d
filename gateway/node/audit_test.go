package node

import (
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// An audit reads a whole disk: a second one is told that it has to wait.
func TestAudit_OneAtATime(t *testing.T) {
	n := &Node{}
	n.audit.Lock()
	err := n.verifyTopic(t.Context(), &pb.VerifyTopicRequest{}, func(*pb.VerifyTopicResponse) error { return nil })
	if api.CodeOf(err) != api.NotReady {
		t.Fatalf("%v", err)
	}
	n.audit.Unlock()
}
