package invariant

import (
	"fmt"
	"strconv"
	"strings"

	"domicile/chaos/ledger"
)

// revision judges 18: each record was admitted under exactly one revision, the one its
// ack named, and every region that has it says the same. Once a region has flipped to a
// newer one, it admits nothing more under those before.
func revision(e *evidence) {
	e.judgeFlips()
	type where struct {
		log      string
		sequence uint64
	}
	stored := map[where]string{}
	for i := range e.final {
		for n := range e.final[i].Items {
			item := &e.final[i].Items[n]
			w := where{item.Log, item.Sequence}
			e.judged(Revision)
			v := Violation{Number: Revision, Log: item.Log, Region: item.Region, Sequence: item.Sequence}
			before, seen := stored[w]
			switch {
			case item.Revision == "":
				v.Text = "stored without the revision that admitted it"
				e.broken(v)
			case seen && before != item.Revision:
				v.Text = fmt.Sprintf("admitted by %s here, by %s elsewhere", item.Revision, before)
				e.broken(v)
			}
			stored[w] = item.Revision
		}
	}
	for i := range e.entries {
		a := &e.entries[i]
		if a.Outcome != ledger.Acked {
			continue
		}
		v := Violation{Number: Revision, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End}
		if a.Revision == "" {
			v.Text = "the ack names no revision"
			e.broken(v)
		} else if at, ok := stored[where{a.Log, a.Sequence}]; ok && at != a.Revision {
			v.Text = fmt.Sprintf("the ack names %s, stored is %s", a.Revision, at)
			e.broken(v)
		}
	}
}

// judgeFlips asks for the revision of what a region admitted into its own logs after it
// had flipped.
func (e *evidence) judgeFlips() {
	for _, flip := range e.during(ledger.PolicyFlip) {
		least, known := serial(flip.Value)
		for i := range e.entries {
			a := &e.entries[i]
			if !known || a.Outcome != ledger.Acked || a.Duplicate || a.Asked != flip.Region || a.Region != flip.Region || a.Begin < flip.From {
				continue
			}
			e.judged(Revision)
			if n, ok := serial(a.Revision); !ok || n < least {
				e.broken(Violation{Number: Revision, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End,
					Text: fmt.Sprintf("admitted by %s, %.3f s after the region had %s", a.Revision, (a.Begin - flip.From).Seconds(), flip.Value)})
			}
		}
	}
}

// serial is the number by which revisions follow each other.
func serial(revision string) (n uint64, ok bool) {
	text, _, _ := strings.Cut(revision, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
