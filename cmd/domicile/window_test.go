package main

import (
	"context"
	"errors"
	"testing"

	"domicile/api"
)

// RT3: what is open has a ceiling, and waiting for room ends with the context.
func TestRT3_WindowBoundsWhatIsOpen(t *testing.T) {
	w := newWindow()
	small, big := api.Record{Body: make([]byte, 10)}, api.Record{Body: make([]byte, windowBytes+1)}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.enter(cancelled, &big); err != nil {
		t.Fatalf("a big record alone: %v", err)
	}
	if err := w.enter(cancelled, &small); !errors.Is(err, context.Canceled) {
		t.Fatalf("beside a big one: %v", err)
	}
	w.leave(big.Size())
	for range windowRecords {
		if err := w.enter(cancelled, &small); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.enter(cancelled, &small); err == nil {
		t.Fatal("no bound on records")
	}
	entered := make(chan error, 1)
	go func() { entered <- w.enter(t.Context(), &small) }()
	w.leave(small.Size())
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
}
