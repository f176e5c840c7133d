package fabrictest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain runs a package's tests and fails if a goroutine outlives them. It overlooks
// two of the broker's own: one that shuts down while it opens a stream, above all on a full disk or
// among three nodes, can leave that stream's store running, which is nobody's to end.
func VerifyTestMain(m *testing.M) {
	const broker = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(broker+"/ats.Register.func1"),
		goleak.IgnoreTopFunction(broker+".(*fileStore).flushStreamStateLoop"))
}
