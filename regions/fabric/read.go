package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"domicile/api"
)

// readMessages and readBytes bound one read of the broker.
const (
	readMessages = 1000
	readBytes    = 4 << 20
)

var (
	sequenceHeader = []byte("\r\nNats-Sequence: ")
	streamHeader   = []byte("\r\nNats-Stream: ")
)

// readFrom reads up to count messages from the broker's sequence from on, in order,
// over holes; less when they pass maxBytes, and none at the end. It keeps no consumer.
func (f *Fabric) readFrom(ctx context.Context, l *store, from uint64, count, maxBytes int) ([]*message, error) {
	return f.get(ctx, l, map[string]any{"seq": from, "batch": count, "max_bytes": maxBytes})
}

// readLast reads the last message of a subject; nil: there is none.
func (f *Fabric) readLast(ctx context.Context, l *store, subject string) (*message, error) {
	got, err := f.get(ctx, l, map[string]any{"last_by_subj": subject})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	return got[0], nil
}

func (f *Fabric) get(ctx context.Context, l *store, what map[string]any) ([]*message, error) {
	single := what["batch"] == nil
	w, err := f.wire()
	if err != nil {
		return nil, err
	}
	req, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	var out []*message
	var bad error
	err = w.request(ctx, directGet+l.stream, nil, req, func(fr frame) bool {
		switch s := fr.status(); s {
		case "":
		case "204", "404":
			return true
		default:
			bad = errors.New("read of the log: broker status " + s)
			return true
		}
		m, err := l.decodeStored(fr)
		if err != nil {
			bad = err
			return true
		}
		out = append(out, m)
		return single
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, l.readFailed(err)
	}
	return out, nil
}

// readUpTo is readFrom for those who know that the log reaches to: with what the broker
// holds and does not give out. An empty answer must not pass for the log's end.
func (l *store) readUpTo(ctx context.Context, from, to uint64, count, maxBytes int) ([]*message, error) {
	if l.f.cfg.Cluster != nil {
		return l.readIntact(ctx, from, to, count, maxBytes)
	}
	got, err := l.f.readFrom(ctx, l, from, count, maxBytes)
	if err != nil {
		return nil, err
	}
	got, err = l.complete(ctx, got, from, to, count, maxBytes)
	if err == nil {
		l.wasRead(from, got)
	}
	return got, err
}

func (l *store) readFailed(err error) error {
	var e *api.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if l.f.ctx.Err() != nil {
		return shuttingDown()
	}
	return &api.Error{Code: api.NotReady, Op: "read log", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		Hint: "try again; if it stays, see status", Err: err}
}

// decodeStored reads one message as the broker hands it out: with lines of its own
// after ours.
func (l *store) decodeStored(fr frame) (*message, error) {
	cut := bytes.LastIndex(fr.header, streamHeader)
	at := bytes.LastIndex(fr.header, sequenceHeader)
	if cut < 0 || at < 0 {
		return nil, errors.New("stored message without the broker's place")
	}
	digits, _, _ := bytes.Cut(fr.header[at+len(sequenceHeader):], []byte("\r\n"))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return nil, errors.New("stored message without the broker's sequence")
	}
	own := fr.header[:cut+2]
	m, err := decode(own, fr.body, l.cfg.ID.Topic)
	if err == nil {
		err = l.f.hash.verify(m)
	}
	if err != nil {
		m = &message{control: controlDamaged, lost: 1}
	}
	l.asStored(m, seq, own, fr.body)
	return m, nil
}

// asStored tells a message its place at the broker.
func (l *store) asStored(m *message, sequence uint64, header, body []byte) {
	m.broker, m.header = sequence, header
	subject := l.data
	if m.control != "" {
		subject = l.control
	}
	m.stored = storedSize(subject, header, body) + 2 // the block's closing line
}

// readAll reads every message from the broker's sequence from to to.
func (f *Fabric) readAll(ctx context.Context, l *store, from, to uint64) ([]*message, error) {
	var out []*message
	for from <= to {
		got, err := l.readUpTo(ctx, from, to, int(min(to-from+1, readMessages)), readBytes)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			if m.broker <= to {
				out = append(out, m)
			}
		}
		from = got[len(got)-1].broker + 1
	}
	return out, nil
}
