package link_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"domicile/regions"
)

// A witness has the council's lane and no other: whatever it tries for itself, no link comes
// up, nothing is gossiped, and the region shows none.
func TestR14e_AWitnessHasNoLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace)
	for _, name := range []string{"eu-west", "arbiter"} {
		l.listen[name] = must(net.Listen("tcp", "127.0.0.1:0"))
		l.addr[name] = l.listen[name].Addr().String()
	}
	l.prepare("eu-west", func(r *region) { r.config.Witnesses, r.config.Peers = r.config.Peers, nil })
	l.prepare("arbiter", nil) // it takes itself for a region
	l.start("eu-west")
	l.start("arbiter")
	_, taken := l.accepting(t, "eu-west")
	l.joined(t, "arbiter", "eu-west", taken)
	l.await("arbiter", "eu-west", "refused", func(s regions.LinkStatus) bool { return !s.Up && strings.Contains(s.Reason, "refused") })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if c, err := l.regions["arbiter"].Gossip().Dial(ctx, "eu-west"); err == nil {
		c.Close()
		t.Error("a witness gossips")
	}
	if _, ok := l.regions["eu-west"].Status("arbiter"); ok || len(l.regions["eu-west"].Statuses()) > 0 {
		t.Error("the region shows a link with its witness")
	}
}
