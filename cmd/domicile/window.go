package main

import (
	"context"
	"sync"

	"domicile/api"
)

// Bounds of what publish --file has open at once.
const (
	windowRecords = 2_048
	windowBytes   = 8 << 20
)

// window bounds the lines without an outcome, by count and by bytes. Waiting for
// room is no part of a record's patience: that begins when the record is sent.
type window struct {
	mu      sync.Mutex
	records int
	bytes   int
	freed   chan struct{} // closed and replaced whenever room is made
}

func newWindow() *window { return &window{freed: make(chan struct{})} }

// enter waits for room for one record, or until ctx ends. A record above the byte
// bound is let in alone.
func (w *window) enter(ctx context.Context, r *api.Record) error {
	for {
		w.mu.Lock()
		if w.records == 0 || w.records < windowRecords && w.bytes+r.Size() <= windowBytes {
			w.records++
			w.bytes += r.Size()
			w.mu.Unlock()
			return nil
		}
		freed := w.freed
		w.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave gives the room back.
func (w *window) leave(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records--
	w.bytes -= size
	close(w.freed)
	w.freed = make(chan struct{})
}
