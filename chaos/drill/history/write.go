package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"domicile/regions"
)

const (
	version = 1
	// maxLine bounds one event, in bytes.
	maxLine = 4 << 20
	// MaxBytes bounds a history's file; what comes later is counted and dropped.
	MaxBytes = 2 << 30
	// spare is kept for the events without which a history could not be read: the ends of
	// its phases and its close.
	spare = 1 << 20
)

// The beginning of each line: its chain has a fixed place, and covers all that follows.
const (
	chainOpen = `{"chain":"`
	chainLen  = 2 * sha256.Size
	chainEnd  = `",`
	bodyFrom  = len(chainOpen) + chainLen + len(chainEnd)
)

// noChain is the chain before the first event.
var noChain = string(bytes.Repeat([]byte{'0'}, chainLen))

func link(before string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(before))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// Writer writes a history while it happens. It is safe for concurrent use.
type Writer struct {
	clock regions.Clock

	mu      sync.Mutex
	file    *os.File
	origin  time.Time
	limit   int64
	size    int64
	n       uint64
	last    time.Duration
	chain   string
	phase   Phase
	dropped uint64
	failed  error // the first error; nothing is written after it
}

// Create begins a history in a new file that only its owner can read.
func Create(path string, head Head, clock regions.Clock) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin history: %w", err)
	}
	w := &Writer{clock: clock, file: f, origin: clock.Now(), chain: noChain, limit: MaxBytes}
	head.Version, head.Origin = version, w.origin.UTC().Round(0)
	if err := errors.Join(w.Note(Event{Head: &head}), f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return w, nil
}

// Now is the time since the origin, for what an event says of other moments.
func (w *Writer) Now() time.Duration { return w.clock.Now().Sub(w.origin) }

// Origin is the wall time at which the offsets begin.
func (w *Writer) Origin() time.Time { return w.origin }

// Note writes an event that happens now; N, At, Wall and Phase are set here. Its error is
// also Close's: a history that could not be written is no evidence.
func (w *Writer) Note(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.note(e)
}

// Begin notes that a phase begins, and has later events say so.
func (w *Writer) Begin(p Phase, budget time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = p
	return errors.Join(w.note(Event{Step: &Step{Phase: p, Budget: budget}}), w.sync())
}

// End notes that a phase has ended.
func (w *Writer) End(p Phase, ok bool, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.note(Event{Step: &Step{Phase: p, End: true, OK: ok, Text: text}}), w.sync())
}

// Close ends the history and answers its last chain hash, which is what to keep where
// the file's writer can't change it.
func (w *Writer) Close(c Close) (chain string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Dropped = w.dropped
	err = errors.Join(w.note(Event{Close: &c}), w.sync(), w.file.Close())
	w.failed = errors.Join(w.failed, os.ErrClosed)
	return w.chain, err
}

func (w *Writer) sync() error {
	if w.failed != nil {
		return w.failed
	}
	w.failed = w.file.Sync()
	return w.failed
}

// note writes one line. The caller holds mu.
func (w *Writer) note(e Event) error {
	if w.failed != nil {
		return w.failed
	}
	if err := e.check(); err != nil {
		return err
	}
	now := w.clock.Now()
	w.last = max(w.last, now.Sub(w.origin))
	e.N, e.At, e.Wall, e.Phase = w.n+1, w.last, now.UTC().Round(0), w.phase
	line, err := encode(&e, w.chain)
	if err != nil {
		return err
	}
	room := w.limit
	if e.Step == nil && e.Close == nil {
		room -= spare
	}
	if w.size+int64(len(line)) > room {
		w.dropped++
		return nil
	}
	if _, err := w.file.Write(line); err != nil {
		w.failed = fmt.Errorf("write history: %w", err)
		return w.failed
	}
	w.n, w.size, w.chain = e.N, w.size+int64(len(line)), string(line[len(chainOpen):len(chainOpen)+chainLen])
	return nil
}

// encode is an event's line. What json.Marshal makes of an event begins with its number,
// so that the chain can go before it.
func encode(e *Event, before string) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	body := append(text[1:], '\n')
	if bodyFrom+len(body) > maxLine {
		return nil, fmt.Errorf("an event of %d bytes, at most %d", len(body), maxLine)
	}
	line := make([]byte, 0, bodyFrom+len(body))
	line = append(line, chainOpen...)
	line = append(line, link(before, body)...)
	line = append(line, chainEnd...)
	return append(line, body...), nil
}
