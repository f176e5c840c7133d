package simulate

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair is both ends of a connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	n := newNetwork()
	l, err := n.Listen(context.Background(), "tcp", "eu.example:1")
	if err != nil {
		t.Fatal(err)
	}
	if near, err = n.Dial(context.Background(), "tcp", "eu.example:1"); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen(context.Background(), "tcp", "eu.example:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Dial(context.Background(), "tcp", "eu.example:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	return near, far
}

func TestPipe_EndsAsSocketsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		if _, err := near.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		near.Close()
		if text, err := io.ReadAll(far); err != nil || string(text) != "last words" {
			t.Errorf("%q %v", text, err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write to who has hung up: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read of what is closed: %v", err)
		}
	})
}

// TestPipe_DeadlinesMoveUnderThoseWhoWait: a deadline ends a read at its instant; one that is
// moved meanwhile counts for who waits already, and one that is taken away never comes.
func TestPipe_DeadlinesMoveUnderThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		wait := func(move func()) time.Duration {
			began, done := time.Now(), make(chan error)
			go func() {
				_, err := near.Read(make([]byte, 1))
				done <- err
			}()
			synctest.Wait()
			move()
			if err := <-done; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			return time.Since(began)
		}
		at := func(d time.Duration) {
			if err := near.SetReadDeadline(time.Now().Add(d)); err != nil {
				t.Error(err)
			}
		}
		at(time.Hour)
		if d := wait(func() {}); d != time.Hour {
			t.Errorf("ended after %s", d)
		}
		at(time.Hour)
		if d := wait(func() { at(2 * time.Hour) }); d != 2*time.Hour {
			t.Errorf("moved away, it ended after %s", d)
		}
		at(time.Hour)
		if d := wait(func() { at(-time.Second) }); d != 0 {
			t.Errorf("moved into the past, it ended after %s", d)
		}
		at(time.Hour)
		if d := wait(func() {
			if err := near.SetDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			time.AfterFunc(3*time.Hour, func() { _, _ = far.Write([]byte("x")) })
		}); d != 3*time.Hour {
			t.Errorf("taken away, it ended after %s", d)
		}
	})
}

// TestPipe_AFullOneHoldsItsWriter until somebody reads, and loses nothing.
func TestPipe_AFullOneHoldsItsWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		const size = buffered + 1000
		go func() {
			if n, err := near.Write(make([]byte, size)); n != size || err != nil {
				t.Errorf("%d %v", n, err)
			}
			near.Close()
		}()
		synctest.Wait()
		if n, err := io.Copy(io.Discard, far); n != size || err != nil {
			t.Errorf("%d of %d bytes, %v", n, size, err)
		}
		if err := near.SetWriteDeadline(time.Now()); err != nil {
			t.Error(err)
		}
	})
}
