package mirror

import (
	"context"
	"sync"
	"time"
)

// watchdog ends a session that is behind and makes no progress. It knows at which
// hop the session is, to name it.
type watchdog struct {
	after  time.Duration
	mu     sync.Mutex
	hop    string
	paused bool
	timer  *time.Timer
}

func newWatchdog(after time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{after: after}
	w.timer = time.AfterFunc(after, func() {
		w.mu.Lock()
		hop, paused := w.hop, w.paused
		w.mu.Unlock()
		if !paused {
			cancel(&stalled{hop})
		}
	})
	return w
}

// at names the hop that is waited for.
func (w *watchdog) at(hop string) {
	w.mu.Lock()
	w.hop = hop
	w.mu.Unlock()
}

// progress starts the time anew, unless nothing is being waited for.
func (w *watchdog) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.paused {
		w.timer.Reset(w.after)
	}
}

// pause: there is nothing to wait for.
func (w *watchdog) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	w.timer.Stop()
}

// resume: there is.
func (w *watchdog) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused {
		w.paused = false
		w.timer.Reset(w.after)
	}
}

func (w *watchdog) stop() { w.pause() }
