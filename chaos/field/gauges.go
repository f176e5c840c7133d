package field

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"domicile/chaos/lab"
)

// Gauges is what a node's process holds, after a garbage collection.
type Gauges struct {
	HeapBytes   uint64
	Goroutines  int
	Descriptors int
}

// gaugesFile is where a child writes its gauges when it is asked (SIGUSR1).
const gaugesFile = "gauges.json"

// Gauges asks the node's process what it holds, for at most ten seconds.
func (n *Node) Gauges(ctx context.Context) (g Gauges, err error) {
	path := filepath.Join(n.Dir, gaugesFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return g, err
	}
	if err := n.signal(syscall.SIGUSR1); err != nil {
		return g, err
	}
	err = lab.Poll(ctx, 10*time.Second, func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &g)
	})
	return g, err
}

// answerGauges writes the gauges of this process into dir whenever it is asked to.
func answerGauges(ctx context.Context, dir string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g := Gauges{HeapBytes: m.HeapAlloc, Goroutines: runtime.NumGoroutine()}
		if open, err := os.ReadDir("/proc/self/fd"); err == nil {
			g.Descriptors = len(open)
		}
		text, err := json.Marshal(g)
		next := filepath.Join(dir, gaugesFile+".new")
		if err == nil && os.WriteFile(next, text, 0o600) == nil {
			_ = os.Rename(next, filepath.Join(dir, gaugesFile)) // who asked sees that it is not there
		}
	}
}
