package gossip

import (
	"sync"
	"time"
)

// probes knows whether a probe of memberlist waits for its answer: the goroutine of one
// outlives memberlist's own shutdown, and is waited for.
type probes struct {
	mu    sync.Mutex
	asked time.Time // when the last was sent that had no answer; zero: none waits
}

func (p *probes) sent(first byte) {
	if first == kindPing {
		p.set(time.Now())
	}
}

func (p *probes) heard(first byte) {
	if first == kindAck {
		p.set(time.Time{})
	}
}

func (p *probes) set(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = at
}

// wait returns when a probe that takes at most that long has ended.
func (p *probes) wait(most time.Duration) {
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	if left := most - time.Since(asked); !asked.IsZero() && left > 0 {
		ended := time.NewTimer(left)
		defer ended.Stop()
		<-ended.C
	}
}
