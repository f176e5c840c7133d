package council

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// store keeps a voter's log and its votes in one file, synced with every transaction.
//
// The voters' protocol ends the process when a vote can't be kept or an entry can't be read.
// A region must outlive its voter, so the store stands still there instead: it tries again
// while the disk is full, and for anything else silences the voter and waits until it is
// closed. A leader that stood still with open lines would be believed to lead on.
type store struct {
	db      *bolt.DB
	full    time.Duration // between two tries on a full disk
	silence func()        // ends all that the voter says
	closed  chan struct{} // the voter is silent and closing
	broken  atomic.Pointer[error]
}

const storeFile = "votes.db"

// The buckets of the file. Functions, since names are not to be altered.
func logBucket() []byte  { return []byte("log") }
func voteBucket() []byte { return []byte("votes") }

func openStore(dir string, full time.Duration, silence func()) (*store, error) {
	db, err := bolt.Open(filepath.Join(dir, storeFile), 0o600, &bolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("open the voter's store: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{logBucket(), voteBucket()} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &store{db: db, full: full, silence: silence, closed: make(chan struct{})}, nil
}

func (s *store) close() error { return s.db.Close() }

// release lets go of whoever stands still. Nothing that the voter says may leave it any
// more by then.
func (s *store) release() { close(s.closed) }

// failure is why the store stands still, nil if it does not.
func (s *store) failure() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// insist does what has to be done. It returns undone only once the voter is closing.
func (s *store) insist(do func() error) {
	for {
		err := do()
		if s.note(err); err == nil {
			return
		}
		var again <-chan time.Time
		if full(err) {
			again = time.After(s.full)
		}
		select {
		case <-again:
		case <-s.closed:
			return
		}
	}
}

// note keeps what became of a write or a read, and silences a voter whose disk is broken.
func (s *store) note(err error) {
	switch {
	case err == nil && full(s.failure()):
		s.broken.Store(nil)
	case err != nil:
		s.broken.Store(&err)
		if !full(err) {
			s.silence()
		}
	}
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// verify writes once and reads every entry. The voters' protocol takes a damaged one for a
// reason to end the process, so it never starts on one.
func (s *store) verify() error {
	err := s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(voteBucket()).Put([]byte("opened"), []byte{entryVersion}) })
	if err != nil {
		return fmt.Errorf("write the voter's store: %w", err)
	}
	return s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(logBucket()).ForEach(func(k, data []byte) error {
			var e raft.Log
			if err := decodeEntry(data, &e); err != nil {
				return fmt.Errorf("entry %d: %w; take the region out of the voters, create its voter anew and let it join", binary.BigEndian.Uint64(k), err)
			}
			return nil
		})
	})
}

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// FirstIndex is the index of the oldest entry, 0 without one.
func (s *store) FirstIndex() (uint64, error) {
	return s.end(func(c *bolt.Cursor) []byte { k, _ := c.First(); return k })
}

// LastIndex is the index of the newest entry, 0 without one.
func (s *store) LastIndex() (uint64, error) {
	return s.end(func(c *bolt.Cursor) []byte { k, _ := c.Last(); return k })
}

func (s *store) end(find func(*bolt.Cursor) []byte) (index uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		if k := find(tx.Bucket(logBucket()).Cursor()); k != nil {
			index = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return index, err
}

// GetLog reads an entry. It never returns a damaged one.
func (s *store) GetLog(index uint64, into *raft.Log) error {
	*into = raft.Log{Index: index, Type: raft.LogNoop} // what is left when the voter is closing
	found := true
	s.insist(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			data := tx.Bucket(logBucket()).Get(indexKey(index))
			if found = data != nil; !found {
				return nil
			}
			return decodeEntry(data, into)
		})
	})
	if !found {
		return raft.ErrLogNotFound
	}
	return nil
}

// StoreLog writes an entry.
func (s *store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs writes entries, all or none of them. The voters' protocol bears an error here:
// a leader gives up.
func (s *store) StoreLogs(entries []*raft.Log) error {
	err := s.write(entries)
	s.note(err)
	return err
}

func (s *store) write(entries []*raft.Log) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(logBucket())
		for _, e := range entries {
			if err := b.Put(indexKey(e.Index), encodeEntry(e)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange removes entries, both ends included.
func (s *store) DeleteRange(from, to uint64) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		c := tx.Bucket(logBucket()).Cursor()
		for k, _ := c.Seek(indexKey(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set keeps a value, or stands still until it can.
func (s *store) Set(key, value []byte) error {
	s.insist(func() error { return s.put(key, value) })
	return nil
}

func (s *store) put(key, value []byte) error {
	return s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(voteBucket()).Put(key, value) })
}

// Get reads a value, empty if there is none.
func (s *store) Get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		value = append([]byte{}, tx.Bucket(voteBucket()).Get(key)...)
		return nil
	})
	return value, err
}

// SetUint64 keeps a number, or stands still until it can.
func (s *store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 reads a number, 0 if there is none.
func (s *store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	switch {
	case err != nil || len(value) == 0:
		return 0, err
	case len(value) != 8:
		return 0, errors.New("the voter's store is damaged: a number that is none")
	}
	return binary.BigEndian.Uint64(value), nil
}

const entryVersion = 1

// encodeEntry: version, type, index, term, time, length of the data, data, extensions,
// CRC-32C over all of it.
func encodeEntry(e *raft.Log) []byte {
	b := make([]byte, 0, 40+len(e.Data)+len(e.Extensions))
	b = append(b, entryVersion, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Term)
	var at int64
	if !e.AppendedAt.IsZero() {
		at = e.AppendedAt.UnixNano()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Data)))
	b = append(append(b, e.Data...), e.Extensions...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func decodeEntry(b []byte, e *raft.Log) error {
	const head = 2 + 8 + 8 + 8 + 4
	damaged := errors.New("an entry of the voter's log is damaged")
	if len(b) < head+4 || b[0] != entryVersion {
		return damaged
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	size := uint64(binary.BigEndian.Uint32(b[26:]))
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum || uint64(len(body)) < head+size {
		return damaged
	}
	*e = raft.Log{Type: raft.LogType(b[1]), Index: binary.BigEndian.Uint64(b[2:]), Term: binary.BigEndian.Uint64(b[10:])}
	if at := int64(binary.BigEndian.Uint64(b[18:])); at != 0 {
		e.AppendedAt = time.Unix(0, at)
	}
	e.Data = append([]byte{}, body[head:head+size]...)
	if ext := body[head+size:]; len(ext) > 0 {
		e.Extensions = append([]byte{}, ext...)
	}
	return nil
}
