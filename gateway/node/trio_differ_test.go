package node_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// withQuota changes a node's own file, or changes it back, and has the node carry it out.
func (r *trio) withQuota(name string, on bool) {
	r.t.Helper()
	free, bound := "{max_bytes: 8MiB}, on_home_loss", "{max_bytes: 8MiB}, quota: {records_per_second: 1}, on_home_loss"
	if !on {
		free, bound = bound, free
	}
	r.declare(name, free, bound)
	r.soon(func() error {
		_, err := r.desk(name).ReloadManifest(r.t.Context(), &pb.ReloadManifestRequest{})
		return err
	})
}

// tally publishes so many records at a door, all at once, and counts what their producers
// were told.
func (r *trio) tally(name, prefix string, n int) (acked, unknown, throttled int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	c := dial(r.t, r.configs[name].Listen.Door)
	var mu sync.Mutex
	var open sync.WaitGroup
	for i := range n {
		open.Go(func() {
			rec := euOrder(fmt.Sprintf("%s-%d", prefix, i))
			_, err := c.Publish(ctx, &rec)
			mu.Lock()
			defer mu.Unlock()
			switch code := api.CodeOf(err); {
			case err == nil:
				acked++
			case code == api.QuotaExceeded:
				throttled++
			case code.Stored() == api.StoredUnknown:
				unknown++
			}
		})
	}
	open.Wait()
	return acked, unknown, throttled
}

// differ publishes at every door while the nodes of the region have different files in force:
// the stricter one counts, a door's for what comes in there and the holder's for all.
// What producers were told is true all the same. The log holds stored records before it.
func (r *trio) differ(holder string, stored int) (now int) {
	r.t.Helper()
	least, most := stored, stored
	round := 0
	burst := func(name string) (throttled int) {
		round++
		acked, unknown, throttled := r.tally(name, fmt.Sprintf("differ-%d-%s", round, name), 20)
		least, most = least+acked, most+acked+unknown
		return throttled
	}
	strict, lenient := r.others(holder)[0], r.others(holder)[1]
	r.withQuota(strict, true)
	r.soon(func() error {
		if burst(strict) == 0 {
			return fmt.Errorf("the door of %s does not go by its own file", strict)
		}
		return nil
	})
	if n := burst(lenient); n > 0 {
		r.t.Errorf("the door of %s refuses %d records by the file of %s", lenient, n, strict)
	}
	r.withQuota(strict, false)
	r.withQuota(holder, true)
	for _, name := range []string{strict, lenient} {
		r.soon(func() error {
			if burst(name) == 0 {
				return fmt.Errorf("what comes in at %s does not go by the holder's file", name)
			}
			return nil
		})
	}
	r.withQuota(holder, false)
	r.soon(func() error {
		if now = int(r.ordersAt(holder).GetHead()); now < least || now > most {
			return fmt.Errorf("the log holds %d records, producers were told of %d to %d", now, least, most)
		}
		return nil
	})
	return now
}
