package mirror

import (
	"context"
	"sync"
	"time"
)

// watchdog ends a session that is behind and makes no progress. It knows at which
// hop the session is, to name it. It is patient with a batch that a slow line is still
// carrying: given up on the way, it would only be sent once more.
type watchdog struct {
	after  time.Duration
	mu     sync.Mutex
	moving func() bool // nil: there is no stream yet
	hop    string
	paused bool
	timer  *time.Timer
}

func newWatchdog(after time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{after: after}
	w.timer = time.AfterFunc(after, func() {
		w.mu.Lock()
		hop, paused, moving := w.hop, w.paused, w.moving
		w.mu.Unlock()
		switch {
		case paused:
		case moving != nil && moving():
			w.progress()
		default:
			cancel(&stalled{hop})
		}
	})
	return w
}

// watch asks the stream from now on whether the line still carries what is waited for.
func (w *watchdog) watch(moving func() bool) {
	w.mu.Lock()
	w.moving = moving
	w.mu.Unlock()
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
