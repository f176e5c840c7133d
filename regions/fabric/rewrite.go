package fabric

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// rewriteTails makes good a failed sync of the run before. The kernel may have marked
// pages clean that never reached the disk, so in the same boot everything after the
// last clean mark is written anew: same sequence, same id, a new writer term. After a
// reboot what is readable is on disk; then only a rewrite that was cut short itself is
// put in order.
func (f *Fabric) rewriteTails(ctx context.Context, last run) error {
	if last.State != runFailed {
		return nil
	}
	for _, stream := range slices.Sorted(maps.Keys(last.Clean)) {
		e, ok := f.known[stream]
		f.mu.Lock()
		closed := f.shut[stream].last
		f.mu.Unlock()
		if !ok || e.State != "" || closed {
			continue
		}
		id, err := api.ParseLogID(e.Log)
		if err != nil {
			return refuse("logs", e.Log, "the list of logs is damaged: restore the data directory from a backup", err)
		}
		l := newStore(f, LogConfig{ID: id}, e.Kind, stream)
		if l.admin, err = f.broker.js.Stream(ctx, stream); err != nil {
			return fmt.Errorf("rewrite tail of %s: %w", id, err)
		}
		if err := l.settleKind(ctx); errors.Is(err, ErrDamaged) {
			f.shutLog(stream, err)
			continue
		} else if err != nil {
			return err
		}
		if err := l.rewriteTail(ctx, last.Clean[stream], last.Boot == f.boot); err != nil {
			return fmt.Errorf("rewrite tail of %s: %w", id, err)
		}
	}
	return nil
}

func (l *store) rewriteTail(ctx context.Context, clean uint64, sameBoot bool) error {
	info, err := l.admin.Info(ctx)
	if err != nil {
		return err
	}
	old, err := l.f.readAll(ctx, l, clean+1, info.State.LastSeq)
	if err != nil || len(old) == 0 {
		return err
	}
	keep, twice := l.latest(old)
	if !sameBoot && !twice {
		return nil
	}
	l.log.Warn("writing the log's tail anew after a failed sync", "messages", len(keep))
	restore, err := l.widen(ctx, info.Config, keep)
	if err != nil {
		return err
	}
	at := info.State.LastSeq
	for _, m := range keep {
		if at, err = l.again(ctx, at, m); err != nil {
			return err
		}
	}
	if err := l.f.cfg.Hooks.Sync(l.f.dir); err != nil {
		return err
	}
	for _, m := range old {
		if m.control == controlDamaged {
			continue // it was not written anew; what it held may still be wanted
		}
		if err := l.admin.DeleteMsg(ctx, m.broker); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
	}
	if err := restore(); err != nil {
		return err
	}
	return l.f.cfg.Hooks.Sync(l.f.dir)
}

// latest is what has to be written anew, in order: of every place the first copy. A
// rewrite that was cut short has left some twice. Ownership markers come last, as the last
// of them is the one that counts.
func (l *store) latest(old []*message) (keep []*message, twice bool) {
	seen := map[position]bool{}
	for _, m := range old {
		switch m.control {
		case controlOpen, controlBarrier, controlDamaged:
			continue
		case "", controlGap:
			at := position{Epoch: m.position.Epoch, Sequence: m.position.Sequence}
			if seen[at] {
				twice = true
				continue
			}
			seen[at] = true
		}
		keep = append(keep, m)
	}
	slices.SortStableFunc(keep, func(a, b *message) int {
		x, y := l.counted(a), l.counted(b)
		return cmp.Or(compareBool(a.ownership(), b.ownership()), cmp.Compare(a.tenureNumber(), b.tenureNumber()),
			cmp.Compare(x.position.Sequence, y.position.Sequence), compareBool(x.void, y.void),
			a.position.Epoch.Compare(b.position.Epoch), cmp.Compare(a.position.Sequence, b.position.Sequence), cmp.Compare(a.broker, b.broker))
	})
	return keep, twice
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// widen gives the stream room to hold the tail twice for a while.
func (l *store) widen(ctx context.Context, cfg jetstream.StreamConfig, keep []*message) (restore func() error, err error) {
	wide := cfg
	for _, m := range keep {
		wide.MaxBytes += m.stored + 64
	}
	if _, err := l.f.broker.js.UpdateStream(ctx, wide); err != nil {
		return nil, err
	}
	return func() error {
		_, err := l.f.broker.js.UpdateStream(ctx, cfg)
		return err
	}, nil
}

// again appends a stored message once more. In a home's log it goes under a new
// writer term; in a copy the term is the origin's and stays.
func (l *store) again(ctx context.Context, last uint64, m *message) (uint64, error) {
	var head []byte
	for line := range bytes.SplitSeq(m.header, []byte("\r\n")) {
		if !bytes.HasPrefix(line, ours) || bytes.HasPrefix(line, sumLine) {
			continue
		}
		if l.kind == kindHome && bytes.HasPrefix(line, []byte(headerPosition+":")) {
			p := m.position
			p.Term++
			head = appendPosition(head, p)
			continue
		}
		head = append(append(head, line...), "\r\n"...)
	}
	a, err := l.f.appendOne(ctx, l.subjectOf(m), last, head, m.item.Record.Body)
	if err == nil && a.err != "" {
		err = errors.New(a.err)
	}
	return a.last, err
}
