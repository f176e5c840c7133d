package field

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"domicile/chaos/lab"
)

// pageLimit bounds a metrics page, in bytes.
const pageLimit = 8 << 20

// Metrics reads the node's metrics page, as a monitoring system would.
func (n *Node) Metrics(ctx context.Context) ([]lab.Metric, error) {
	page, err := n.Page(ctx)
	if err != nil {
		return nil, err
	}
	return lab.ParseMetrics(bytes.NewReader(page))
}

// Page is the text of the node's metrics page.
func (n *Node) Page(ctx context.Context) ([]byte, error) {
	code, page, err := n.get(ctx, "/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("metrics of %s: %d", n.Name, code)
	}
	return page, err
}

// Ready is what the node answers to those that send it traffic: 200, or a reason.
func (n *Node) Ready(ctx context.Context) (code int, page string, err error) {
	code, text, err := n.get(ctx, "/readyz")
	return code, string(text), err
}

func (n *Node) get(ctx context.Context, path string) (code int, page []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.at(metricsPort)+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := n.field.web.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	page, err = io.ReadAll(io.LimitReader(response.Body, pageLimit))
	return response.StatusCode, page, err
}

// Linked waits until every region has a policy and sees its links to all others up. It gives
// up once nothing has moved for quiet, see lab.PollMoving.
func (f *Field) Linked(ctx context.Context, quiet time.Duration) error {
	return f.poll(ctx, quiet, func(ctx context.Context, region string) error { return f.linked(ctx, region) })
}

// LinkedIn waits until a region has a policy and sees its links to all others up.
// Nodes may be down meanwhile. It gives up as Linked does. It is safe for concurrent use.
func (f *Field) LinkedIn(ctx context.Context, region string, quiet time.Duration) error {
	return lab.PollMoving(ctx, quiet, func() error { return f.linked(ctx, region) })
}

// CaughtUp waits until every copy is complete up to an instant, by the regions' own
// exported safe times, and no home knows of a record that waits: a home whose clock was
// ahead stamps its records ahead of it, and a safe time of its own clock says little then. It
// gives up as Linked does.
func (f *Field) CaughtUp(ctx context.Context, instant time.Time, quiet time.Duration) error {
	return f.poll(ctx, quiet, func(ctx context.Context, region string) error { return f.caughtUp(ctx, region, instant) })
}

// poll asks about every region until all answers are nil. It ends at once when a
// node is not running.
func (f *Field) poll(ctx context.Context, quiet time.Duration, ask func(ctx context.Context, region string) error) error {
	var dead error
	err := lab.PollMoving(ctx, quiet, func() error {
		for _, n := range f.nodes {
			if dead = n.crashed(); dead != nil {
				return nil
			}
		}
		for _, region := range f.Federation.Regions() {
			if err := ask(ctx, region); err != nil {
				return err
			}
		}
		return nil
	})
	if dead != nil {
		return dead
	}
	return err
}

// any asks the nodes of a region until one says yes: in a quorum region only the node
// with the seat has links and copies.
func (f *Field) any(region string, ask func(n *Node) error) error {
	var err error
	for _, n := range f.Of(region) {
		if err = ask(n); err == nil {
			return nil
		}
	}
	return err
}

func (f *Field) linked(ctx context.Context, region string) error {
	return f.any(region, func(n *Node) error {
		page, err := n.Metrics(ctx)
		if err != nil {
			return err
		}
		up, active := map[string]bool{}, false
		for _, m := range page {
			switch m.Name {
			case lab.LinkUp:
				up[m.Labels["peer"]] = m.Value == 1
			case lab.PolicyActive:
				active = m.Value == 1
			}
		}
		if !active {
			return fmt.Errorf("%s has no policy; its log says why", n.Name)
		}
		for _, peer := range f.Federation.Peers(region) {
			if !up[peer] {
				return fmt.Errorf("the link of %s to %s is not up", n.Name, peer)
			}
		}
		return nil
	})
}

func (f *Field) caughtUp(ctx context.Context, region string, instant time.Time) error {
	return f.any(region, func(n *Node) error {
		page, err := n.Metrics(ctx)
		if err != nil {
			return err
		}
		safe, waiting, state, holds := map[string]float64{}, map[string]float64{}, map[string]string{}, true
		for _, m := range page {
			switch {
			case m.Name == lab.SafeTimeSeconds && m.Labels["target"] == region:
				safe[m.Labels["log"]] = m.Value
			case m.Name == lab.PendingRecords && m.Labels["home"] == region:
				waiting[m.Labels["log"]+" for "+m.Labels["target"]] = m.Value
			case m.Name == lab.MirrorState && m.Labels["home"] == region:
				state[m.Labels["log"]+" for "+m.Labels["target"]] = m.Labels["state"]
			case m.Name == lab.SeatHeld:
				holds = m.Value == 1
			}
		}
		if !holds {
			return fmt.Errorf("%s does not hold the seat", n.Name)
		}
		for _, flow := range f.flows(region) {
			if n, known := waiting[flow]; !known || n > 0 {
				return fmt.Errorf("%.0f records of %s wait (known: %v, %s)", n, flow, known, state[flow])
			}
		}
		want := float64(instant.UnixMicro()) / 1e6
		for _, log := range lab.Copies(f.Federation, region) {
			if at, known := safe[log]; !known || at < want {
				return fmt.Errorf("%s in %s is complete up to %.3f (known: %v), want %.3f", log, n.Name, at, known, want)
			}
		}
		return nil
	})
}

// flows names, for each log whose home a region is, the targets that get copies of it.
func (f *Field) flows(region string) (flows []string) {
	for _, name := range f.Federation.Topics() {
		topic, _ := f.Federation.Topic(name)
		for _, log := range f.Federation.Logs(topic) {
			if home, _, _ := f.Federation.Home(log); home != region {
				continue
			}
			for _, target := range f.Federation.Targets(log) {
				flows = append(flows, log.String()+" for "+target)
			}
		}
	}
	return flows
}
