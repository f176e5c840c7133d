package fabric

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A holder of the seat may call an instant closed only once a majority of the region's
// nodes has promised that no later holder will stamp a record before it. A later holder
// asks a majority for their promises, under its own higher term, before its first stamp;
// any two majorities share a node.

// promise is one node's word. A lower term than the highest it has heard is refused, so
// that what a new holder was told stays the last word to the old one.
type promise struct {
	Term  uint64 `json:"term"`
	Floor int64  `json:"floor"` // nanoseconds since 1970
}

// give answers a holder's request; ok is false for a holder that was replaced.
func (p *promise) give(term uint64, floor int64) (ok bool) {
	if term < p.Term {
		return false
	}
	p.Term, p.Floor = term, max(p.Floor, floor)
	return true
}

// promised is the floor that a majority has promised under a term: the least of the
// highest n/2+1. given holds one floor per node that did.
func promised(given []int64, nodes int) (int64, bool) {
	majority := nodes/2 + 1
	if len(given) < majority {
		return 0, false
	}
	slices.Sort(given)
	return given[len(given)-majority], true
}

// promiseStep is how far ahead of a promise its mark on disk lies. After an unclean start
// the node stands by the mark.
const promiseStep = 2 * time.Second

const promiseFile = "promise.json"

// promises keeps a node's word across its restarts.
type promises struct {
	path string

	mu   sync.Mutex
	now  promise
	mark promise // on disk
}

func openPromises(dir string) (*promises, error) {
	p := &promises{path: filepath.Join(dir, promiseFile)}
	if err := readJSON(p.path, &p.mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refuse("promise", promiseFile, "the mark is unreadable: restore it from a backup, or mirror the region into a new one", err)
	}
	p.now = p.mark
	return p, nil
}

// give is promise.give; its word is on disk before it is out.
func (p *promises) give(term uint64, floor int64) (now promise, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.now
	if !next.give(term, floor) {
		return p.now, false, nil
	}
	if next.Term > p.mark.Term || next.Floor > p.mark.Floor {
		mark := promise{Term: next.Term, Floor: max(p.mark.Floor, next.Floor)}
		if next.Floor > p.mark.Floor {
			mark.Floor += int64(promiseStep)
		}
		if err := writeJSON(p.path, mark); err != nil {
			return p.now, false, err
		}
		p.mark = mark
	}
	p.now = next
	return next, true, nil
}

func (p *promises) get() promise {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// adopt takes over the word of another node: it stands for what a lost disk of this one
// promised.
func (p *promises) adopt(words ...promise) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range words {
		p.now = promise{max(p.now.Term, w.Term), max(p.now.Floor, w.Floor)}
	}
	p.mark = promise{max(p.mark.Term, p.now.Term), max(p.mark.Floor, p.now.Floor)}
	return writeJSON(p.path, p.mark)
}

// settle writes the word as it is: the end was clean.
func (p *promises) settle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = p.now
	return writeJSON(p.path, p.mark)
}
