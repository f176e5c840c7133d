package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
)

// recorder watches the order of what one log does: a record is written, a sync that begins
// after that ends well, the record is acknowledged.
type recorder struct {
	mu      sync.Mutex
	written uint64 // the last sequence that the broker has taken
	covered uint64 // the last that a sync that has ended well began after
	syncs   []time.Duration
	acks    []time.Duration
	early   int // acknowledged before that
}

// hooks watch a store; sync is what brings the volume to the disk.
func (r *recorder) hooks(sync func(*os.File) error) fabric.Hooks {
	return fabric.Hooks{
		Sync: func(dir *os.File) error {
			r.mu.Lock()
			reached := r.written
			r.mu.Unlock()
			began := time.Now()
			err := sync(dir)
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				r.covered = max(r.covered, reached)
				r.syncs = append(r.syncs, time.Since(began))
			}
			return err
		},
		Written: func(_ api.LogID, sequence uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.written = max(r.written, sequence)
		},
		Released: func(_ api.LogID, sequence uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if sequence > r.covered {
				r.early++
			}
		},
	}
}

func (r *recorder) acked(_ int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks = append(r.acks, took)
}

// watchSyncs runs a store in this process and watches it at its sync.
func watchSyncs(ctx context.Context, dir string, lasts time.Duration, sync func(*os.File) error) (c Check, s *Speed) {
	c = Check{Name: "sync before ack", Claim: "an ack leaves after a sync that began when the record was written has returned"}
	r := &recorder{}
	took, err := r.run(ctx, filepath.Join(dir, "watched"), lasts, sync)
	if err == nil && (len(r.acks) == 0 || len(r.syncs) == 0) {
		err = errSlow("no record was acknowledged within " + lasts.String())
	}
	if err != nil {
		c.fail(err)
		return c, nil
	}
	c.Acked, c.Result = len(r.acks), Passed
	if r.early > 0 {
		c.Result, c.Why = Failed, fmt.Sprintf("%d rounds of records were acknowledged before their sync had returned", r.early)
	}
	slices.Sort(r.syncs)
	slices.Sort(r.acks)
	return c, &Speed{Seconds: took.Seconds(), RecordsPerSecond: float64(len(r.acks)) / took.Seconds(), Syncs: len(r.syncs), SyncP50: at(r.syncs, 50), SyncP99: at(r.syncs, 99),
		SyncMax: at(r.syncs, 100), AckP50: at(r.acks, 50), AckP99: at(r.acks, 99)}
}

func (r *recorder) run(ctx context.Context, dir string, lasts time.Duration, sync func(*os.File) error) (took time.Duration, err error) {
	opening, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	f, log, err := open(opening, dir, r.hooks(sync))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	loading, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	err = load(loading, log, r.acked)
	took = time.Since(began)
	if api.CodeOf(err) == api.StorageFull {
		err = nil // a disk so fast that the log was full before the time was over
	}
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), mostTime)
	defer done()
	return took, errors.Join(err, f.Close(closing))
}

// at is a percentile of sorted times, in seconds.
func at(sorted []time.Duration, percent int) float64 {
	return sorted[(len(sorted)-1)*percent/100].Seconds()
}
