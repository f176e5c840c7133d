package regions

import (
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"domicile/api"
)

// MaxTailEntries is how many entries one tail list holds at most.
const MaxTailEntries = 512

// TailKey keys the hashes that stand for record ids in tail lists and loss reports. There
// is one for each incarnation of a log and each home. Only regions that may hold records of
// the log are told it: whoever has none can't find out by guessing which ids the hashes
// stand for.
type TailKey [16]byte

// TailHash stands for a record's id.
type TailHash [8]byte

// Hash is what stands for an id under this key.
func (k TailKey) Hash(id string) (h TailHash) {
	m := hmac.New(sha256.New, k[:])
	m.Write([]byte(id))
	copy(h[:], m.Sum(nil))
	return h
}

// TailEntry is one step of a log's tail: a record, or what stands in its place.
type TailEntry struct {
	From, Sequence uint64  // first and last sequence; of a record they are the same
	Kind           GapKind // "" for a record
	ID             TailHash
	Time           time.Time // ingest time of the record, of a gap's last sequence
	Bytes          uint32    // size of the record
}

// TailList names, in order, what a target has not confirmed of a log, ahead of the records
// themselves: what the target could lose with the home. It holds only records that
// may rest in the target; those that may not are counted as withheld. What no list ever
// named is unknown, never nothing.
type TailList struct {
	Log         api.LogID
	Incarnation string
	Epoch       api.Epoch
	Key         TailKey
	Head        uint64    // durable, at the home
	HeadTime    time.Time // ingest time of the head
	Closed      time.Time // the log is complete up to here, on the home's clock
	Entries     []TailEntry
}
