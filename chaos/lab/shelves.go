package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/fabric"
)

// maxStore is what the broker may use while a store is read.
const maxStore = 16 << 30

// Shelves reads every log in the data directory of a solo region that is stopped,
// without any node, policy or door in between: what must not be there shows as well.
func Shelves(ctx context.Context, f *regions.Federation, region, dir string) (_ []ledger.Shelf, err error) {
	disk, err := fabric.Open(ctx, fabric.Config{Region: region, Federation: f.Name(), Dir: dir, MaxStore: maxStore, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("open the store of %s: %w", region, err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, disk.Close(closing))
	}()
	return readAll(ctx, disk, f, region)
}

// readAll reads every log that the region has, as its home or as a copy.
func readAll(ctx context.Context, disk *fabric.Fabric, f *regions.Federation, region string) (shelves []ledger.Shelf, err error) {
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, id := range f.Logs(topic) {
			log, err := openLog(ctx, disk, f, topic, id, region)
			if err == nil && log == nil {
				continue
			}
			var shelf *ledger.Shelf
			if err == nil {
				shelf, err = ledger.ReadShelf(ctx, region, log)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s in %s: %w", id, region, err)
			}
			shelves = append(shelves, *shelf)
		}
	}
	return shelves, nil
}

// openLog opens a log as what it is in this region; nil: it is neither.
func openLog(ctx context.Context, disk *fabric.Fabric, f *regions.Federation, topic *regions.Topic, id api.LogID, region string) (regions.Log, error) {
	home, epoch, _ := f.Home(id)
	c := fabric.LogConfig{ID: id, Epoch: epoch, MaxBytes: int64(topic.Retention.MaxBytes), MaxAge: topic.Retention.MaxAge}
	if home == region {
		return disk.Home(ctx, c)
	}
	if slices.Contains(f.Targets(id), region) {
		return disk.Copy(ctx, c)
	}
	return nil, nil
}
