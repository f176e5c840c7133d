package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
)

const (
	window   = 256      // records in flight
	bodySize = 1 << 10  // of each
	logSize  = 64 << 20 // what the log may hold; the load ends there
	mostTime = 20 * time.Second
)

var orders = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "here"}

func open(ctx context.Context, dir string, hooks fabric.Hooks) (*fabric.Fabric, regions.HomeLog, error) {
	f, err := fabric.Open(ctx, fabric.Config{Region: "here", Federation: "doctor", Dir: dir, MaxStore: 2 * logSize, Hooks: hooks})
	if err != nil {
		return nil, nil, err
	}
	log, err := f.Home(ctx, fabric.LogConfig{ID: orders, Epoch: api.StaticEpoch("here"), MaxBytes: logSize})
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostTime)
		defer cancel()
		_ = f.Close(closing) // the first error says it
		return nil, nil, err
	}
	return f, log, nil
}

func record(n int) api.Record {
	return api.Record{ID: fmt.Sprintf("doctor-%d", n), Topic: "orders", Body: []byte(strings.Repeat("x", bodySize))}
}

// load appends records until ctx ends or the log takes no more, and waits until each has
// its outcome. acked is called for each that was acknowledged, from several goroutines. That a
// record's outcome is unknown ends nothing.
func load(ctx context.Context, log regions.HomeLog, acked func(n int, took time.Duration)) error {
	slots := make(chan struct{}, window)
	failed := make(chan error, 1)
	for n := 0; ; n++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return drain(slots, failed)
		case err := <-failed:
			_ = drain(slots, failed)
			return err
		}
		sent := time.Now()
		log.Append(regions.Draft{Record: record(n), Revision: "doctor-1"}, func(s regions.Stored) {
			switch {
			case s.Err == nil:
				acked(n, time.Since(sent))
			case api.CodeOf(s.Err) == api.OutcomeUnknown: // nothing was promised: the disk is slow
			default:
				select {
				case failed <- s.Err:
				default:
				}
			}
			<-slots
		})
	}
}

// drain waits for the outcomes that are out: each append has one in the end.
func drain(slots chan struct{}, failed chan error) error {
	for range window {
		slots <- struct{}{}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// stored reads which records a store holds.
func stored(ctx context.Context, dir string) (held map[string]bool, err error) {
	f, log, err := open(ctx, dir, fabric.Hooks{})
	if err != nil {
		return nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostTime)
		defer cancel()
		if closed := f.Close(closing); err == nil {
			err = closed
		}
	}()
	reader, err := log.Reader(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	held = map[string]bool{}
	for {
		items, err := reader.Next(ctx, regions.ReadLimit{Records: 1000, Bytes: 4 << 20})
		if err != nil || len(items) == 0 {
			return held, err
		}
		for i := range items {
			if items[i].Gap == nil {
				held[items[i].Record.ID] = true
			}
		}
	}
}
