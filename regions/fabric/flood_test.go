package fabric_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// rounds lets one sync of the disk through at a time, and says what was handed over since.
type rounds struct {
	on       atomic.Bool
	ask, let chan struct{}
	mu       sync.Mutex
	written  map[string]uint64 // by log, the last sequence that the broker has
}

func openInRounds(t *testing.T) (*fabric.Fabric, *rounds) {
	r := &rounds{ask: make(chan struct{}), let: make(chan struct{}), written: map[string]uint64{}}
	stop := make(chan struct{})
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Pace = 20 // no deadline of an append is due while a round is held
		c.Hooks.Sync = func(d *os.File) error {
			if r.on.Load() {
				select {
				case r.ask <- struct{}{}:
					<-r.let
				case <-stop:
				}
			}
			return fabric.Syncfs(d)
		}
		c.Hooks.Written = func(id api.LogID, sequence uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.written[id.Topic] = sequence
		}
	})
	t.Cleanup(func() { close(stop) })
	return f, r
}

func (r *rounds) has(topic string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written[topic]
}

// RT2, B50: one log floods: 40 MiB wait in its writer. What of it is on its way to the disk
// when a round begins is a share of what the disk brings in, so that a neighbour's records are
// handed to the broker at once, and are durable with the second round at the latest.
func TestRT2_ANeighbourOfAFloodWaitsForTwoRounds(t *testing.T) {
	f, r := openInRounds(t)
	loud, quiet := fabrictest.Home(t, f, "flood@here"), fabrictest.Home(t, f, "quiet@here")
	r.on.Store(true)
	pass := func() { <-r.ask; r.let <- struct{}{} }
	const records, size = 640, 64 << 10
	var flood sync.WaitGroup
	flood.Add(records)
	for n := range records {
		loud.Append(regions.Draft{Record: api.Record{ID: fmt.Sprint(n), Body: make([]byte, size)}}, func(s regions.Stored) {
			if s.Err != nil {
				t.Error(s.Err)
			}
			flood.Done()
		})
	}
	<-r.ask // the first round has begun, and the disk is slow
	const window = 16 << 20
	eventually(t, "the flood has what it is given", func() bool { return r.has("flood")*size >= window/2 })
	const beside = 64
	told := make(chan regions.Stored, beside)
	for n := range uint64(beside) {
		quiet.Append(regions.Draft{Record: api.Record{ID: fmt.Sprint("neighbour-", n)}}, func(s regions.Stored) { told <- s })
		eventually(t, "the neighbour's record is handed over while the disk is busy", func() bool { return r.has("quiet") > n })
	}
	if has := r.has("flood") * size; has > window {
		t.Errorf("%d bytes of the flood are on their way, more than the disk's window of %d", has, window)
	}
	r.let <- struct{}{}
	pass()
	for range beside {
		if s := <-told; s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	ended := make(chan struct{})
	go func() { flood.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return
		case <-r.ask:
			r.let <- struct{}{}
		}
	}
}
