package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"domicile/regions/fabric"
)

// Write is the process that gets killed: it publishes into a store in dir and writes the
// id of each record that is acknowledged to out, until ctx ends.
func Write(ctx context.Context, dir string, out io.Writer) error {
	f, log, err := open(ctx, dir, fabric.Hooks{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	err = load(ctx, log, func(n int, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(out, record(n).ID) // nobody reads any more: the end is near
	})
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostTime)
	defer cancel()
	_ = f.Close(closing)
	return err
}

// Read writes the ids of the records that a store in dir holds to out.
func Read(ctx context.Context, dir string, out io.Writer) error {
	held, err := stored(ctx, dir)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for id := range held {
		if _, err := fmt.Fprintln(w, id); err != nil {
			return err
		}
	}
	return w.Flush()
}

// writer is a running Write.
type writer struct {
	cmd   *exec.Cmd
	said  strings.Builder // on standard error
	done  chan struct{}
	mu    sync.Mutex
	acked []string
}

func start(cmd *exec.Cmd) (*writer, error) {
	w := &writer{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &w.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.mu.Lock()
			w.acked = append(w.acked, lines.Text())
			w.mu.Unlock()
		}
	}()
	return w, nil
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// until waits for so many acknowledgements.
func (w *writer) until(ctx context.Context, least int) error {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for w.count() < least {
		select {
		case <-tick.C:
		case <-w.done:
			_ = w.cmd.Wait()
			return fmt.Errorf("the process that publishes ended by itself: %s", strings.TrimSpace(w.said.String()))
		case <-ctx.Done():
			return errSlow(fmt.Sprintf("%d of %d records were acknowledged within %s", w.count(), least, mostTime))
		}
	}
	return nil
}

// kill ends it as the system would, and waits for its last words.
func (w *writer) kill() {
	_ = w.cmd.Process.Signal(syscall.SIGKILL) // an error: it has ended
	<-w.done
	_ = w.cmd.Wait()
}

// missing counts the acknowledged records that are not held.
func (w *writer) missing(held map[string]bool) (lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.acked {
		if !held[id] {
			lost++
		}
	}
	return lost
}

// killed has a process publish and kills it.
func killed(ctx context.Context, dir string, self Self) (c Check) {
	c = Check{Name: "kill -9", Claim: "what was acknowledged is there after the process was killed", Result: Passed}
	fail := func(err error) Check {
		c.fail(err)
		return c
	}
	data := dir + "/killed"
	if err := os.Mkdir(data, 0o700); err != nil {
		return fail(err)
	}
	w, err := start(self(ctx, "write", data))
	if err != nil {
		return fail(err)
	}
	err = w.until(ctx, 1000)
	w.kill()
	if err != nil {
		return fail(err)
	}
	reading, cancel := context.WithTimeout(ctx, 2*mostTime)
	defer cancel()
	held, err := stored(reading, data)
	if err != nil {
		return fail(err)
	}
	c.Acked, c.Lost = w.count(), w.missing(held)
	if c.Lost > 0 {
		c.Result, c.Why = Failed, "acknowledged records are gone"
	}
	return c
}
