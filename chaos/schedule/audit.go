package schedule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/chaos/canary"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// Verdict is what a run found.
type Verdict struct {
	Plan    Plan
	History *ledger.History
	Sum     *ledger.Sum
	Tokens  int         // looked for on every disk
	Scanned int64       // bytes of images, logs and configuration
	Judged  map[int]int // how often each invariant was put to the test, by its number
	Found   []string    // everything that must not be
	Logs    string      // how the log of each node ends, if anything was found
}

// Holds reports whether nothing was found.
func (v *Verdict) Holds() bool { return len(v.Found) == 0 }

// maxShown bounds what String lists.
const maxShown = 20

// String is the verdict for people: what was found, and how to see it again.
func (v *Verdict) String() string {
	var b strings.Builder
	s := v.Sum
	fmt.Fprintf(&b, "%d records: %d acknowledged (%d forwarded), %d refused, %d unknown of which %d are stored; %d copies; %d tokens in %.0f MB of images and files; invariants judged: %v; %d found\n",
		s.Records, s.Acked, s.Forwarded, s.Refused, s.Unknown, s.UnknownIn, s.Mirrored, v.Tokens, float64(v.Scanned)/1e6, v.Judged, len(v.Found))
	for i, f := range v.Found {
		if i == maxShown {
			fmt.Fprintf(&b, "  and %d more\n", len(v.Found)-i)
			break
		}
		b.WriteString("  " + f + "\n")
	}
	if !v.Holds() {
		fmt.Fprintf(&b, "again: DOMICILE_CHAOS_SEED=%d\n", v.Plan.Seed)
	}
	return b.String() + v.Plan.String() + v.Logs
}

func (v *Verdict) found(format string, args ...any) {
	v.Found = append(v.Found, fmt.Sprintf(format, args...))
}

// limits are those of the nodes' pace, wider: nodes, tools, producers and the checks
// share one machine, and what is measured is the product, not the machine.
func limits() invariant.Limits {
	l := invariant.Usual(pace)
	l.Slack += 2 * time.Second
	l.Settle += 4 * time.Second
	l.SlopeOff = 0.25 // a sample that is half a second late, in a line of five
	l.Refusal, l.AckP99, l.Silence = 10*time.Second, 0, 0
	return l
}

// audit stops the federation and compares what is on its disks with what everybody
// was told.
func (r *run) audit(ctx context.Context) (*Verdict, error) {
	stopping, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	r.finding(r.field.Stop(stopping))
	for _, n := range r.field.Nodes() {
		n.Kill() // one that did not stop
	}
	if err := r.field.Settle(ctx); err != nil {
		return nil, err
	}
	v := &Verdict{Plan: r.plan, History: r.book.History()}
	var shelves []ledger.Shelf
	for _, region := range r.field.Federation.Regions() {
		read, err := r.shelves(ctx, region)
		r.finding(err)
		shelves = append(shelves, read...)
	}
	v.Found = r.findings
	v.Sum = ledger.Check(v.History.Entries(), ledger.Items(shelves))
	judged := invariant.Check(v.History, shelves, limits())
	for _, b := range judged.Violations {
		v.found("%s", b)
	}
	v.Judged = judged.Judged
	err := r.scan(ctx, v)
	if !v.Holds() {
		v.Logs = r.logs()
	}
	return v, err
}

// shelves reads what a region has on its disks.
func (r *run) shelves(ctx context.Context, region string) ([]ledger.Shelf, error) {
	nodes := r.field.Of(region)
	if len(nodes) == 1 {
		return lab.Shelves(ctx, r.field.Federation, region, nodes[0].Data())
	}
	dirs := map[string]string{}
	for _, n := range nodes {
		dirs[n.Gateway] = n.Data()
	}
	return lab.TrioShelves(ctx, r.field.Federation, region, dirs, r.field.Members(region))
}

// scan looks for every token in everything that each node wrote: the raw image of its
// disk, where deleted blocks still are, the files on it, whose pieces may lie apart in
// the image, and its log.
func (r *run) scan(ctx context.Context, v *Verdict) error {
	v.Tokens = r.tokens.Len()
	home, absent := map[string][]int{}, map[string][]int{} // tokens by region; absent: once for each node without it
	for _, e := range v.History.Entries() {
		if e.Outcome == ledger.Acked && e.Residency != regions.GlobalResidency {
			home[e.Region] = append(home[e.Region], r.held[e.ID]...)
		}
	}
	for _, n := range r.field.Nodes() {
		report, err := canary.Scan(ctx, n.Dir, r.tokens)
		if err != nil {
			return err
		}
		v.Scanned += report.Bytes
		region, _ := r.field.Federation.Region(n.Region)
		for _, f := range report.Findings {
			if place := r.tokens.Place(f.Token); !strings.HasPrefix(place, region.Boundary+"/") {
				v.found("canary: %s holds a token of %s: %s", n.Name, place, f)
			}
		}
		gone := report.Missing(home[n.Region])
		slices.Sort(gone)
		absent[n.Region] = append(absent[n.Region], slices.Compact(gone)...)
	}
	for region, tokens := range absent {
		if lost := tooFew(tokens, len(r.field.Of(region))); lost > 0 {
			v.found("canary: %s: %d of %d tokens of acknowledged records are not on the disks that their acks spoke of", region, lost, len(home[region]))
		}
	}
	return nil
}

// tooFew counts the tokens that are absent from more of a region's nodes than its acks
// allow: they speak of a majority.
func tooFew(absent []int, nodes int) (n int) {
	times := map[int]int{}
	for _, token := range absent {
		times[token]++
	}
	for _, k := range times {
		if nodes-k < nodes/2+1 {
			n++
		}
	}
	return n
}
