package main

import (
	"context"
	"errors"
	"os"
	"testing"
)

// A quiet standard input holds nobody up: what comes is read, and then Ctrl-C ends it.
func TestInput_EndsWithItsContext(t *testing.T) {
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := (&app{in: in}).interruptible(ctx)
	if _, err := feed.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := r.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	done := make(chan error, 1)
	go func() { _, err := r.Read(b); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, errInterrupted) {
		t.Errorf("ended with %v", err)
	}
}
