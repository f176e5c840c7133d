package opa

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"domicile/api"
	"domicile/regions"
)

// sharedAtMost bounds what a Shared keeps: a policy holds its whole table of decisions.
const sharedAtMost = 16

// Shared is for nodes that live in one process, as in a lab: what the rules of a directory
// answered one of them is taken over by the others, and by the next federation in which the
// rules read the same. It rests on no analysis of what a rule reads: its files, the kernel,
// the engine and all data and words that rules can be given are the same byte by byte. A
// directory that is refused is tried again each time. A nil *Shared shares nothing. It is
// safe for concurrent use.
type Shared struct {
	mu      sync.Mutex
	entries map[[sha256.Size]byte]*sharedEntry // guarded by mu
}

// sharedEntry is one policy, loaded by whoever has the turn.
type sharedEntry struct {
	turn   chan struct{} // holds one while a load is under way
	policy *Policy       // nil: none was loaded yet. Guarded by turn
}

// Load is the function Load. What it takes over is in Report.Asked: 0 questions. It waits,
// until ctx ends, for a load of the same policy that is under way.
func (k *Shared) Load(ctx context.Context, dir string, f *regions.Federation) (*Policy, error) {
	if k == nil {
		return Load(ctx, dir, f)
	}
	clock := regions.NewSteadyClock()
	start := clock.Now()
	s, err := readDirectory(dir)
	if err != nil {
		return nil, err
	}
	p, err := k.load(ctx, s, f.Snapshot())
	if err != nil {
		return nil, err
	}
	p.Report.Took = clock.Now().Sub(start)
	return p, nil
}

func (k *Shared) load(ctx context.Context, s *source, f *regions.Federation) (*Policy, error) {
	key, err := s.reads(f)
	if err != nil {
		return nil, err
	}
	e := k.entry(key)
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nil, &api.Error{Code: api.PolicyError, Op: "load policy", Err: ctx.Err(), Hint: "another load of it is under way in this process"}
	}
	if e.policy != nil {
		return e.policy.again(ctx, s, f)
	}
	p, err := load(ctx, s, f)
	if err != nil {
		return nil, err
	}
	e.policy = p
	kept := *p // the caller's is its own, as is its report
	return &kept, nil
}

func (k *Shared) entry(key [sha256.Size]byte) *sharedEntry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[key]; e != nil {
		return e
	}
	if k.entries == nil || len(k.entries) >= sharedAtMost {
		k.entries = map[[sha256.Size]byte]*sharedEntry{}
	}
	e := &sharedEntry{turn: make(chan struct{}, 1)}
	k.entries[key] = e
	return e
}

// reads is the digest of all that rules of a source can read in a federation.
func (s *source) reads(f *regions.Federation) (sum [sha256.Size]byte, err error) {
	c, err := s.readCatalog(f)
	if err != nil {
		return sum, err
	}
	// Maps are written by sorted keys: the same data give the same text.
	text, err := json.Marshal([]any{s.digest(), facts(c, f), words(c, f)})
	return sha256.Sum256(text), err
}
