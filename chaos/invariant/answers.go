package invariant

import (
	"fmt"
	"slices"
	"time"

	"domicile/chaos/ledger"
)

// catchUp judges 24: while mirrors catch up after a cut, local acks stay quick.
func catchUp(e *evidence) {
	at, ok := e.reached()
	if !ok || e.limits.AckP99 == 0 {
		return
	}
	for _, s := range e.during(ledger.Cut, ledger.CutOneWay) {
		var times []time.Duration
		for i := range e.entries {
			if a := &e.entries[i]; a.Outcome == ledger.Acked && !a.Forwarded && a.Begin > s.To && a.Begin < at && e.calm(a.Begin, a.End, []ledger.StepKind{ledger.Cut, ledger.CutOneWay}, a.Region) {
				times = append(times, a.End-a.Begin)
			}
		}
		if len(times) < 100 {
			continue
		}
		e.judged(CatchUp)
		slices.Sort(times)
		if p99 := times[len(times)*99/100]; p99 > e.limits.AckP99 {
			e.broken(Violation{Number: CatchUp, Region: s.Region, At: s.To, Text: fmt.Sprintf("99 of 100 local acks within %s after the heal", p99)})
		}
	}
}

// diskTold judges 29: while a region's disk is full or broken, whoever asks it for a
// record that may rest there gets an answer in time, and what it says no to has a code.
func diskTold(e *evidence) {
	for _, s := range e.during(ledger.DiskFull, ledger.DiskError) {
		for i := range e.entries {
			a := &e.entries[i]
			if a.Asked != s.Region || !slices.Contains(a.Rests, s.Region) || a.Begin < s.From+e.limits.Slack || a.Begin > s.To {
				continue
			}
			e.judged(DiskTold)
			v := Violation{Number: DiskTold, Log: a.Log, Region: s.Region, Sequence: a.Sequence, At: a.End}
			if took := a.End - a.Begin; a.Outcome != ledger.Acked && took > e.limits.Refusal {
				v.Text = fmt.Sprintf("%s came after %s", a.Code, took)
				e.broken(v)
			}
			if a.Outcome != ledger.Acked && !a.Code.Known() {
				v.Text = fmt.Sprintf("refused with %q, which is no code", a.Code)
				e.broken(v)
			}
		}
	}
}
