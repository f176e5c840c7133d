package fabric

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// passage is one log on its way from an old store to a new one. The n-th message that
// the old log holds becomes the message with the broker's sequence n in the new one, and
// nothing else is ever written there. So the new log's end is the checkpoint, and a
// batch that was sent twice is refused by the sequences it expects.
type passage struct {
	from, to    *store
	seen        []*store          // the new log as each node has it
	notes       map[string]string // the old stream's metadata
	first, last uint64            // the broker's sequences in the old log
	deleted     []uint64          // between them, sorted
	live        uint64            // messages between first and last that are there
	bytes       int64
	copied      uint64
}

// land finds or makes the log in the new store, by way of the node that writes.
func (p *passage) land(ctx context.Context, writer *Fabric, nodes []*Fabric) error {
	l, err := p.at(ctx, writer)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		cfg := l.streamConfig(p.from.incarnation)
		cfg.MaxBytes = -1 // the bound comes with the log's first opening
		for key, value := range p.notes {
			if key != metaFormat && !strings.HasPrefix(key, "_nats.") { // the broker's own
				cfg.Metadata[key] = value
			}
		}
		err = patiently(ctx, writer, func(ctx context.Context) (err error) {
			l.admin, err = writer.broker.js.CreateStream(ctx, cfg) // again is the same stream
			return err
		})
	}
	if err == nil {
		err = writer.lead(ctx, l.stream)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", p.from.cfg.ID, err)
	}
	if err := l.list(ctx); err != nil {
		return err
	}
	p.to = l
	for _, f := range nodes {
		seen, err := p.at(ctx, f)
		if err != nil {
			return fmt.Errorf("find %s: %w", p.from.cfg.ID, err)
		}
		p.seen = append(p.seen, seen)
	}
	return p.measure(ctx)
}

// at is the log as a node of the new store has it, whether it is there or not.
func (p *passage) at(ctx context.Context, f *Fabric) (l *store, err error) {
	l = newStore(f, LogConfig{ID: p.from.cfg.ID}, p.from.kind, p.from.key)
	l.incarnation = p.from.incarnation
	missing := false
	err = patiently(ctx, f, func(ctx context.Context) (err error) {
		l.admin, err = f.broker.js.Stream(ctx, l.stream)
		if missing = errors.Is(err, jetstream.ErrStreamNotFound); missing {
			return nil
		}
		return err
	})
	if missing {
		err = jetstream.ErrStreamNotFound
	}
	return l, err
}

// measure reads how much of the log is in the new store.
func (p *passage) measure(ctx context.Context) error {
	var info *jetstream.StreamInfo
	err := patiently(ctx, p.to.f, func(ctx context.Context) (err error) {
		info, err = p.to.admin.Info(ctx)
		return err
	})
	if err != nil {
		return err
	}
	s := info.State
	if s.Msgs != s.LastSeq || s.Msgs > p.live {
		return &api.Error{Code: api.StorageFailed, Op: "move log", Field: "log", Value: p.from.cfg.ID.String(),
			Hint: "what is in the new directory is not of this move: remove the directory and begin again"}
	}
	p.copied = s.LastSeq
	return nil
}

// after is the broker's sequence in the old log at which its message n+1 is found.
func (p *passage) after(n uint64) uint64 {
	at := p.first + n
	for _, gone := range p.deleted {
		if gone > at {
			break
		}
		at++
	}
	return at
}

