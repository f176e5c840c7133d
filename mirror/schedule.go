package mirror

import (
	"reflect"
	"sync"
	"time"

	"domicile/regions"
)

// pause is what a flow waits for once its goroutine has ended, besides a nudge and
// the retry it may have armed.
type pause struct {
	again bool // nothing: go on at once
	watch bool // the log's head moves past seen
	seen  uint64
}

// wakeLocked gives the flow a goroutine if it has none. s.mu is held.
func (s *Source) wakeLocked(f *flow) {
	if s.closed || !s.started || f.ended {
		return
	}
	if f.running {
		f.again = true
		return
	}
	stopAfter(f.timer)
	f.running, f.watching, f.timer = true, false, nil
	s.work.Add(1)
	f.work.Add(1)
	go f.run(f.ctx)
}

// kickLocked also makes a flow that is busy look at the world again. s.mu is held.
func (s *Source) kickLocked(f *flow) {
	select {
	case f.kick <- struct{}{}:
	default:
	}
	s.wakeLocked(f)
}

// arm wakes the flow after d, whatever it does by then.
func (s *Source) arm(f *flow, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stopAfter(f.timer)
	f.timer = nil
	if s.closed || f.ended {
		return
	}
	f.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kickLocked(f)
	})
}

// park ends the flow's goroutine, unless something happened meanwhile. It reports
// whether the goroutine ends.
func (s *Source) park(f *flow, p pause) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := f.again || p.again
	f.again = false
	if again && !s.closed && !f.ended {
		return false
	}
	if p.watch && !s.closed && !f.ended {
		moved := f.log.Changed(p.seen)
		select {
		case <-moved: // a watch that is there may be for a later head
			return false
		default:
		}
		f.watching = true
		s.watch.add(f.log, moved)
	}
	f.running = false
	return true
}

// watcher waits for the heads of idle logs to move: one goroutine for all of them.
type watcher struct {
	mu      sync.Mutex
	waiting map[regions.HomeLog]<-chan struct{}
	changed chan struct{} // cap 1: waiting has changed
}

func newWatcher() watcher {
	return watcher{waiting: map[regions.HomeLog]<-chan struct{}{}, changed: make(chan struct{}, 1)}
}

// add watches a log. A watch that is there already is older: it fires no later.
func (w *watcher) add(log regions.HomeLog, moved <-chan struct{}) {
	w.mu.Lock()
	_, have := w.waiting[log]
	if !have {
		w.waiting[log] = moved
	}
	w.mu.Unlock()
	if have {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watcher) remove(log regions.HomeLog) {
	w.mu.Lock()
	delete(w.waiting, log)
	w.mu.Unlock()
}

// cases is the select over the end, changes to the set, and every idle log.
func (w *watcher) cases(done <-chan struct{}) ([]reflect.SelectCase, []regions.HomeLog) {
	w.mu.Lock()
	defer w.mu.Unlock()
	receive := func(c any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	cases := []reflect.SelectCase{receive(done), receive(w.changed)}
	logs := make([]regions.HomeLog, 2, 2+len(w.waiting))
	for log, moved := range w.waiting {
		cases, logs = append(cases, receive(moved)), append(logs, log)
	}
	return cases, logs
}

// watchHeads wakes the flows of a log whose head has moved.
func (s *Source) watchHeads() {
	defer s.work.Done()
	for {
		cases, logs := s.watch.cases(s.ctx.Done())
		i, _, _ := reflect.Select(cases)
		switch i {
		case 0:
			return
		case 1:
			continue
		}
		// Removed before the flows wake: one that parks again finds no stale watch.
		s.watch.remove(logs[i])
		s.mu.Lock()
		for _, f := range s.byLog[logs[i].ID()] {
			if f.watching && f.log == logs[i] {
				s.wakeLocked(f)
			}
		}
		s.mu.Unlock()
	}
}
