package fabric

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
	"time"

	"domicile/regions"
)

// What the index keeps: at least minIndexAge and minIndexed ids of each log, at most
// maxIndexed of the region, where the log with the most gives up its oldest.
const (
	minIndexAge = 10 * time.Minute
	minIndexed  = 1_000_000
	maxIndexed  = 4_000_000
	indexStep   = 1024 // ids given up at once for the region's bound
)

const hashSize = 16

// hasher makes the keyed hashes that stand for bodies and ids.
type hasher struct{ pool sync.Pool }

func newHasher(key []byte) *hasher {
	return &hasher{pool: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// sum is HMAC-SHA-256 truncated to 128 bits; domain keeps ids and bodies apart.
func (h *hasher) sum(domain byte, data []byte) (out [hashSize]byte) {
	m := h.pool.Get().(hash.Hash)
	defer h.pool.Put(m)
	m.Reset()
	var buf [sha256.Size]byte
	m.Write([]byte{domain})
	m.Write(data)
	copy(out[:], m.Sum(buf[:0]))
	return out
}

const (
	domainBody = 'b'
	domainID   = 'i'
	domainVoid = 'v'
	domainTail = 't'
)

// TailKey keys, for as long as the region's store lives, the hashes by which the ids of a
// log of this incarnation are told to other regions.
func (f *Fabric) TailKey(incarnation string) regions.TailKey {
	return f.hash.sum(domainTail, []byte(incarnation))
}

// indexed is one durable id of a log.
type indexed struct {
	id, body         [hashSize]byte
	sequence, broker uint64
	at               int64 // ingest, nanoseconds since 1970
}

// index answers which ids of a log are durable. Entries are in log order; ordinals
// count them from the first ever added and wrap at 32 bits.
type index struct {
	mu    sync.Mutex
	byID  map[[hashSize]byte]uint32
	ring  []indexed // ring[head:] are kept
	head  int
	first uint32 // ordinal of ring[head]
	all   *indexes
}

// indexes bounds the ids of all logs of a region.
type indexes struct {
	mu    sync.Mutex
	logs  map[*index]struct{}
	total int
	max   int
	least int // of each log
}

func newIndexes() *indexes {
	return &indexes{logs: map[*index]struct{}{}, max: maxIndexed, least: minIndexed}
}

func (x *indexes) add() *index {
	i := &index{byID: map[[hashSize]byte]uint32{}, all: x}
	x.mu.Lock()
	x.logs[i] = struct{}{}
	x.mu.Unlock()
	return i
}

// remove forgets a log whose opening failed.
func (x *indexes) remove(i *index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.logs[i]; ok {
		delete(x.logs, i)
		x.total -= i.size()
	}
}

func (x *indexes) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.total
}

// get returns the entry of an id.
func (i *index) get(id [hashSize]byte) (indexed, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	o, ok := i.byID[id]
	if !ok {
		return indexed{}, false
	}
	return i.ring[i.head+int(o-i.first)], true
}

// put adds an entry that has just become durable, and gives up what is old.
func (i *index) put(e indexed) {
	i.mu.Lock()
	before := len(i.ring) - i.head
	i.byID[e.id] = i.first + uint32(before)
	i.ring = append(i.ring, e)
	old := e.at - int64(minIndexAge)
	for len(i.ring)-i.head > i.all.least && i.ring[i.head].at < old {
		i.drop()
	}
	grown := len(i.ring) - i.head - before
	i.mu.Unlock()
	i.all.grow(grown)
}

// drop gives up the oldest entry; i.mu is held.
func (i *index) drop() {
	if o, ok := i.byID[i.ring[i.head].id]; ok && o == i.first {
		delete(i.byID, i.ring[i.head].id)
	}
	i.head++
	i.first++
	if i.head > len(i.ring)/2 && i.head > indexStep {
		i.ring = append(make([]indexed, 0, len(i.ring)-i.head+indexStep), i.ring[i.head:]...)
		i.head = 0
	}
}

func (i *index) size() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.ring) - i.head
}

func (x *indexes) grow(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.total += n
	for x.total > x.max {
		var largest *index
		most := 0
		for i := range x.logs {
			if s := i.size(); s > most {
				largest, most = i, s
			}
		}
		if largest == nil {
			return
		}
		largest.mu.Lock()
		n := min(indexStep, len(largest.ring)-largest.head)
		for range n {
			largest.drop()
		}
		largest.mu.Unlock()
		x.total -= n
	}
}
