package lab_test

import (
	"sync"

	"domicile/api"
	"domicile/gateway/node"
)

// stopAt keeps one act at one region from being done, and tells when it was due.
type stopAt struct {
	mu          sync.Mutex
	region, act string
	due         chan struct{} // closed when it was
}

func (s *stopAt) set(region, act string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.region, s.act, s.due = region, act, make(chan struct{})
	return s.due
}

func (s *stopAt) seams(name string, n *node.Seams) {
	n.Hooks.Move = func(_ api.LogID, act string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.due == nil || name != s.region || act != s.act {
			return nil
		}
		select {
		case <-s.due:
		default:
			close(s.due)
		}
		return &api.Error{Code: api.NotReady, Op: "stop", Hint: "by the test"}
	}
}

func (s *stopAt) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = nil
}
