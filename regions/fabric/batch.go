package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ackWait is how long the writer waits for the broker's answer to a batch before it
// reads the log back; at pace 1.
const ackWait = 1500 * time.Millisecond

// batchFlow is the flow-control step asked of the broker. A burst is bounded by the
// writer, well below the broker's ingest queue, so its flow messages are not needed.
const batchFlow = "500"

// The operations of a fast batch, as the broker numbers them.
const (
	opStart  = "0"
	opAppend = "1"
	opCommit = "2"
)

// batch is a burst put into the broker's terms: each entry has its sequence, and each
// message expects the one before it.
type batch struct {
	entries  []*entry
	full     []*entry // the log has no room for these
	disorder []*entry // of a copy: these do not follow its end
	large    []*entry // the broker's format can't hold these
	unfit    []*entry // ours can't, see storable
	headers  [][]byte
	tail     end // of the log once the batch is stored
	bytes    int64
}

type batchResult int

const (
	batchStored batchResult = iota
	batchLost               // nothing is known until the log is read back
	batchFull               // as lost, and the broker said that there is no room
)

func (l *store) encode(burst []*entry) *batch {
	b := &batch{tail: l.tail}
	used := l.bytes.Load()
	for _, e := range burst {
		next := b.tail
		if !l.place(&next, e) {
			b.disorder = append(b.disorder, e)
			continue
		}
		if e.sweep != nil && next.owner != nil {
			// What goes may hold the last ownership marker: the sweep takes its place.
			if err := e.carry(next.owner); err != nil {
				b.disorder = append(b.disorder, e)
				continue
			}
		}
		if e.unfit = e.fits(next.position); e.unfit != nil {
			b.unfit = append(b.unfit, e)
			continue
		}
		header := l.header(e, b.tail.broker, next)
		next.broker++
		if len(header) > math.MaxUint16 || len(header)+len(e.item.Record.Body) > maxPayload {
			b.large = append(b.large, e)
			continue
		}
		size := storedSize(l.subject(e), header, e.item.Record.Body)
		room := l.bounds().MaxBytes
		if e.control() {
			room += headroom
		}
		if used+b.bytes+size > room {
			b.full = append(b.full, e) // in a copy, what follows is out of order now
			continue
		}
		e.broker, e.position, e.end = next.broker, next.position, next
		b.tail = next
		b.bytes += size
		b.entries = append(b.entries, e)
		b.headers = append(b.headers, header)
	}
	return b
}

// place moves to past the entry: its sequence in the log, and in a copy the ledger.
func (l *store) place(to *end, e *entry) bool {
	switch {
	case e.sweep != nil:
	case e.mark != nil && e.mark.stays:
		to.owner = e.mark.from.owner
	case e.mark != nil:
		broker := to.broker
		*to = e.mark.from
		to.broker = broker
	case l.kind == kindHome:
		to.position = position{Incarnation: l.named, Epoch: l.cfg.Epoch, Term: l.term, Sequence: to.Sequence + 1}
		to.time = e.item.Time
	default:
		it := &e.item
		if from := it.Sequence; it.Gap == nil && from != to.Sequence+1 || it.Gap != nil && it.Gap.From != to.Sequence+1 {
			return false
		}
		to.position = position{Incarnation: e.position.Incarnation, Epoch: it.Epoch, Term: it.Term, Sequence: it.Sequence}
		if it.Time.After(to.time) { // a gap may come without a time
			to.time = it.Time
		}
		to.ledger.Add(it)
	}
	return true
}

func (l *store) subject(e *entry) string {
	switch {
	case e.control() && len(e.item.Record.Body) > 0:
		return l.owner
	case e.control() || e.item.Gap != nil:
		return l.control
	}
	return l.data
}

const expectHeader = "Nats-Expected-Last-Sequence: "

// untraced comes first of all lines: the broker asks for a message to be traced by no later one.
// A trace would be published to wherever the line says, past the rights of who wrote it.
const untraced = server.MsgTraceDest + ": " + server.MsgTraceDestDisabled + "\r\n"

func expecting(b []byte, last uint64) []byte {
	b = append(b, headerLine+untraced+expectHeader...)
	b = strconv.AppendUint(b, last, 10)
	return append(b, "\r\n"...)
}

func (l *store) header(e *entry, last uint64, at end) []byte {
	b := expecting(make([]byte, 0, 512), last)
	own := len(b)
	switch {
	case e.sweep != nil:
		b = appendSweep(b, e.sweep, at)
	case e.mark != nil:
		b = appendHeader(b, headerControl, e.mark.control)
		b = appendEnd(b, at)
		b = appendLedger(b, at.ledger)
	case e.item.Gap != nil:
		b = appendHeader(b, headerControl, controlGap)
		b = appendGap(b, e.item.Gap)
		b = appendEnd(b, at)
	default:
		b = encodeRecord(b, at.position, &e.item, e.hash)
	}
	if l.kind == kindCopy && !e.control() {
		b = appendLedger(b, at.ledger)
	}
	b = appendSum(b, b[own:], e.item.Record.Body)
	return append(b, "\r\n"...)
}

