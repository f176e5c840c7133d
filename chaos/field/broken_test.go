package field_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/field"
	"domicile/chaos/lab"
)

// broken: the disk of a node without the seat fails its syncs. The two others go on, and say
// of it that its store failed and what a person does; the node itself is not ready. It does
// not come back by itself, also not when the disk works again: after a start it holds all.
func (r *region) broken(t *testing.T) {
	holder, _ := r.holder(nil)
	bad := r.nodes[slices.IndexFunc(r.nodes, func(n *field.Node) bool { return n != holder })]
	mend, err := bad.Break(field.Syncs, "error=EIO", "")
	must(t, err)
	t.Cleanup(func() { _ = mend() })
	n := 0
	must(t, lab.Poll(t.Context(), soon, func() error {
		n++
		r.take(holder, fmt.Sprint("broken-", n))
		return r.saysOf(holder, bad)
	}))
	must(t, mend())
	code, page, err := bad.Ready(t.Context())
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(page, "input/output error") {
		t.Errorf("the node with the broken disk says %d %s, %v", code, page, err)
	}
	r.take(holder, "mended")
	if err := r.saysOf(holder, bad); err != nil {
		t.Errorf("once the disk works again and nobody has looked at it: %v", err)
	}
	bad.Kill()
	must(t, bad.Start())
	must(t, lab.Poll(t.Context(), soon, func() error { return r.ready(bad) }))
	r.judge(holder)
}

// saysOf asks whether a node's status says of a sibling that its store failed, and what to do.
func (r *region) saysOf(n, bad *field.Node) error {
	desk, err := n.Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	s, err := desk.Status(r.Context())
	if err != nil {
		return err
	}
	at := slices.IndexFunc(s.GetSeat().GetNodes(), func(x *pb.NodeState) bool { return x.GetName() == bad.Gateway })
	switch {
	case at < 0 || !strings.Contains(s.GetSeat().GetNodes()[at].GetLacks(), "input/output error"):
		return fmt.Errorf("of its nodes it says %v", s.GetSeat().GetNodes())
	case s.GetLevel() != "degraded" || !strings.Contains(s.GetVerdict(), "node "+bad.Gateway):
		return errors.New(s.GetVerdict())
	case !slices.ContainsFunc(s.GetAdvice(), func(line string) bool { return strings.HasPrefix(line, "look at the disk of node "+bad.Gateway) }):
		return fmt.Errorf("it advises %q", s.GetAdvice())
	case slices.ContainsFunc(s.GetHeals(), func(line string) bool { return strings.Contains(line, "is filled from the others") }):
		return fmt.Errorf("it says that this heals by itself: %q", s.GetHeals())
	}
	return nil
}
