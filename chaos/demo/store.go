package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/fabric"
)

// store is what one region has on disk, read without any node, policy or door in
// between: what must not be there shows as well.
type store struct {
	shelves []ledger.Shelf
	tags    map[place]string // residency of each data record
	gaps    map[string][]regions.Gap
	cursor  map[string]uint64 // per log, its last sequence
}

// place is one sequence of one log.
type place struct {
	log      string
	sequence uint64
}

// maxStore is what the broker may use while a store is read.
const maxStore = 16 << 30

// readStore opens the data directory of a region that is stopped and reads every log.
func readStore(ctx context.Context, f *regions.Federation, region, dir string) (_ *store, err error) {
	disk, err := fabric.Open(ctx, fabric.Config{Region: region, Federation: f.Name(), Dir: dir, MaxStore: maxStore, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("open the store of %s: %w", region, err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, disk.Close(closing))
	}()
	s := &store{tags: map[place]string{}, gaps: map[string][]regions.Gap{}, cursor: map[string]uint64{}}
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, id := range f.Logs(topic) {
			log, err := openLog(ctx, disk, f, topic, id, region)
			if err == nil && log != nil {
				err = s.read(ctx, region, log)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s in %s: %w", id, region, err)
			}
		}
	}
	return s, nil
}

// openLog opens a log as what it is in this region; nil: it is neither.
func openLog(ctx context.Context, disk *fabric.Fabric, f *regions.Federation, topic *regions.Topic, id api.LogID, region string) (regions.Log, error) {
	home, epoch, _ := f.Home(id)
	c := fabric.LogConfig{ID: id, Epoch: epoch, MaxBytes: int64(topic.Retention.MaxBytes), MaxAge: topic.Retention.MaxAge}
	if home == region {
		return disk.Home(ctx, c)
	}
	for _, target := range f.Targets(id) {
		if target == region {
			return disk.Copy(ctx, c)
		}
	}
	return nil, nil
}

func (s *store) read(ctx context.Context, region string, log regions.Log) error {
	shelf, err := ledger.ReadShelf(ctx, region, log)
	if err != nil {
		return err
	}
	s.shelves = append(s.shelves, *shelf)
	s.cursor[shelf.Log] = shelf.End
	s.gaps[shelf.Log] = shelf.Gaps
	for i := range shelf.Items {
		item := &shelf.Items[i]
		s.tags[place{item.Log, item.Sequence}] = item.Residency
	}
	return nil
}

// gapAt is the gap that stands in place of a record; false: the record is here, or
// the log does not reach so far.
func (s *store) gapAt(p place) (regions.Gap, bool) {
	for _, g := range s.gaps[p.log] {
		if g.From <= p.sequence && p.sequence <= g.To {
			return g, true
		}
	}
	return regions.Gap{}, false
}

// withheld is how many sequences of a log policy left out on one side.
func (s *store) withheld(log, side string) int {
	n := 0
	for _, g := range s.gaps[log] {
		if g.Kind == regions.Withheld && g.Side == side {
			n += int(g.Count())
		}
	}
	return n
}