// carry gives a sweep's message the log's tenure.
func (e *entry) carry(t *Tenure) (err error) {
	e.item.Record.Body, err = json.Marshal(t)
	return err
}

// appendEnd appends where the log ends, so that its last message alone tells it.
func appendEnd(b []byte, at end) []byte {
	if at.Sequence == 0 {
		return b
	}
	b = appendPosition(b, at.position)
	return appendTime(b, headerIngest, at.time)
}

func appendSweep(b []byte, s *sweepRange, at end) []byte {
	b = appendHeader(b, headerControl, controlSweep)
	b = appendHeader(b, headerGap, fmt.Sprintf("expired %d %d - - -", s.from, s.to))
	b = appendEnd(b, at)
	return appendLedger(b, at.ledger)
}

// storedSize is what a message takes in the broker's count.
func storedSize(subject string, header, body []byte) int64 {
	return int64(22 + len(subject) + 4 + len(header) + len(body) + 8)
}

// ack is the broker's last word on a batch or a single message.
type ack struct {
	err     string
	full    bool
	wrong   bool // the expected sequence did not match
	last    uint64
	batch   string
	counted uint64
}

// parseAck reads an answer; final is false for flow control.
func parseAck(f frame) (a ack, final bool) {
	if s := f.status(); s != "" {
		return ack{err: "status " + s}, true
	}
	if bytes.HasPrefix(f.body, []byte(`{"type":"ack"`)) {
		return ack{}, false
	}
	var r struct {
		Type  string `json:"type"`
		Seq   uint64 `json:"seq"`
		Batch string `json:"batch"`
		Count uint64 `json:"count"`
		Error *struct {
			ErrCode int `json:"err_code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(f.body, &r); err != nil {
		return ack{err: "unreadable answer"}, true
	}
	switch {
	case r.Error != nil:
		return ack{err: fmt.Sprintf("broker error %d", r.Error.ErrCode), full: slices.Contains(fullCodes, r.Error.ErrCode),
			wrong: r.Error.ErrCode == codeWrongLast}, true
	case r.Type != "":
		return ack{err: "batch " + r.Type}, true
	}
	return ack{last: r.Seq, batch: r.Batch, counted: r.Count}, true
}

// codeWrongLast is the broker's "wrong last sequence"; fullCodes are its ways to say
// that there is no room: account or server limits, and the stream's own.
const codeWrongLast = 10071

var fullCodes = []int{10002, 10023, 10028, 10047, 10077}

// publish sends a batch and waits for the broker's word. There is one open batch per
// log: expectations are sticky only inside a batch.
func (l *store) publish(b *batch) batchResult {
	ctx, cancel := context.WithTimeout(l.f.ctx, l.f.cfg.Pace.Of(ackWait))
	defer cancel()
	w, err := l.f.wire()
	if err != nil {
		return batchLost
	}
	a, token, err := w.batch(ctx, func(reply string) []byte { return l.frames(b, reply) })
	if err != nil {
		return batchLost
	}
	return l.judge(b, a, token)
}

// batch sends a whole batch, whose replies begin with what frames is given, and waits for
// the broker's last word on it. token is what the broker knows the batch by.
func (w *wire) batch(ctx context.Context, frames func(reply string) []byte) (got ack, token string, err error) {
	err = w.exchange(ctx, func(f frame) bool {
		a, final := parseAck(f)
		if final {
			got = a
		}
		return final
	}, func(t string) []byte {
		token = t
		return frames(w.prefix + t)
	})
	return got, token, err
}

func (l *store) judge(b *batch, a ack, token string) batchResult {
	if drop := l.f.cfg.Hooks.DropAck; drop != nil && drop(l.cfg.ID) {
		return batchLost
	}
	switch {
	case a.full:
		return batchFull
	case a.err != "":
		l.log.Warn("batch not taken, reading the log back", "answer", a.err)
		return batchLost
	case a.batch != token || a.last != b.tail.broker || a.counted != uint64(len(b.entries)):
		l.log.Warn("batch taken in part, reading the log back", "want", b.tail.broker, "got", a.last)
		return batchLost
	}
	return batchStored
}

// frames is the whole batch in the broker's protocol. The reply subject of each
// message carries batch id, flow, gap mode, number and operation.
func (l *store) frames(b *batch, reply string) []byte {
	out := make([]byte, 0, int(b.bytes)+len(b.entries)*128)
	for i, e := range b.entries {
		out = appendPub(out, l.subject(e), batchReply(reply, i, len(b.entries)), b.headers[i], e.item.Record.Body)
	}
	return out
}

// batchReply is the reply subject of the i-th of n messages.
func batchReply(reply string, i, n int) string {
	op := opAppend
	switch i {
	case n - 1:
		op = opCommit
	case 0:
		op = opStart
	}
	return reply + "." + batchFlow + ".fail." + strconv.Itoa(i+1) + "." + op + ".$FI"
}
