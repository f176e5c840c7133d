package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/fabric"
)

// seatWithin bounds how long three stores may take to agree on who reads.
const seatWithin = time.Minute

// TrioShelves is Shelves for a quorum region that is stopped. Its three stores are
// opened together, on the loopback addresses given, as nobody can read one of them
// alone. dirs and addresses are by the gateways' names.
func TrioShelves(ctx context.Context, f *regions.Federation, region string, dirs, addresses map[string]string) (shelves []ledger.Shelf, err error) {
	var mu sync.Mutex
	var open []*fabric.Fabric
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		errs := []error{err}
		for _, disk := range open {
			errs = append(errs, disk.Close(closing))
		}
		err = errors.Join(errs...)
	}()
	opening, cancel := context.WithTimeout(ctx, seatWithin)
	defer cancel()
	results := make(chan error, len(dirs))
	for gateway, dir := range dirs {
		go func() {
			disk, err := fabric.Open(opening, fabric.Config{Region: region, Federation: f.Name(), Dir: dir, MaxStore: maxStore, Logger: slog.New(slog.DiscardHandler),
				Cluster: &fabric.Cluster{Node: gateway, Members: addresses, Listen: addresses[gateway]}})
			if err == nil {
				mu.Lock()
				open = append(open, disk)
				mu.Unlock()
			}
			results <- err
		}()
	}
	for range dirs {
		err = errors.Join(err, <-results)
	}
	if err != nil {
		return nil, fmt.Errorf("open the stores of %s: %w", region, err)
	}
	var holder *fabric.Fabric
	if err := Poll(opening, seatWithin, func() error {
		for _, disk := range open {
			if seat, _ := disk.Seat(); seat.Mine {
				holder = disk
				return nil
			}
		}
		return fmt.Errorf("nobody holds the seat of %s", region)
	}); err != nil {
		return nil, err
	}
	return readAll(ctx, holder, f, region)
}
