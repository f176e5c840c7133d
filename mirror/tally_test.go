package mirror

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The tally against a list of every record: sums are exact where they claim to be,
// and the oldest is never younger than the truth.
func TestR14d_TallyAgreesWithEveryRecord(t *testing.T) {
	type rec struct {
		eligible bool
		at       time.Time
		bytes    uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		var log []rec
		var tl tally
		cursor := uint64(0)
		tl.reset(0, "1")
		begin := time.Unix(1000, 0)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					log = append(log, rec{rapid.Bool().Draw(t, "eligible"), begin.Add(time.Duration(len(log)) * time.Second), 7})
				}
			},
			"read": func(t *rapid.T) {
				r := run{after: tl.upto}
				to := min(uint64(len(log)), tl.upto+uint64(rapid.IntRange(1, 9).Draw(t, "n")))
				for n := tl.upto + 1; n <= to; n++ {
					r.last = n
					if x := log[n-1]; x.eligible {
						r.records++
						r.bytes += x.bytes
						if r.oldest.IsZero() {
							r.oldest = x.at
						}
					}
				}
				tl.add(r.chunk)
			},
			"confirm": func(t *rapid.T) {
				cursor = uint64(rapid.IntRange(int(cursor), len(log)).Draw(t, "cursor"))
				tl.confirm(cursor)
			},
			"join": func(*rapid.T) { tl.halve() },
			"": func(t *rapid.T) {
				head := uint64(len(log))
				var records, bytes uint64
				var oldest time.Time
				for _, x := range log[cursor:] {
					if x.eligible {
						records++
						bytes += x.bytes
						if oldest.IsZero() {
							oldest = x.at
						}
					}
				}
				if r, b, exact := tl.pending(head); exact && (r != records || b != bytes) {
					t.Fatalf("claims exactly %d records, %d bytes; the truth is %d, %d", r, b, records, bytes)
				}
				at, known := tl.oldest(head)
				if known && at.IsZero() != oldest.IsZero() && !tl.partial {
					t.Fatalf("oldest %v, the truth is %v", at, oldest)
				}
				if known && !oldest.IsZero() && at.After(oldest) {
					t.Fatalf("oldest %v is younger than the truth, %v", at, oldest)
				}
				if cursor == head {
					if r, _, exact := tl.pending(head); !exact || r != 0 {
						t.Fatalf("everything is confirmed: %d, exact %v", r, exact)
					}
				}
			},
		})
	})
}

func TestTallyIsBounded(t *testing.T) {
	var tl tally
	tl.reset(0, "1")
	for n := range uint64(100_000) {
		tl.add(chunk{last: n + 1, records: 1, bytes: 3, oldest: time.Unix(int64(n+1), 0)})
	}
	if len(tl.chunks) > maxChunks {
		t.Errorf("%d chunks", len(tl.chunks))
	}
	if r, b, exact := tl.pending(100_000); !exact || r != 100_000 || b != 300_000 {
		t.Errorf("%d records, %d bytes, exact %v", r, b, exact)
	}
	if at, known := tl.oldest(100_000); !known || !at.Equal(time.Unix(1, 0)) {
		t.Errorf("oldest %v", at)
	}
}
