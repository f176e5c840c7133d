package drill

import (
	"context"
	"sync"

	"domicile/api"
	"domicile/api/client"
)

// seated is the node of a region that has its logs open, as it says itself. In a region of
// three that may be another one each time: the seat moves in the midst of a drill too. It
// waits for one until ctx ends.
func seated(ctx context.Context, region *Node) (*Node, error) {
	if len(region.Others) == 0 {
		return region, nil
	}
	for {
		if n := holder(ctx, region); n != nil {
			return n, nil
		}
		if pass(ctx, watchEvery/4) != nil {
			return nil, &api.Error{Code: api.NotReady, Op: "find the seat", Region: region.Region, Hint: "none of its nodes that the contexts name has the region's logs open: name a context for each; domicile status says why"}
		}
	}
}

// holder is the first node that says so; nil: none did in time. One that hangs holds up
// nobody.
func holder(ctx context.Context, region *Node) *Node {
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, cancel := context.WithTimeout(ctx, answerWithin/2)
	defer cancel()
	nodes := append([]*Node{region}, region.Others...)
	found := make(chan *Node, len(nodes))
	for _, n := range nodes {
		asked.Go(func() {
			if s, err := n.Admin.Status(ctx); err == nil && s.GetSeat().GetOpen() {
				found <- n
				return
			}
			found <- nil
		})
	}
	for range nodes {
		if n := <-found; n != nil {
			return n
		}
	}
	return nil
}

// atSeat asks the node that has a region's logs open now.
func atSeat[T any](ctx context.Context, r *run, region string, ask func(*client.Client) (T, error)) (answer T, err error) {
	n, err := r.seat(ctx, region)
	if err != nil {
		return answer, err
	}
	return ask(n.Admin)
}

// seat is the node that has a region's logs open now.
func (r *run) seat(ctx context.Context, region string) (*Node, error) {
	n, ok := r.Nodes[region]
	if !ok {
		return nil, unreached(region)
	}
	return seated(ctx, n)
}
