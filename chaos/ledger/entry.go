package ledger

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"domicile/api"
)

// Outcome is what a producer was told.
type Outcome string

// The three outcomes. There is no fourth: a record without one is a fault of the
// gateway, and Check says so.
const (
	Acked   Outcome = "acked"
	Refused Outcome = "refused" // by a code that says nothing was stored
	Unknown Outcome = "unknown" // it may be stored, once, or not
)

// Entry is one attempt to publish: a record, where it was published, and the answer.
// The same id may have several entries; they are one record.
type Entry struct {
	ID        string    `json:"id"`
	Hash      string    `json:"hash"` // Hash of the body
	Key       string    `json:"key,omitempty"`
	Topic     string    `json:"topic"`
	Residency string    `json:"residency,omitempty"`
	Size      int       `json:"size"`  // bytes, as Record.Size
	Asked     string    `json:"asked"` // region whose door was asked
	Rests     []string  `json:"rests"` // the regions where it must rest once accepted, and nowhere else
	Outcome   Outcome   `json:"outcome"`
	Code      api.Code  `json:"code,omitempty"` // of a refusal or an unknown outcome
	Log       string    `json:"log,omitempty"`  // of an ack, like all that follow
	Region    string    `json:"region,omitempty"`
	Sequence  uint64    `json:"sequence,omitempty"`
	Duplicate bool      `json:"duplicate,omitempty"`
	Forwarded bool      `json:"forwarded,omitempty"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
}

// Hash is how a body is compared: SHA-256 in hex.
func Hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Answer fills in what the producer was told: an ack, or else the error's code.
func (e *Entry) Answer(ack api.Ack, err error, at time.Time) {
	e.Ended = at
	if err == nil {
		e.Outcome, e.Log, e.Region, e.Sequence = Acked, ack.Log.String(), ack.Region, ack.Sequence
		e.Duplicate, e.Forwarded = ack.Duplicate, ack.Forwarded
		return
	}
	e.Code = api.CodeOf(err)
	e.Outcome = Refused
	if e.Code.Stored() == api.StoredUnknown {
		e.Outcome = Unknown
	}
}

// Item is one record as it is stored in one region.
type Item struct {
	Region   string `json:"region"` // whose disk
	Log      string `json:"log"`
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id"`
	Key      string `json:"key,omitempty"`
	Hash     string `json:"hash"`
	Size     int    `json:"size"`
}

// Book collects entries while producers run. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	entries []Entry
}

// Enter adds an entry.
func (b *Book) Enter(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
}

// Entries is a copy of what has been entered, in that order.
func (b *Book) Entries() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.entries)
}

// Write writes a history as JSON, one entry a line.
func Write(w io.Writer, entries []Entry) error {
	e := json.NewEncoder(w)
	for i := range entries {
		if err := e.Encode(&entries[i]); err != nil {
			return fmt.Errorf("write entry %d: %w", i+1, err)
		}
	}
	return nil
}

// Read reads what Write wrote. A line that is no entry is an error with its number.
func Read(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("history line %d: %w", n, err)
		}
		if !slices.Contains([]Outcome{Acked, Refused, Unknown}, e.Outcome) || e.ID == "" {
			return nil, fmt.Errorf("history line %d: %w", n, errors.New("no id or no outcome"))
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}
