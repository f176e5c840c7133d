package council

import (
	"context"
	"log/slog"
	"time"

	"domicile/regions"
)

const cacheEvery = time.Second // at most; a cache that is a second old is only colder

// keepCache writes what state gives into the cache file whenever it has changed, until
// ctx ends. What was applied when it ends is written before it returns.
func keepCache(ctx context.Context, pace regions.Pace, log *slog.Logger, path string, state func() ([]byte, <-chan struct{}, error)) {
	ticker := time.NewTicker(pace.Of(cacheEvery))
	defer ticker.Stop()
	for {
		data, changed, err := state()
		if err == nil && len(data) > 0 {
			err = regions.WriteWhole(path, data)
		}
		if err != nil {
			log.Error("the placement cache cannot be written", "err", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if data, _, err := state(); err == nil && len(data) > 0 {
				if err := regions.WriteWhole(path, data); err != nil {
					log.Error("the placement cache cannot be written", "err", err)
				}
			}
			return
		}
	}
}
