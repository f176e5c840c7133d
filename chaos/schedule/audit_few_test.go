package schedule

import "testing"

// RA1: an ack of a region of three speaks of two disks, one of a single node of its own.
func TestRA1_TokensLackedByMoreThanAnAckAllows(t *testing.T) {
	for _, c := range []struct {
		absent []int
		nodes  int
		want   int
	}{{nil, 1, 0}, {[]int{7}, 1, 1}, {[]int{7, 8}, 3, 0}, {[]int{7, 8, 7}, 3, 1}, {[]int{7, 7, 7, 8, 8}, 3, 2}} {
		if got := tooFew(c.absent, c.nodes); got != c.want {
			t.Errorf("%v of %d nodes: %d, want %d", c.absent, c.nodes, got, c.want)
		}
	}
}
