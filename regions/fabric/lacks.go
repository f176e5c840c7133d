package fabric

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"domicile/api"
	"domicile/regions"
)

// At pace 1.
const (
	weighEvery = 500 * time.Millisecond
	spareNew   = 3 * time.Second  // how long Spare waits for a node that was not heard yet
	spareLate  = 10 * time.Second // and for one that is being filled
	spreadWait = 5 * time.Second  // how long a new log waits for its replicas
)

// A node that was away holds less than the region until its replicas are filled, and one
// whose replica of a log is empty has no vote in that log that the broker would count. So
// each node weighs what it holds and says what it lacks, in its answers to pings.

// holding is what a node can say of its replicas.
type holding struct {
	Streams int    `json:"streams"`         // that it has
	Short   int    `json:"short,omitempty"` // replicas that are not filled
	Lacks   string `json:"lacks,omitempty"` // in words, also what it can't know; "": nothing
}

// holds is what this node last found out about its replicas.
func (f *Fabric) holds() holding {
	if h := f.holding.Load(); h != nil {
		return *h
	}
	return holding{Lacks: "it has not looked yet at what it holds"}
}

func (f *Fabric) weighLoop() {
	tick := time.NewTicker(max(f.cfg.Pace.Of(weighEvery), time.Millisecond))
	defer tick.Stop()
	for {
		h := f.weigh()
		if before := f.holding.Swap(&h); before == nil || before.Lacks != h.Lacks {
			f.cfg.Logger.Info("looked at what this node holds of the region's logs", "lacks", h.Lacks)
		}
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
	}
}

// weigh compares this node's replicas with what their leaders and the holder of the seat
// say. Without a leader nobody knows how far a log reaches, and without a holder nobody knows
// how many there are.
func (f *Fabric) weigh() (h holding) {
	b, err := f.running()
	if err != nil {
		h.Lacks = "it does not take part in its region yet"
		return h
	}
	srv := b.srv
	all, err := streamsOn(srv)
	if err != nil {
		h.Lacks = "its broker does not say what it holds"
		return h
	}
	h.Streams = len(all)
	told, lost := f.members.listed(), 0
	if seat, _ := f.Seat(); seat.Mine {
		told = h.Streams
	}
	h.Short = max(0, told-h.Streams)
	for i := range all {
		switch s := &all[i]; {
		case !srv.JetStreamIsStreamCurrent(api.DefaultTenant, s.Name):
			h.Short++
		case s.Cluster == nil || s.Cluster.Leader == "":
			lost++
		}
	}
	if h.Short > 0 {
		if why := b.deviceFault(); why != "" {
			f.failStore(why)
		}
	}
	switch of := max(told, h.Streams); {
	case f.failed():
		h.Lacks = f.failure.Load().reason
	case h.Short > 0:
		h.Lacks = fmt.Sprintf("%d of its %d replicas are not filled yet", h.Short, of)
	case !srv.JetStreamIsCurrent():
		h.Lacks = "it is being told which logs the region has"
	case lost > 0:
		h.Lacks = fmt.Sprintf("%d of its %d replicas have no leader who knows how far they reach", lost, of)
	case told == 0:
		h.Lacks = "nobody holds the seat, who would know how many logs there are"
	}
	return h
}

// streamsOn is what a broker has of the region's logs.
func streamsOn(srv *server.Server) ([]server.StreamDetail, error) {
	all, err := srv.JszAccount(&server.JSzOptions{Account: api.DefaultTenant, Streams: true})
	if err != nil {
		return nil, err
	}
	return all.Streams, nil
}

// listed is how many streams the holder of the seat has; 0: not known.
func (m *members) listed() (n int) {
	m.each(func(_ string, p *peer) {
		if m.isUp(p) && p.holds > 0 {
			n = max(n, p.has.Streams)
		}
	})
	return n
}

// wanting names the siblings that are up and lack something, with what.
func (m *members) wanting() (out []string) {
	m.each(func(name string, p *peer) {
		if m.isUp(p) && p.has.Lacks != "" {
			out = append(out, "node "+name+": "+p.has.Lacks)
		}
	})
	return out
}

// short names the siblings that are up and have replicas that are not filled.
func (m *members) short() (out []string) {
	m.each(func(name string, p *peer) {
		if m.isUp(p) && p.has.Short > 0 {
			out = append(out, name)
		}
	})
	return out
}

// missing names the siblings that are not up and did not say that they leave.
func (m *members) missing() (out []string) {
	m.each(func(name string, p *peer) {
		if !m.isUp(p) && !p.left {
			out = append(out, "node "+name+": not heard")
		}
	})
	return out
}

// absent names the siblings that are not up.
func (m *members) absent() (out []string) {
	m.each(func(name string, p *peer) {
		if !m.isUp(p) {
			out = append(out, "node "+name)
		}
	})
	return out
}

// Spare waits until the region can do without this node: until the others that are there
// lack nothing of what it holds. A node that is about to stop calls it first, while it still
// serves, because a region whose one remaining vote is of an empty replica stands still. It
// returns nil where waiting changes nothing: in a solo region, and where the others are no
// majority without it. After a bounded time it fails with NOT_READY and names who
// lacks what. It is safe for concurrent use.
func (f *Fabric) Spare(ctx context.Context) error {
	if f.members == nil {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(spareLate))
	defer cancel()
	for {
		var wait []string
		if up, _, _ := f.members.up(); up > regions.QuorumNodes/2+1 {
			wait = f.members.wanting()
		} else if time.Since(began) < f.cfg.Pace.Of(spareNew) {
			wait = f.members.missing()
		}
		if f.suspension() != nil || len(wait) == 0 {
			return nil
		}
		if f.rest(ctx, lookEvery) != nil {
			return &api.Error{Code: api.NotReady, Op: "spare this node", Region: f.cfg.Region,
				Hint: "the region may stand still until this node is back: " + strings.Join(wait, "; ")}
		}
	}
}

// spread waits a while until each node that is up has a new log, so that the death of one
// does not leave the log to a node that never had it.
func (l *store) spread(ctx context.Context) {
	if l.f.cfg.Cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.f.cfg.Pace.Of(spreadWait))
	defer cancel()
	for {
		info, err := l.info(ctx)
		if err == nil && info.Cluster != nil {
			late := 0
			for _, r := range info.Cluster.Replicas {
				if !r.Offline && !r.Current {
					late++
				}
			}
			if late == 0 {
				return
			}
		}
		if l.f.rest(ctx, lookEvery/4) != nil {
			l.log.Warn("a new log is not yet on every node that is up")
			return
		}
	}
}
