package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"domicile/api"
)

var errMarkerRefused = errors.New("barrier marker not taken")

// stopping: the fabric fails or closes; nobody decides anything any more.
func (f *Fabric) stopping() bool { return f.failure.Load() != nil || f.ctx.Err() != nil }

// readBack finds out what of a lost burst is in the log. It returns when that is
// certain, with the number of entries, from the first, that are; they are with the
// barrier then. It fails when another writer has taken the log over, when what it finds
// is damaged, and when the fabric stops.
func (l *store) readBack(burst []*entry) (stored int, err error) {
	wait := l.f.cfg.Pace.Of(20 * time.Millisecond)
	for attempt := 1; ; attempt++ {
		if l.isDead() || l.f.stopping() {
			return 0, unknown("the writer ended before it knew what became of the record")
		}
		if why := l.f.broker.unhealthy(l.stream); why != "" {
			l.f.failStore(why)
			return 0, shuttingDown()
		}
		found, err := l.closeOff(attempt)
		if err == nil {
			return l.match(burst, found)
		}
		l.log.Warn("log not read back yet", "attempt", attempt, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.f.ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, l.f.cfg.Pace.Of(500*time.Millisecond))
	}
}

// closeOff appends a barrier marker and returns all that lies between the log's known
// end and the marker, the marker included. Once it is stored nothing of an older batch
// can be any more: what the broker still has queued expects another last message, and
// a batch is sticky.
func (l *store) closeOff(attempt int) ([]*message, error) {
	// Longer each time: a disk that needs longer than the first time must come to an end too.
	ctx, cancel := context.WithTimeout(l.f.ctx, l.f.cfg.Pace.Of(time.Duration(min(attempt, 10))*time.Second))
	defer cancel()
	marker, err := l.f.appendMarker(ctx, l, func(uint64) []byte {
		return appendHeader(nil, headerControl, controlBarrier)
	})
	if err != nil {
		return nil, err
	}
	found, err := l.f.readAll(ctx, l, l.tail.broker+1, marker)
	if n := messages(found); err == nil && n != marker-l.tail.broker {
		err = fmt.Errorf("read %d messages back of %d", n, marker-l.tail.broker)
	}
	return found, err
}

func messages(found []*message) (n uint64) {
	for _, m := range found {
		n += max(1, m.lost)
	}
	return n
}

// appendMarker appends one control message at the very end of a log, wherever that is.
func (f *Fabric) appendMarker(ctx context.Context, l *store, header func(last uint64) []byte) (uint64, error) {
	for ctx.Err() == nil {
		info, err := l.admin.Info(ctx)
		if err != nil {
			return 0, err
		}
		last := info.State.LastSeq
		a, err := f.appendOne(ctx, l.control, last, header(last), nil)
		if err != nil {
			return 0, err
		}
		switch {
		case a.wrong:
			continue // something was still on its way in
		case a.err != "":
			return 0, fmt.Errorf("%w: %s", errMarkerRefused, a.err)
		}
		return a.last, nil
	}
	return 0, ctx.Err()
}

// appendOne appends a single message that expects last to be the one before it.
func (f *Fabric) appendOne(ctx context.Context, subject string, last uint64, header, body []byte) (ack, error) {
	w, err := f.wire()
	if err != nil {
		return ack{}, err
	}
	var got ack
	head := append(appendSum(append(expecting(nil, last), header...), header, body), "\r\n"...)
	err = w.request(ctx, subject, head, body, func(fr frame) bool {
		a, final := parseAck(fr)
		if final {
			got = a
		}
		return final
	})
	return got, err
}

// match walks what was found beside the burst. It ends this writer at anything that is
// damaged, or is neither of the burst nor a barrier of our own.
func (l *store) match(burst []*entry, found []*message) (int, error) {
	n := 0
	to := l.tail
	var bytes int64
	var stopped error
	for _, m := range found {
		if stopped != nil {
			break
		}
		bytes += m.stored
		switch {
		case m.control == controlBarrier:
			to.broker = m.broker
		case n < len(burst) && burst[n].is(m):
			e := burst[n]
			to = e.end
			to.broker = m.broker
			e.broker = m.broker
			n++
		case m.control == controlDamaged:
			stopped = l.stopDamaged(m)
		default:
			stopped = l.stopForeign(m)
		}
	}
	if n > 0 {
		l.written(burst[:n], to, bytes)
	} else {
		l.tail = to
		l.bytes.Add(bytes)
	}
	return n, stopped
}

// stopForeign ends this writer for good: a message is in the log that it did not write.
func (l *store) stopForeign(m *message) error {
	err := &api.Error{Code: api.NotReady, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		Hint: "another writer took this log over; this node appends nothing more to it until it is started again"}
	l.log.Error("writer stopped: the log was taken over", "broker_sequence", m.broker)
	l.stop(err, "another writer took the log over")
	return err
}

// stopDamaged ends this writer: what it wrote a moment ago is not what the disk gives back.
// Which of its records that was can't be told, so none from there on is called stored or
// lost; the next opening names what is damaged and goes on behind it.
func (l *store) stopDamaged(m *message) error {
	l.log.Error("writer stopped: what was just written is damaged", "broker_sequence", m.broker, "messages", max(1, m.lost))
	l.stop(&api.Error{Code: api.StorageFailed, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		Hint: "what was last written to this log is damaged on the disk: check the disk, then start the region's node again"},
		"what was last written is damaged on this disk")
	return unknown("what was written is damaged on the disk, and an answer of the broker was lost")
}

// is reports whether the message is this entry.
func (e *entry) is(m *message) bool {
	switch {
	case e.sweep != nil:
		return m.control == controlSweep && m.from == e.sweep.from && m.to == e.sweep.to
	case e.mark != nil:
		return m.control == e.mark.control && bytes.Equal(m.item.Record.Body, e.item.Record.Body)
	case e.item.Gap != nil:
		return m.control == controlGap && m.position == e.position && m.from == e.item.Gap.From
	}
	return m.control == "" && m.position == e.position && m.item.Record.ID == e.item.Record.ID
}
