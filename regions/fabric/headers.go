package fabric

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
)

// The headers of every stored message. They are part of the store's format: a name
// or a meaning never changes while formatVersion stays.
//
// A data record carries all but Control, Gap and Ledger; a record in a copy carries
// Ledger too. A control message carries Control and what its kind needs. Since format 2
// all carry Sum.
const (
	headerID       = "Domicile-Id"       // event id
	headerPosition = "Domicile-Position" // incarnation, epoch, writer term, log sequence; parted by spaces
	headerIngest   = "Domicile-Ingest"   // "seconds.nanoseconds" since 1970, stamped by the home's writer
	headerEvent    = "Domicile-Event"    // same form, given by the producer
	headerKey      = "Domicile-Key"
	headerTags     = "Domicile-Tags"     // name=value,name=value; sorted by name
	headerHash     = "Domicile-Hash"     // keyed hash of the body, 32 hex digits
	headerRevision = "Domicile-Revision" // policy revision that admitted the record
	headerControl  = "Domicile-Control"  // kind of a control message
	headerGap      = "Domicile-Gap"      // kind, first and last sequence, code, side, revision; parted by spaces, "-" is empty
	headerLedger   = "Domicile-Ledger"   // mirrored, withheld, expired, purged, erased, void and, since format 2, damaged, up to and with this item
	headerUser     = "Domicile-H-"       // prefix of application headers, so that they can never clash
)

// The kinds of control messages. No reader is ever shown one; a gap is shown as what
// it stands for.
const (
	controlOpen    = "open"    // a writer took over; carries the position of the log's end
	controlBarrier = "barrier" // a writer closed off what it had in flight; carries no position
	controlGap     = "gap"     // an item of a copy: sequences that are not here
	controlSweep   = "sweep"   // retention is about to delete; carries the range, and the log's end
	controlDamaged = "damaged" // never stored: stands for a message that can no longer be believed
)

// escapeByte starts an escaped byte in a header value. It is a control character, and
// those are refused in names, tags and header values, so valid text never grows.
const escapeByte = 0x01

// position is where a message lies in its log.
type position struct {
	Incarnation string
	Epoch       api.Epoch
	Term        uint64
	Sequence    uint64
}

// message is one stored message, decoded.
type message struct {
	broker   uint64 // the broker's sequence; never leaves this package
	position position
	hasPos   bool
	control  string // "" for a data record
	item     regions.Item
	from, to uint64 // of a sweep: the range
	hash     [hashSize]byte
	ledger   regions.Ledger

	hasLedger bool
	void      bool   // it stands at another place than its own, see counted
	header    []byte // as stored, without the closing line
	lines     uint32 // running checksum over our header lines
	sum       string // the stored checksum; "": of format 1
	checked   checked
	lost      uint64 // messages this one stands for, of controlDamaged
	stored    int64  // bytes in the broker's count
}

// firstSequence is the first sequence an item stands for.
func (m *message) firstSequence() uint64 {
	if m.item.Gap != nil {
		return m.item.Gap.From
	}
	return m.position.Sequence
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = appendEscaped(b, value)
	return append(b, "\r\n"...)
}

