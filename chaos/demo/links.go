package demo

import (
	"fmt"
	"slices"

	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
)

// judgeLinks: what a resident record is made of was on no link but towards a region where
// it may rest. The probes were sent elsewhere on purpose, and have to have been seen there:
// else nobody was listening.
func (r *run) judgeLinks(shelves []ledger.Shelf) {
	holders := map[int][]string{} // token → marks of the ids of its records
	for id, tokens := range r.traffic.tokens {
		for _, token := range tokens {
			holders[token] = append(holders[token], ledger.Mark(id))
		}
	}
	book := &ledger.Book{Clock: r.clock}
	for _, e := range r.book.Entries() {
		for _, p := range r.probing.probes {
			if p.id == e.ID {
				e.Rests = append(slices.Clone(e.Rests), p.target)
			}
		}
		book.Enter(e)
	}
	r.tap.Note(book, func(token int) []string { return holders[token] })
	v := invariant.Check(book.History(), shelves, invariant.Usual(r.o.Pace))
	why := fmt.Sprintf("nothing was heard of %d records", len(r.traffic.tokens))
	if at := slices.IndexFunc(v.Violations, func(x invariant.Violation) bool { return x.Number == invariant.Crossed }); at >= 0 {
		why = fmt.Sprintf("%d times, the first: %s", v.Broken[invariant.Crossed], v.Violations[at])
	}
	r.result.verdict(CheckLinks, v.Broken[invariant.Crossed] == 0 && v.Judged[invariant.Crossed] > 0, why)
	for _, p := range r.probing.probes {
		r.result.verdict(CheckLinks, r.passed(p), fmt.Sprintf("the probe that was sent to %s was not heard", p.target))
	}
	r.tellLinks()
}

// passed reports whether all of a probe was seen going to its target.
func (r *run) passed(p probed) bool {
	seen := map[int]bool{}
	for _, c := range r.tap.Crossings() {
		if c.From == usRegion && c.To == p.target {
			seen[c.Token] = true
		}
	}
	return !slices.ContainsFunc(r.traffic.tokens[p.id], func(token int) bool { return !seen[token] })
}

func (r *run) tellLinks() {
	var bytes uint64
	lines := r.tap.Lines()
	for _, l := range lines {
		bytes += l.Bytes
	}
	r.say("  links: the same tokens were looked for above TLS on %d lines (lanes by direction), %.1f MB", len(lines), float64(bytes)/1e6)
}
