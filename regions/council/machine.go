package council

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

// machine is the placement state as the voters' log drives it, with what the leader has
// to know of when things were applied here. Safe for concurrent use.
type machine struct {
	now   func() time.Duration // the nominal boot clock
	audit *auditFile
	log   *slog.Logger
	reads byte        // the latest version of commands
	halt  func(error) // ends all that the voter says

	mu      sync.RWMutex
	state   *placement.State
	grantor placement.Grantor
	changed chan struct{} // closed at the next version
	halted  error         // an entry that could not be read: what came later is not applied
}

func newMachine(now func() time.Duration, audit *auditFile, log *slog.Logger, reads byte, halt func(error)) *machine {
	m := &machine{now: now, audit: audit, log: log, reads: reads, halt: halt, state: &placement.State{}, changed: make(chan struct{})}
	m.grantor.Elected(now())
	return m
}

// outcome is what an entry came to.
type outcome struct {
	result placement.Result
	err    error
}

// Apply takes a committed entry. One of a later version than this voter reads ends its part:
// the others apply it, so whatever followed would make another state of this one.
func (m *machine) Apply(entry *raft.Log) any {
	c, err := placement.DecodeCommand(entry.Data, m.reads)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.halted == nil && api.CodeOf(err) == api.VersionMismatch {
		m.halted = err
		m.halt(err)
	}
	if err := cmp.Or(m.halted, err); err != nil {
		return outcome{err: err}
	}
	before := m.state.Version()
	r, err := m.state.Apply(entry.Index, c)
	if err != nil {
		return outcome{err: err}
	}
	m.note(c)
	if m.state.Version() != before {
		m.tell()
	}
	if number, _ := m.state.AuditHead(); number >= m.audit.number+exportEvery {
		if err := m.export(); err != nil {
			m.log.Error("the audit cannot be written; the authority's log is not shortened until it can", "err", err)
		}
	}
	return outcome{result: r}
}

// note tells the grantor what it has to know of an entry.
func (m *machine) note(c placement.Command) {
	switch c.Verb {
	case placement.Renew:
		for _, region := range c.Regions {
			m.grantor.Renewed(region, m.now())
		}
	case placement.Begin:
		if l, ok := m.state.Log(c.Log); ok && l.Op != nil && l.Op.ID == c.ID {
			m.grantor.Begun(c.Log, l.Home)
		}
	case placement.Abort, placement.Flip, placement.Retire:
		m.grantor.Ended(c.Log)
	}
}

func (m *machine) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// next is closed at the next version.
func (m *machine) next() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// elected begins this voter's term as the leader: all waits begin now.
func (m *machine) elected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grantor.Elected(m.now())
}

// read runs f on the state. f keeps nothing of it.
func (m *machine) read(f func(*placement.State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state)
}

// since is what changed after a version, and a channel that closes at the next change.
func (m *machine) since(version uint64, authority string) (placement.Delta, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if authority != m.state.Authority() {
		version = 0
	}
	return m.state.Since(version), m.changed
}

// Snapshot keeps the state as of now. The audit goes to its file first: what the log will
// lose must be there.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.halted != nil {
		return nil, m.halted
	}
	if err := m.export(); err != nil {
		return nil, err
	}
	data, err := m.state.Snapshot()
	return image(data), err
}

func (m *machine) export() error {
	if first := m.state.AuditFirst(); m.audit.number+1 < first {
		// A leader's snapshot brought this voter past entries that it never saw one by one.
		if err := m.audit.gap(first - 1); err != nil {
			return err
		}
	}
	entries, err := m.state.Audit(m.audit.number)
	if err != nil {
		return err
	}
	return m.audit.append(entries)
}

// Restore takes a snapshot's place.
func (m *machine) Restore(from io.ReadCloser) error {
	data, err := io.ReadAll(io.LimitReader(from, placement.MaxFounding))
	if err == nil {
		err = from.Close()
	}
	if err != nil {
		return fmt.Errorf("read the placement snapshot: %w", err)
	}
	state, err := placement.Restore(data)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	m.tell()
	return nil
}

// image is a snapshot on its way to disk.
type image []byte

// Persist writes the snapshot.
func (i image) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(i); err != nil {
		_ = sink.Cancel() // the write's error says more
		return err
	}
	return sink.Close()
}

// Release has nothing to give back.
func (i image) Release() {}

// lapses lists the forced moves of which the old home's lease has run out by this voter's
// clock, with the proof of each.
func (m *machine) lapses(term uint64) []placement.Command {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var found []placement.Command
	for _, l := range m.state.Moving() {
		op, tenure := l.Op, l.Tenure()
		if op.Kind != placement.Forced || op.Step != placement.Begun || tenure.Isolation != placement.FenceAfter {
			continue
		}
		left, waited := m.grantor.Remaining(l.Incarnation, tenure.FenceAfter, m.now())
		if left > 0 || m.state.Generation() > 1 && op.Renewed == 0 {
			continue
		}
		found = append(found, placement.Command{
			Verb: placement.Prove, ID: fmt.Sprintf("%s/lapsed/%d", op.ID, term), Log: l.Incarnation, Expect: l.Epoch, Op: op.ID,
			Actor: "authority", Reason: "the home's lease has run out",
			Proof: &placement.Proof{Kind: placement.Lapsed, Renewed: op.Renewed, Waited: waited, Term: term},
		})
	}
	return found
}
