package invariant

import (
	"fmt"
	"time"

	"domicile/chaos/ledger"
)

// memory judges 22: no node's heap passes its bound, whatever a peer does.
func memory(e *evidence) {
	if e.limits.HeapBytes == 0 {
		return
	}
	for i := range e.history.Events {
		g := e.history.Events[i].Gauge
		if g == nil || g.Name != ledger.HeapBytes {
			continue
		}
		e.judged(Memory)
		if g.Value > e.limits.HeapBytes {
			e.broken(Violation{Number: Memory, Region: g.Region, At: e.history.Events[i].At, Text: fmt.Sprintf("%.0f MiB of heap", g.Value/(1<<20))})
		}
	}
}

// noLeak judges 31: after many flaps goroutines, descriptors and heap are back at what
// they were, but for a tenth and a few.
func noLeak(e *evidence) {
	type meter struct{ region, node, name string }
	base, after := map[meter]float64{}, map[meter]float64{}
	now := map[meter]float64(nil)
	var at time.Duration
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.Step != nil && ev.Step.Kind == ledger.LeakBase {
			now = base
		}
		if ev.Step != nil && ev.Step.Kind == ledger.LeakAgain {
			now, at = after, ev.At
		}
		if g := ev.Gauge; g != nil && now != nil {
			m := meter{g.Region, g.Node, g.Name}
			if v, ok := now[m]; !ok || (v > g.Value) == (at > 0) { // the highest of the base, the lowest after
				now[m] = g.Value
			}
		}
	}
	for m, v := range after {
		b, ok := base[m]
		if !ok {
			continue
		}
		e.judged(NoLeak)
		spare := 10.0
		if m.name == ledger.HeapBytes {
			spare = 64 << 20
		}
		if v > b*1.1+spare {
			e.broken(Violation{Number: NoLeak, Region: m.region, At: at, Text: fmt.Sprintf("%s of node %q went from %.0f to %.0f", m.name, m.node, b, v)})
		}
	}
}