func appendEscaped(b []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; c >= ' ' && c != 0x7f {
			b = append(b, c)
		} else {
			b = append(b, escapeByte, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

func unescape(b []byte) string {
	if bytes.IndexByte(b, escapeByte) < 0 {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == escapeByte && i+2 < len(b) {
			var c [1]byte
			if _, err := hex.Decode(c[:], b[i+1:i+3]); err == nil {
				out = append(out, c[0])
				i += 2
				continue
			}
		}
		out = append(out, b[i])
	}
	return string(out)
}

func appendTime(b []byte, name string, t time.Time) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = strconv.AppendInt(b, t.Unix(), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(t.Nanosecond()), 10)
	return append(b, "\r\n"...)
}

func parseTime(s string) (time.Time, error) {
	sec, nsec, ok := strings.Cut(s, ".")
	a, err1 := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseInt(nsec, 10, 64)
	if !ok || err1 != nil || err2 != nil || n < 0 || n >= 1e9 {
		return time.Time{}, fmt.Errorf("time of a stored message is unreadable")
	}
	return time.Unix(a, n).UTC(), nil
}

func appendPosition(b []byte, p position) []byte {
	b = append(b, headerPosition...)
	b = append(b, ": "...)
	b = append(b, p.Incarnation...)
	b = append(b, ' ')
	b = append(b, p.Epoch.String()...)
	b = append(b, ' ')
	b = strconv.AppendUint(b, p.Term, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, p.Sequence, 10)
	return append(b, "\r\n"...)
}

func parsePosition(s string) (position, error) {
	f := strings.Split(s, " ")
	if len(f) != 4 {
		return position{}, fmt.Errorf("position of a stored message has %d parts, want 4", len(f))
	}
	epoch, err := api.ParseEpoch(f[1])
	if err != nil {
		return position{}, err
	}
	term, err1 := strconv.ParseUint(f[2], 10, 64)
	seq, err2 := strconv.ParseUint(f[3], 10, 64)
	if err1 != nil || err2 != nil {
		return position{}, fmt.Errorf("position of a stored message is unreadable")
	}
	return position{Incarnation: f[0], Epoch: epoch, Term: term, Sequence: seq}, nil
}

// encodeRecord appends the headers of a data record.
func encodeRecord(b []byte, p position, it *regions.Item, hash [hashSize]byte) []byte {
	r := &it.Record
	b = appendHeader(b, headerID, r.ID)
	b = appendPosition(b, p)
	b = appendTime(b, headerIngest, it.Time)
	if !r.EventTime.IsZero() {
		b = appendTime(b, headerEvent, r.EventTime)
	}
	if r.Key != "" {
		b = appendHeader(b, headerKey, r.Key)
	}
	if len(r.Tags) > 0 {
		b = appendHeader(b, headerTags, api.TagString(r.Tags))
	}
	b = append(b, headerHash+": "...)
	b = hex.AppendEncode(b, hash[:])
	b = append(b, "\r\n"...)
	if it.Revision != "" {
		b = appendHeader(b, headerRevision, it.Revision)
	}
	for _, h := range r.Headers {
		b = append(b, headerUser...)
		b = appendHeader(b, h.Name, h.Value)
	}
	return b
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func undash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func appendGap(b []byte, g *regions.Gap) []byte {
	return appendHeader(b, headerGap, fmt.Sprintf("%s %d %d %s %s %s",
		g.Kind, g.From, g.To, dash(string(g.Code)), dash(g.Side), dash(g.Revision)))
}

func parseGap(s string) (*regions.Gap, error) {
	f := strings.SplitN(s, " ", 6)
	if len(f) != 6 {
		return nil, fmt.Errorf("gap of a stored message has %d parts, want 6", len(f))
	}
	from, err1 := strconv.ParseUint(f[1], 10, 64)
	to, err2 := strconv.ParseUint(f[2], 10, 64)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return nil, fmt.Errorf("range of a stored gap is unreadable")
	}
	return &regions.Gap{Kind: regions.GapKind(f[0]), From: from, To: to,
		Code: api.Code(undash(f[3])), Side: undash(f[4]), Revision: undash(f[5])}, nil
}

func appendLedger(b []byte, l regions.Ledger) []byte {
	return appendHeader(b, headerLedger, fmt.Sprintf("%d %d %d %d %d %d %d",
		l.Mirrored, l.Withheld, l.Expired, l.Purged, l.Erased, l.Void, l.Damaged))
}

func parseLedger(s string) (regions.Ledger, error) {
	var l regions.Ledger
	fields := []*uint64{&l.Mirrored, &l.Withheld, &l.Expired, &l.Purged, &l.Erased, &l.Void, &l.Damaged}
	parts := strings.Split(s, " ")
	if len(parts) != len(fields) && len(parts) != len(fields)-1 {
		return l, fmt.Errorf("ledger of a stored message has %d parts, want %d", len(parts), len(fields))
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 64)
		if err != nil {
			return l, fmt.Errorf("ledger of a stored message is unreadable")
		}
		*fields[i] = n
	}
	return l, nil
}

const headerLine = "NATS/1.0\r\n"

var (
	ours    = []byte("Domicile-")
	brokers = []byte("Nats-")
	crlf    = []byte("\r\n")
	sumLine = []byte(headerSum + ": ")
)

// decode reads one stored message. Errors never quote what the message holds.
func decode(header, body []byte, topic string) (*message, error) {
	m := &message{}
	m.item.Record = api.Record{Topic: topic, Body: body}
	rest, ok := bytes.CutPrefix(header, []byte(headerLine))
	if !ok {
		return nil, fmt.Errorf("stored message has no headers")
	}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, crlf)
		if bytes.HasPrefix(line, brokers) || len(line) == 0 {
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(": "))
		if !ok || !bytes.HasPrefix(name, ours) {
			return nil, errDamaged
		}
		if !bytes.HasPrefix(line, sumLine) {
			m.lines = crc32.Update(crc32.Update(m.lines, castagnoli, line), castagnoli, crlf)
		}
		if err := m.set(string(name), value); err != nil {
			return nil, err
		}
	}
	if m.control == "" && (!m.hasPos || m.item.Time.IsZero()) {
		return nil, fmt.Errorf("stored message lacks a position or an ingest time")
	}
	if m.control == controlGap && (m.item.Gap == nil || !m.hasPos) {
		return nil, fmt.Errorf("stored gap lacks its range or its position")
	}
	m.item.Sequence, m.item.Epoch, m.item.Term = m.position.Sequence, m.position.Epoch, m.position.Term
	return m, nil
}

func (m *message) set(name string, value []byte) (err error) {
	r := &m.item.Record
	switch name {
	case headerID:
		r.ID = unescape(value)
	case headerPosition:
		m.position, err = parsePosition(string(value))
		m.hasPos = true
	case headerIngest:
		m.item.Time, err = parseTime(string(value))
	case headerEvent:
		r.EventTime, err = parseTime(string(value))
	case headerKey:
		r.Key = unescape(value)
	case headerTags:
		if r.Tags, err = api.ParseTagString(unescape(value)); err != nil {
			err = fmt.Errorf("tags of a stored message are unreadable")
		}
	case headerHash:
		if n, e := hex.Decode(m.hash[:], value[:min(len(value), 2*hashSize)]); e != nil || n != hashSize {
			err = fmt.Errorf("hash of a stored message is unreadable")
		}
	case headerRevision:
		m.item.Revision = unescape(value)
	case headerControl:
		m.control = unescape(value)
	case headerGap:
		var g *regions.Gap
		if g, err = parseGap(unescape(value)); err == nil {
			m.item.Gap, m.from, m.to = g, g.From, g.To
		}
	case headerLedger:
		m.ledger, err = parseLedger(string(value))
		m.hasLedger = true
	case headerSum:
		m.sum = string(value)
	default:
		user, ok := strings.CutPrefix(name, headerUser)
		if !ok {
			return errDamaged
		}
		r.Headers = append(r.Headers, api.Header{Name: user, Value: unescape(value)})
	}
	return err
}
