package traffic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"domicile/policy"
	"domicile/regions"
)

const (
	// Keep is how long an hour is kept.
	Keep = 8 * 24 * time.Hour
	// MaxQuestions bounds the questions of an hour; others are counted in Uncounted.
	MaxQuestions = 20_000
	// MaxBytes bounds all hours on disk together; the oldest go first.
	MaxBytes = 64 << 20

	flushEvery = time.Minute
)

// Asked is where counts come from: a policy.Gate that counts.
type Asked interface {
	// Drain hands over every count since the last Drain and starts again from zero.
	Drain(func(q policy.Question, allowed bool, n uint64))
}

// Config is what a Book works with. All of it is required.
type Config struct {
	Dir    string // made if it is not there; nothing else may write in it
	Asked  Asked
	Clock  regions.Clock
	Doubt  func() bool // the clock is in doubt, and nothing goes by age; nil: never
	Pace   regions.Pace
	Logger *slog.Logger
}

// Book keeps the hours. It is safe for concurrent use.
type Book struct {
	cfg Config

	mu      sync.Mutex
	now     *Hour     // the hour that is being counted
	since   time.Time // up to when now is covered
	failing bool      // the last write failed
}

// Hour is what was asked in one hour.
type Hour struct {
	Start     time.Time         // a whole hour, UTC
	Covered   time.Duration     // how much of it was counted; the rest is not known
	Uncounted uint64            // asked of questions that found no room
	Asked     map[string]uint64 // by policy.Question in words
}

// Open makes the folder and goes on with the hour that it finds begun.
func Open(cfg Config) (*Book, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the counts of questions: %w", err)
	}
	b := &Book{cfg: cfg, since: cfg.Clock.Now()}
	b.begin(b.since)
	return b, nil
}

// begin takes up the hour of an instant.
func (b *Book) begin(at time.Time) {
	start := at.UTC().Truncate(time.Hour)
	h, err := readHour(b.cfg.Dir, start)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.cfg.Logger.Warn("an hour of counted questions cannot be read and is counted anew", "hour", start, "err", err)
	}
	if err != nil {
		h = &Hour{Start: start, Asked: map[string]uint64{}}
	}
	b.now = h
}

// Run writes what was counted, at least every minute of the node's pace and at the end of
// each hour, until ctx ends, and then once more.
func (b *Book) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(b.next())
		select {
		case <-ctx.Done():
			timer.Stop()
			b.Flush()
			return
		case <-timer.C:
			b.Flush()
		}
	}
}

// next is how long to wait: not beyond the end of the hour, so that what was asked in it
// is counted in it.
func (b *Book) next() time.Duration {
	now := b.cfg.Clock.Now().UTC()
	left := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
	return max(min(b.cfg.Pace.Of(flushEvery), left), time.Millisecond)
}

// Flush takes over what was counted since the last time and writes the hour. A disk that
// does not take it loses nothing yet: the next Flush writes it, within the hour.
func (b *Book) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	b.cfg.Asked.Drain(func(q policy.Question, _ bool, n uint64) { b.now.add(q.String(), n) })
	b.now.cover(b.since, now)
	b.since = now
	err := writeHour(b.cfg.Dir, b.now)
	if err != nil && !b.failing {
		b.cfg.Logger.Warn("the counts of questions are not on disk", "err", err)
	}
	b.failing = err != nil
	if start := now.UTC().Truncate(time.Hour); !start.Equal(b.now.Start) {
		b.begin(now)
		b.now.cover(start, now)
		b.sweep(now)
	}
}

// add counts within the hour's bound.
func (h *Hour) add(question string, n uint64) {
	if _, known := h.Asked[question]; !known && len(h.Asked) >= MaxQuestions {
		h.Uncounted += n
		return
	}
	h.Asked[question] += n
}

// cover adds the part of a span that lies in the hour.
func (h *Hour) cover(from, to time.Time) {
	from, to = from.UTC(), to.UTC()
	if from.Before(h.Start) {
		from = h.Start
	}
	if end := h.Start.Add(time.Hour); to.After(end) {
		to = end
	}
	if to.After(from) {
		h.Covered = min(h.Covered+to.Sub(from), time.Hour)
	}
}

// Hours gives fn every hour that is kept and begins at since or later, the oldest first,
// counted up to now; the present one also while the disk does not take it. fn may keep the
// hour. It ends with fn's error.
func (b *Book) Hours(since time.Time, fn func(*Hour) error) error {
	b.Flush()
	b.mu.Lock()
	now := *b.now
	now.Asked = maps.Clone(now.Asked)
	b.mu.Unlock()
	starts, err := listHours(b.cfg.Dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(starts, func(s stored) bool { return s.start.Equal(now.Start) }) {
		starts = append(starts, stored{start: now.Start}) // the disk has not taken it once
		slices.SortFunc(starts, func(a, b stored) int { return a.start.Compare(b.start) })
	}
	for _, s := range starts {
		if s.start.Before(since.UTC().Truncate(time.Hour)) || s.start.Before(now.Start.Add(-Keep)) {
			continue
		}
		h := &now
		if !s.start.Equal(now.Start) {
			h, err = readHour(b.cfg.Dir, s.start)
		}
		if errors.Is(err, os.ErrNotExist) {
			continue // swept meanwhile
		}
		if err != nil {
			b.cfg.Logger.Warn("an hour of counted questions cannot be read", "hour", s.start, "err", err)
			continue // what was asked in it is not known: it covers nothing
		}
		if err := fn(h); err != nil {
			return err
		}
	}
	return nil
}
