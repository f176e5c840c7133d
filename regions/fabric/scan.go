package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// scanMessages is one request of a scan: with headers of the largest size it stays below
// what the broker holds for a connection.
const scanMessages = 500

// scan hands on the headers of all that the broker holds from from to to, in order and
// without bodies. It is how a log is read back before it opens: several times as fast as
// reading whole records, for a consumer that lives as long as the scan.
func (l *store) scan(ctx context.Context, from, to uint64, on func(*message) error) error {
	if from > to {
		return nil
	}
	if l.f.cfg.Cluster != nil {
		// The broker would put the consumer on any of the nodes, also on one that is gone.
		return l.scanHere(ctx, from, to, on)
	}
	c, err := l.admin.CreateConsumer(ctx, jetstream.ConsumerConfig{HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, MemoryStorage: true,
		InactiveThreshold: time.Minute})
	if err != nil {
		return l.readFailed(err)
	}
	name := c.CachedInfo().Name
	defer func() { _ = l.admin.DeleteConsumer(context.WithoutCancel(ctx), name) }()
	request, err := json.Marshal(map[string]any{"batch": scanMessages, "no_wait": true})
	if err != nil {
		return err
	}
	w, err := l.f.wire()
	if err != nil {
		return err
	}
	for delivered := uint64(0); from <= to; {
		got, err := l.scanned(ctx, w, name, request, delivered)
		brought := uint64(len(got))
		if err != nil {
			return l.readFailed(err)
		}
		if got, err = l.complete(ctx, got, from, to, scanMessages, readBytes); err != nil || len(got) == 0 {
			return err
		}
		for _, m := range got {
			if m.broker > to {
				return nil
			}
			if err := on(m); err != nil {
				return err
			}
		}
		delivered += brought
		from = got[len(got)-1].broker + 1
	}
	return nil
}

// scanHere is a scan with whole records, from this node's own disk.
func (l *store) scanHere(ctx context.Context, from, to uint64, on func(*message) error) error {
	for from <= to {
		got, err := l.readUpTo(ctx, from, to, readMessages, readBytes)
		if err != nil || len(got) == 0 {
			return err
		}
		for _, m := range got {
			if m.broker > to {
				return nil
			}
			if err := on(m); err != nil {
				return err
			}
		}
		from = got[len(got)-1].broker + 1
	}
	return nil
}

// scanned is what one request brings; delivered is how many came before it.
func (l *store) scanned(ctx context.Context, w *wire, name string, request []byte, delivered uint64) (got []*message, err error) {
	var bad error
	err = w.requestDeliveries(ctx, nextOfConsumer+l.stream+"."+name, request, func(fr frame) bool {
		switch s := fr.status(); s {
		case "":
		case "404", "408":
			return true
		default:
			bad = errors.New("scan of the log: broker status " + s)
			return true
		}
		seq, nth, err := deliveredAt(fr.reply)
		if err == nil && nth != delivered+uint64(len(got))+1 {
			err = errors.New("scan of the log: a message was left out")
		}
		var m *message
		if err == nil {
			if m, err = decode(fr.header, nil, l.cfg.ID.Topic); err != nil {
				m, err = &message{control: controlDamaged, lost: 1}, nil
			}
		}
		if err != nil {
			bad = err
			return true
		}
		m.broker, m.checked = seq, unseen
		got = append(got, m)
		return len(got) == scanMessages
	})
	return got, errors.Join(err, bad)
}

// deliveredAt reads the place of a consumer's message from its reply subject:
// $JS.ACK[.domain.account].stream.consumer.tries.sequence.nth.time.pending.
func deliveredAt(reply string) (sequence, nth uint64, err error) {
	parts := strings.Split(reply, ".")
	at := 5
	if len(parts) > 9 {
		at = 7
	}
	if len(parts) < 9 {
		return 0, 0, fmt.Errorf("delivered message names no place")
	}
	if sequence, err = strconv.ParseUint(parts[at], 10, 64); err == nil {
		nth, err = strconv.ParseUint(parts[at+1], 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("place of a delivered message is unreadable")
	}
	return sequence, nth, nil
}
