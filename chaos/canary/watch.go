package canary

import "sync"

// Watcher looks for the tokens of a set, those that are still to be added too, in bytes
// that pass. Safe for concurrent use.
type Watcher struct {
	set *Set

	mu      sync.RWMutex
	known   int // of the set's tokens
	matcher *matcher
}

// NewWatcher watches for what is in the set and for what will be.
func NewWatcher(set *Set) *Watcher { return &Watcher{set: set, matcher: newMatcher(nil)} }

// learn takes in what was added to the set meanwhile.
func (w *Watcher) learn() {
	w.mu.RLock()
	known := w.known
	w.mu.RUnlock()
	if w.set.Len() == known {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, token := range w.set.since(w.known) {
		w.matcher.add(token, w.known)
		w.known++
	}
}

// Trail is one stream of bytes, given in pieces of any size. It keeps no more of it than
// may be the beginning of a token. One goroutine uses it.
type Trail struct {
	watcher *Watcher
	seen    []byte // the end of what was looked at
}

// Trail begins a stream.
func (w *Watcher) Trail() *Trail { return &Trail{watcher: w} }

// Look calls found for every token whose last byte is in p, by its index in the set. A
// token has to be in the set before its first byte is looked at. found must not call
// the Watcher.
func (t *Trail) Look(p []byte, found func(token int, form Form)) {
	t.watcher.learn()
	t.watcher.mu.RLock()
	defer t.watcher.mu.RUnlock()
	m, before := t.watcher.matcher, len(t.seen)
	t.seen = append(t.seen, p...)
	m.find(t.seen, len(t.seen), func(at int, hit pattern) {
		if at+len(hit.text) > before {
			found(hit.token, hit.form)
		}
	})
	keep := min(len(t.seen), max(m.longest-1, 0))
	t.seen = t.seen[:copy(t.seen, t.seen[len(t.seen)-keep:])]
}
