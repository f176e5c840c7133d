package fabric

import (
	"testing"

	"pgregory.net/rapid"
)

// The n-th message of an old log is found whatever was deleted before, among and after
// the messages that are there.
func TestRA1_PassageFindsTheNextMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := passage{first: rapid.Uint64Range(1, 20).Draw(t, "first")}
		var live []uint64
		at := p.first
		for i, there := range rapid.SliceOfN(rapid.Bool(), 0, 40).Draw(t, "there") {
			if there || i == 0 {
				live = append(live, at)
			} else {
				p.deleted = append(p.deleted, at)
			}
			at++
		}
		for n, want := range live {
			if got := p.after(uint64(n)); got != want {
				t.Fatalf("message %d is at %d, got %d", n, want, got)
			}
		}
	})
}
