package fabric

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// metaPurged holds, in the stream's metadata, the ranges that operators purged. It is on
// disk before anything is deleted, and outlives the records: readers and copies that
// come later are told purged, not expired, with the exact range.
const metaPurged = "domicile-purged"

// maxSpans bounds the ranges that are remembered; neighbours are one.
const maxSpans = 1000

// span is a run of sequences, both ends included.
type span struct{ from, to uint64 }

func formatSpans(spans []span) string {
	parts := make([]string, len(spans))
	for i, s := range spans {
		parts[i] = fmt.Sprintf("%d-%d", s.from, s.to)
	}
	return strings.Join(parts, ",")
}

// parseSpans reads what formatSpans wrote. What is unreadable is an error: a range that
// is forgotten would be called expired.
func parseSpans(text string) ([]span, error) {
	var spans []span
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var s span
		if n, err := fmt.Sscanf(part, "%d-%d", &s.from, &s.to); err != nil || n != 2 || s.from == 0 || s.to < s.from {
			return nil, fmt.Errorf("purged ranges of a log are unreadable")
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// addSpan adds a range behind the others and joins what touches. Beyond the bound the
// oldest is forgotten.
func addSpan(spans []span, s span) []span {
	all := append(slices.Clone(spans), s)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	joined := all[:1]
	for _, next := range all[1:] {
		if last := &joined[len(joined)-1]; next.from <= last.to+1 {
			last.to = max(last.to, next.to)
		} else {
			joined = append(joined, next)
		}
	}
	return joined[max(0, len(joined)-maxSpans):]
}

// split types what is missing from from to to: purged where the log says so, else kind.
func split(purged []span, from, to uint64, kind regions.GapKind) []regions.Gap {
	var gaps []regions.Gap
	for _, s := range purged {
		if s.to < from || s.from > to {
			continue
		}
		if s.from > from {
			gaps = append(gaps, regions.Gap{Kind: kind, From: from, To: s.from - 1})
		}
		gaps = append(gaps, regions.Gap{Kind: regions.Purged, From: max(from, s.from), To: min(to, s.to)})
		if s.to >= to {
			return gaps
		}
		from = s.to + 1
	}
	return append(gaps, regions.Gap{Kind: kind, From: from, To: to})
}

// Purge takes all records up to and with sequence to out of an open log, home or copy,
// whatever its retention says and whoever has not copied them: that is for the caller
// to ask. The range is durable before anything is deleted; after a crash in between the
// next start goes on with it. It returns what is gone; a To of 0 means that nothing was
// there.
func (f *Fabric) Purge(ctx context.Context, id api.LogID, to uint64) (Swept, error) {
	l, err := f.opened(id, "purge log")
	if err != nil {
		return Swept{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(purgeWithin))
	defer cancel()
	s, before, err := l.intendPurge(ctx, to)
	if err != nil || s.to == 0 {
		return Swept{}, err
	}
	f.step("purge intended")
	if _, err := l.sweep(ctx); err != nil {
		return Swept{}, err
	}
	f.step("purged")
	now := l.Head()
	l.log.Info("purged", "from", s.from, "to", s.to)
	return Swept{From: s.from, To: s.to, Records: before.Records - min(before.Records, now.Records), Bytes: int64(before.Bytes) - int64(now.Bytes)}, nil
}

// intendPurge puts the range on record.
func (l *store) intendPurge(ctx context.Context, to uint64) (span, regions.Head, error) {
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	l.mu.Lock()
	s := span{from: l.first, to: min(to, l.durable.Sequence)}
	purged := l.purged
	if s.from == 0 || s.to < s.from {
		l.mu.Unlock()
		return span{}, regions.Head{}, nil
	}
	l.purged = addSpan(purged, s)
	l.mu.Unlock()
	before := l.Head()
	if err := l.fitStream(ctx); err != nil {
		l.mu.Lock()
		l.purged = purged
		l.mu.Unlock()
		return span{}, before, err
	}
	return s, before, nil
}

// forgetPurged takes what lies beyond a sequence out of the purged ranges: the log goes on
// from there, and its next records get those sequences. sweeping is held.
func (l *store) forgetPurged(ctx context.Context, sequence uint64) error {
	l.mu.Lock()
	before := l.purged
	l.purged = upToSpan(before, sequence)
	l.mu.Unlock()
	err := l.fitStream(ctx)
	if err != nil {
		l.mu.Lock()
		l.purged = before
		l.mu.Unlock()
	}
	return err
}

// upToSpan is the ranges as far as they lie at or below a sequence.
func upToSpan(spans []span, sequence uint64) (kept []span) {
	for _, s := range spans {
		if s.from <= sequence {
			kept = append(kept, span{s.from, min(s.to, sequence)})
		}
	}
	return kept
}

// purgedTo is the last sequence that was purged; 0: none.
func (l *store) purgedTo() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.purged) == 0 {
		return 0
	}
	return l.purged[len(l.purged)-1].to
}

// step tells the tests how far an act has come.
func (f *Fabric) step(name string) {
	if h := f.cfg.Hooks.Step; h != nil {
		h(name)
	}
}
