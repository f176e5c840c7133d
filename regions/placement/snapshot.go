package placement

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	"domicile/api"
)

// snapshotMark begins every snapshot; its last byte is the version of what follows.
const snapshotMark = "dmcl-placement\x01"

// image is the state as it is written.
type image struct {
	Generation uint32
	Authority  string
	Issuer     string
	Voters     []string
	Version    uint64
	Applied    uint64
	Logs       map[string]*Log
	Retired    map[string]Gone
	Renewed    map[string]uint64
	Answers    []answer
	Audit      audit
}

// Snapshot is the state in bytes: a mark with the version, the state, a SHA-256 over
// both. Equal states have equal bytes.
func (s *State) Snapshot() ([]byte, error) {
	text, err := json.Marshal(image{
		s.generation, s.authority, s.issuer, s.voters, s.version, s.applied, s.logs, s.retired, s.renewed, s.answers.list, s.audit,
	})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, len(snapshotMark)+len(text)+sha256.Size)
	data = append(append(data, snapshotMark...), text...)
	sum := sha256.Sum256(data)
	return append(data, sum[:]...), nil
}

// Restore reads a snapshot. One that is damaged in any byte is refused whole.
func Restore(data []byte) (*State, error) {
	const versionAt = len(snapshotMark) - 1
	if len(data) > versionAt && string(data[:versionAt]) == snapshotMark[:versionAt] && data[versionAt] != snapshotMark[versionAt] {
		return nil, &api.Error{Code: api.VersionMismatch, Op: "read placement snapshot", Field: "version",
			Hint: "it was written by a newer version of the program"}
	}
	damaged := &api.Error{Code: api.StorageFailed, Op: "read placement snapshot",
		Hint: "it is damaged; take it away and it is fetched anew from a voter"}
	end := len(data) - sha256.Size
	if end < len(snapshotMark) || string(data[:len(snapshotMark)]) != snapshotMark {
		return nil, damaged
	}
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil, damaged
	}
	var i image
	if err := strictly(data[len(snapshotMark):end], &i); err != nil {
		return nil, damaged
	}
	for name, l := range i.Logs {
		if l == nil || l.Incarnation != name || !l.whole() {
			return nil, damaged
		}
	}
	s := &State{
		generation: i.Generation, authority: i.Authority, issuer: i.Issuer, voters: i.Voters, version: i.Version,
		applied: i.Applied, logs: i.Logs, retired: i.Retired, renewed: i.Renewed, audit: i.Audit,
	}
	for _, a := range i.Answers {
		s.answers.keep(a)
	}
	s.makeMaps()
	return s, nil
}

// whole reports whether what the machine relies on is there.
func (l *Log) whole() bool {
	switch l.Status {
	case Active:
		return l.Op == nil && l.Rival == nil
	case Opening:
		return (l.Op == nil || l.Op.Step == Flipped) && l.Rival == nil
	case Contested:
		return l.Rival != nil && l.Rival.Rival == nil && l.Rival.Status != Contested && l.Rival.whole()
	case Moving:
		return l.Op != nil && l.Op.whole() && l.Rival == nil
	}
	return false
}

func (o *Op) whole() bool {
	switch o.Step {
	case Begun:
		return true
	case Proven, Cut:
		return o.Proof != nil
	case Ready:
		return o.Proof != nil && o.Lost != nil
	}
	return false
}
