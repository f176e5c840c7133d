package ledger

import (
	"crypto/sha256"
	"encoding/hex"
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
	ID          string         `json:"id"`
	Hash        string         `json:"hash"` // Hash of the body
	Key         string         `json:"key,omitempty"`
	Topic       string         `json:"topic"`
	Residency   string         `json:"residency,omitempty"`
	Size        int            `json:"size"`  // bytes, as Record.Size
	Asked       string         `json:"asked"` // region whose door was asked
	Rests       []string       `json:"rests"` // the regions where it must rest once accepted, and nowhere else
	Outcome     Outcome        `json:"outcome"`
	Code        api.Code       `json:"code,omitempty"` // of a refusal or an unknown outcome
	Log         string         `json:"log,omitempty"`  // of an ack, like all that follow
	Region      string         `json:"region,omitempty"`
	Sequence    uint64         `json:"sequence,omitempty"`
	Incarnation string         `json:"incarnation,omitempty"`
	Epoch       string         `json:"epoch,omitempty"`
	Term        uint64         `json:"term,omitempty"`
	Durability  api.Durability `json:"durability,omitempty"`
	Copies      []string       `json:"copies,omitempty"` // other regions on whose disks the ack says it is
	Revision    string         `json:"revision,omitempty"`
	Ingest      time.Time      `json:"ingest,omitzero"` // stamped by the log's writer, on its clock
	Duplicate   bool           `json:"duplicate,omitempty"`
	Forwarded   bool           `json:"forwarded,omitempty"`
	Started     time.Time      `json:"started"`
	Ended       time.Time      `json:"ended"`

	// Begin and End are Started and Ended since the history's origin, on the monotonic
	// clock. Book.Enter sets them.
	Begin time.Duration `json:"begin_ns,omitempty"`
	End   time.Duration `json:"end_ns,omitempty"`
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
		e.Incarnation, e.Epoch, e.Term = ack.Incarnation, ack.Epoch.String(), ack.WriterTerm
		e.Durability, e.Revision, e.Ingest = ack.Durability, ack.PolicyRevision, ack.IngestTime
		e.Duplicate, e.Forwarded, e.Copies = ack.Duplicate, ack.Forwarded, ack.Copies
		return
	}
	e.Code = api.CodeOf(err)
	e.Outcome = Refused
	if e.Code.Stored() == api.StoredUnknown {
		e.Outcome = Unknown
	}
}
