package fabric

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// Sum is what a log holds, in a form that is the same in every store that holds it.
type Sum struct {
	Messages uint64 // records, gaps and markers
	Records  uint64
	Damaged  uint64 // messages that are not what was stored; nobody is shown them
	First    uint64 // sequence of the first item; 0: none
	Last     uint64
	Digest   string // SHA-256 over positions, ids, times, tags, headers and bodies, in order
}

func (s Sum) String() string {
	return fmt.Sprintf("%d messages, %d records, %d damaged, sequences %d to %d, digest %.12s", s.Messages, s.Records, s.Damaged, s.First, s.Last, s.Digest)
}

// sum reads the log between two of the broker's sequences, and holds each body against
// the hash that is stored with it.
func (l *store) sum(ctx context.Context, from, to uint64) (s Sum, err error) {
	h := sha256.New()
	for from <= to {
		got, err := l.readInTime(ctx, from, to)
		if err != nil {
			return s, err
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			if m.broker > to {
				break
			}
			if m.control == "" && m.hash != l.f.hash.sum(domainBody, m.item.Record.Body) {
				return s, errDamaged
			}
			s.add(h, m)
		}
		from = got[len(got)-1].broker + 1
	}
	s.Digest = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// readInTime is readUpTo that gives a node of three time to come up with the others.
func (l *store) readInTime(ctx context.Context, from, to uint64) (got []*message, err error) {
	err = patiently(ctx, l.f, func(ctx context.Context) error {
		got, err = l.readUpTo(ctx, from, to, readMessages, readBytes)
		return err
	})
	return got, err
}

func (s *Sum) add(h hash.Hash, m *message) {
	if m.control == controlDamaged {
		s.Messages += m.lost
		s.Damaged += m.lost
		_, _ = h.Write(bytes.Repeat([]byte("damaged\n"), int(m.lost))) // a hash takes everything
		return
	}
	s.Messages++
	if m.control == "" {
		s.Records++
	}
	if item := m.control == "" || m.control == controlGap; item && s.First == 0 {
		s.First = m.firstSequence()
	}
	s.Last = max(s.Last, m.position.Sequence)
	for line := range bytes.SplitSeq(m.header, crlf) {
		// The keyed hash is of the store alone, and so is the checksum over it.
		if bytes.HasPrefix(line, ours) && !bytes.HasPrefix(line, hashLine) && !bytes.HasPrefix(line, sumLine) {
			_, _ = h.Write(line)
			_, _ = h.Write(crlf)
		}
	}
	body := m.item.Record.Body
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(body))))
	_, _ = h.Write(body)
}
