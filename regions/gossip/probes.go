package gossip

import (
	"encoding/binary"
	"sync"
	"time"
)

// Kinds of memberlist's packets, in its protocol version 5.
const (
	kindPing     = 0
	kindAck      = 2
	kindCompound = 7
	kindCRC      = 12
)

// probes knows whether a probe of memberlist waits for its answer: the goroutine of one
// outlives memberlist's own shutdown, and is waited for.
type probes struct {
	mu    sync.Mutex
	asked time.Time // when the last was sent that had no answer; zero: none waits
}

func (p *probes) sent(b []byte) {
	if kind(b) == kindPing {
		p.set(time.Now())
	}
}

func (p *probes) heard(b []byte) {
	if kind(b) == kindAck {
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

// kind is what a packet, or the first part of one of several, is; -1: it can't be told.
func kind(b []byte) int {
	if len(b) > 5 && b[0] == kindCRC {
		b = b[5:]
	}
	if len(b) > 2 && b[0] == kindCompound {
		at := 2 + 2*int(b[1])
		if len(b) <= at || binary.BigEndian.Uint16(b[2:]) == 0 {
			return -1
		}
		return int(b[at])
	}
	if len(b) == 0 {
		return -1
	}
	return int(b[0])
}
