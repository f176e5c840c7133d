package mirror_test

import (
	"fmt"
	"testing"

	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

// B06: a log that rightly holds the same ids twice, further apart than anybody
// remembers them, is copied as it is and at full speed: a copy knows records by their
// sequence, and no window of the target holds one back or swallows it.
func TestB06_TheSameIDTwiceIsCopiedAsItIs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.stopSource()
	home := newMemoryLog(p.homes[0].ID(), p.homes[0].Head().Incarnation, p.clock)
	const pairs = 1000
	for range 2 * pairs {
		home.append("global", 100)
	}
	for i := range home.items {
		home.items[i].Record.ID = fmt.Sprint("id-", i%pairs)
		home.items[i].Record.Tags = tags("global", "order")
	}
	p.homes = []regions.HomeLog{home}
	p.runSource()
	p.caughtUp(home)
	copied := fabrictest.ReadAll(t, p.us.copies[home.ID()], 0)
	if len(copied) != 2*pairs {
		t.Fatalf("%d records were copied, want %d", len(copied), 2*pairs)
	}
	for i := range copied {
		if copied[i].Gap != nil || copied[i].Sequence != uint64(i+1) || copied[i].Record.ID != fmt.Sprint("id-", i%pairs) {
			t.Fatalf("sequence %d is %q, gap %v", copied[i].Sequence, copied[i].Record.ID, copied[i].Gap)
		}
	}
}