// copy brings over what is missing. A batch whose fate is not known is settled by the
// new log's end.
func (p *passage) copy(ctx context.Context, tell func(MoveProgress)) error {
	lost := 0
	for p.copied < p.live {
		got, err := p.from.readUpTo(ctx, p.after(p.copied), p.last, readMessages, readBytes)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			return fmt.Errorf("the old store holds %d messages and gives out %d", p.live, p.copied)
		}
		err = p.put(ctx, got)
		before := p.copied
		if e := p.measure(ctx); e != nil {
			return errors.Join(err, e)
		}
		if p.copied > before {
			lost = 0
			tell(MoveProgress{Log: p.from.cfg.ID, Kind: p.from.kind, Messages: p.copied, Of: p.live})
			continue
		}
		if lost++; lost > 10 {
			return fmt.Errorf("the new store takes nothing: %w", err)
		}
		again := time.NewTimer(p.to.f.cfg.Pace.Of(lookEvery)) // leaders may be on the move
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// put appends messages to the new log in one batch.
func (p *passage) put(ctx context.Context, messages []*message) error {
	ctx, cancel := context.WithTimeout(ctx, p.to.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	w, err := p.to.f.wire()
	if err != nil {
		return err
	}
	messages = oneEach(messages)
	heads := make([][]byte, len(messages))
	for i, m := range messages {
		head, err := p.rekeyed(m)
		if err != nil {
			return err
		}
		heads[i] = append(append(expecting(nil, p.copied+uint64(i)), head...), "\r\n"...)
	}
	a, _, err := w.batch(ctx, func(reply string) (out []byte) {
		for i, m := range messages {
			out = appendPub(out, p.to.subjectOf(m), batchReply(reply, i, len(messages)), heads[i], m.item.Record.Body)
		}
		return out
	})
	if err == nil && a.err != "" {
		err = errors.New(a.err)
	}
	return err
}

// oneEach has one entry for each message of the old log, at most a batch of them: one
// that stands for a row of damaged messages is there for each of them.
func oneEach(messages []*message) []*message {
	var out []*message
	for _, m := range messages {
		for range max(m.lost, 1) {
			if len(out) == burstRecords {
				return out
			}
			out = append(out, m)
		}
	}
	return out
}

// lostSum is the checksum of a message that was damaged in the old log. It is never
// right, so the message is set aside and counted in the new one as well.
const lostSum = headerSum + ": lost\r\n"

// keptOfLost names the lines of a damaged message from which reading a log back takes
// where that log ends. Its id is not among them: a retry is stored as a new record.
var keptOfLost = [][]byte{[]byte(headerPosition + ": "), []byte(headerIngest + ": "), []byte(headerControl + ": "), []byte(headerGap + ": "), []byte(headerLedger + ": ")}

func lost(header []byte) []byte {
	var out []byte
	for line := range bytes.SplitSeq(header, crlf) {
		if slices.ContainsFunc(keptOfLost, func(name []byte) bool { return bytes.HasPrefix(line, name) }) {
			out = append(append(out, line...), crlf...)
		}
	}
	return append(out, lostSum...)
}

// rekeyed is the message's headers with the body's hash under the new store's key, and a
// checksum over that. The body is held against the old hash first.
func (p *passage) rekeyed(m *message) ([]byte, error) {
	if m.control == controlDamaged {
		if p.to.f.cfg.Cluster != nil {
			// Three nodes hold each other's damage against the others' disks; all three would have this.
			return nil, &api.Error{Code: api.StorageFailed, Op: "move log", Field: "log", Value: p.from.cfg.ID.String(),
				Hint: "the old store holds damaged records, which three nodes do not take over: purge the log past them first"}
		}
		return lost(m.header), nil
	}
	body := m.item.Record.Body
	out := make([]byte, 0, len(m.header)+32)
	for line := range bytes.SplitSeq(m.header, crlf) {
		switch {
		case !bytes.HasPrefix(line, ours) || bytes.HasPrefix(line, sumLine):
			continue
		case bytes.HasPrefix(line, hashLine):
			if m.hash != p.from.f.hash.sum(domainBody, body) {
				return nil, errDamaged
			}
			hash := p.to.f.hash.sum(domainBody, body)
			line = hex.AppendEncode(bytes.Clone(hashLine), hash[:])
		}
		out = append(append(out, line...), crlf...)
	}
	return appendSum(out, out, body), nil
}

var hashLine = []byte(headerHash + ": ")

// subjectOf is the subject that a stored message has, or had in the store it comes from.
func (l *store) subjectOf(m *message) string {
	if m.ownership() {
		return l.owner
	}
	if m.control == "" || m.control == controlDamaged && !bytes.Contains(m.header, []byte(headerControl+": ")) {
		return l.data
	}
	return l.control
}

// sums reads the log in the old store and by way of each node of the new one, all at the
// same time; the old one's comes first.
func (p *passage) sums(ctx context.Context) ([]Sum, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sums, errs := make([]Sum, len(p.seen)+1), make([]error, len(p.seen)+1)
	var reading sync.WaitGroup
	read := func(i int, l *store, first, last uint64) {
		reading.Go(func() {
			if sums[i], errs[i] = l.sum(ctx, first, last); errs[i] != nil {
				cancel()
			}
		})
	}
	read(0, p.from, p.first, p.last)
	for i, l := range p.seen {
		read(i+1, l, 1, p.live)
	}
	reading.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return sums, errors.Join(errs...)
}
