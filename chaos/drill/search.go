package drill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// changedBefore is how much earlier than the drill a file may have been changed for its
// marks to be looked for in it: clocks of regions differ.
const changedBefore = time.Minute

// search has every node of every region look through its own files for the marks of resident records:
// none may be there of those that may not rest in it, and those that were acknowledged at
// home have to be found there, else the search shows nothing. The marks are the drill's
// own; nothing that anybody else stored is asked for or answered.
func (r *run) search(ctx context.Context) error {
	nodes := r.found.everyone()
	var group sync.WaitGroup
	seen, errs := make([][]Sighting, len(nodes)), make([]error, len(nodes))
	for i, n := range nodes {
		group.Go(func() { seen[i], errs[i] = r.searchAt(ctx, n) })
	}
	group.Wait()
	r.seen = slices.Concat(seen...)
	for _, s := range r.seen {
		r.note(history.Event{Region: s.Region, Scan: &s.Scan})
	}
	return cmp.Or(errs...)
}

func (r *run) searchAt(ctx context.Context, n *Node) (seen []Sighting, err error) {
	q := &pb.SearchStoreRequest{SinceUnixNano: r.history.Origin().Add(-changedBefore).UnixNano()}
	var home []bool
	for _, m := range r.oracle.Marks() {
		rests := r.plan.MayRest(m.Residency, n.Region)
		if m.Residency == history.Global || rests && m.Records == 0 {
			continue
		}
		q.Marks, home = append(q.Marks, m.Text), append(home, rests)
	}
	if len(q.Marks) == 0 {
		return nil, nil
	}
	m, err := n.Admin.SearchStore(ctx, q)
	if err == nil && len(m.GetFound()) != len(q.Marks) {
		err = fmt.Errorf("%d marks were looked for, %d answered", len(q.Marks), len(m.GetFound()))
	}
	if err != nil {
		return nil, fmt.Errorf("%s could not search its files: %w", n.title(), err)
	}
	where := n.Region + "'s data folder"
	if m.GetOutputs() > 0 {
		where += " and the log of its process"
	}
	if m.GetNode() != "" {
		where += " at node " + m.GetNode()
	}
	found := map[bool]*history.Scan{}
	for i, hits := range m.GetFound() {
		s := found[home[i]]
		if s == nil {
			s = &history.Scan{Where: where, Files: m.GetFiles() + m.GetOutputs(), Bytes: m.GetBytes(), Older: m.GetOlder(), Home: home[i], Beyond: m.GetBeyond()}
			found[home[i]] = s
		}
		s.Sown++
		if home[i] {
			hits = min(hits, 1)
		}
		s.Hits += hits
	}
	for _, there := range []bool{false, true} {
		if s := found[there]; s != nil {
			if s.Older > 0 {
				s.Text = fmt.Sprintf("%d files were last changed more than %s before the drill, and not read", s.Older, regions.Span(changedBefore))
			}
			seen = append(seen, Sighting{n.Region, *s})
		}
	}
	return seen, nil
}
