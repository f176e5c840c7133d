package tail

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

var (
	noon   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	orders = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "home"}
)

func open(t *testing.T, dir string) *Book {
	t.Helper()
	b, err := Open(dir, regions.NewManualClock(noon), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func list(head uint64, entries ...regions.TailEntry) regions.TailList {
	return regions.TailList{Log: orders, Incarnation: "i", Epoch: api.StaticEpoch("eu-west"), Key: regions.TailKey{1},
		Head: head, HeadTime: noon, Closed: noon, Entries: entries}
}

func record(sequence uint64) regions.TailEntry {
	return regions.TailEntry{From: sequence, Sequence: sequence, ID: regions.TailKey{1}.Hash(fmt.Sprint(sequence)), Time: noon, Bytes: 7}
}

func files(t *testing.T, dir string) (paths []string, size int64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return paths, size
}

// Whatever comes, in whatever order, twice or never: what is kept is in order, does not
// overlap, holds only what was said, and is the same after a restart.
func TestR14f_BookKeepsWhatWasSaidOverARestart(t *testing.T) {
	for seed := range uint64(20) {
		dir, rng := t.TempDir(), rand.New(rand.NewPCG(seed, 1))
		b := open(t, dir)
		cursor, head := uint64(0), uint64(0)
		for range 60 {
			head += rng.Uint64N(30)
			cursor = min(head, cursor+rng.Uint64N(25))
			at := cursor + rng.Uint64N(max(1, head-cursor+1))
			var entries []regions.TailEntry
			for n := rng.IntN(12); n > 0 && at < head; n-- {
				e := record(at + 1)
				if rng.IntN(4) == 0 {
					e = regions.TailEntry{From: at + 1, Sequence: min(head, at+1+rng.Uint64N(5)), Kind: regions.Withheld, Time: noon}
				}
				entries, at = append(entries, e), e.Sequence
			}
			b.Hear(list(head, entries...), cursor)
		}
		known := b.Beyond(orders, cursor)
		last := cursor
		for _, e := range known.Entries {
			if e.From <= last || e.Sequence < e.From || e.Sequence > head || e.Kind == "" && e != record(e.Sequence) {
				t.Fatalf("seed %d: %+v after %d, head %d", seed, e, last, head)
			}
			last = e.Sequence
		}
		if known.Head != head {
			t.Fatalf("seed %d: head %d instead of %d", seed, known.Head, head)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if again := open(t, dir).Beyond(orders, cursor); !reflect.DeepEqual(known, again) {
			t.Fatalf("seed %d: after a restart\n%+v\ninstead of\n%+v", seed, again, known)
		}
	}
}

// Neither memory nor the file grows without a bound, and what does not fit is unknown.
func TestRT3_BookIsBounded(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	const told = 3 * MaxEntries
	for at := uint64(0); at < told; at += 512 {
		var entries []regions.TailEntry
		for i := range uint64(512) {
			entries = append(entries, record(at+i+1))
		}
		b.Hear(list(at+512, entries...), 0)
	}
	known := b.Beyond(orders, 0)
	if len(known.Entries) != MaxEntries || known.Head != told || known.Entries[MaxEntries-1].Sequence != MaxEntries {
		t.Fatalf("%d entries, head %d", len(known.Entries), known.Head)
	}
	for at := uint64(told); at < told+20*512; at += 512 { // the copy keeps up
		var entries []regions.TailEntry
		for i := range uint64(512) {
			entries = append(entries, record(at+i+1))
		}
		b.Hear(list(at+512, entries...), at)
	}
	if _, size := files(t, dir); size > 8<<20 {
		t.Errorf("%d bytes", size)
	}
	if b.all != 512 {
		t.Errorf("%d entries are counted, 512 are kept", b.all)
	}
}

// A line that is not whole ends the file: no entry of it is believed, all before are.
func TestR14f_TornFileKeepsWhatIsWhole(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	b.Hear(list(9, record(1), record(2)), 0)
	b.Hear(list(9, record(3)), 0)
	b.Hear(list(9, record(4)), 0)
	paths, _ := files(t, dir)
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	torn := append(append([]byte(nil), lines[0]...), lines[1][:len(lines[1])/2]...)
	torn = append(torn, lines[2]...)
	if err := os.WriteFile(paths[0], torn, 0o600); err != nil {
		t.Fatal(err)
	}
	after := open(t, dir)
	if known := after.Beyond(orders, 0); len(known.Entries) != 2 {
		t.Fatalf("%+v", known)
	}
	after.Hear(list(9, record(3)), 0) // must not land behind what is torn
	if known := open(t, dir).Beyond(orders, 0); len(known.Entries) != 3 {
		t.Fatalf("%+v", known)
	}
	if err := after.Forget(orders); err != nil {
		t.Fatal(err)
	}
	if paths, _ := files(t, dir); len(paths) != 0 {
		t.Fatalf("%v is left", paths)
	}
}

// A new epoch is another history: nothing of the last one is kept.
func TestR14g_AnotherEpochReplacesTheTail(t *testing.T) {
	b := open(t, t.TempDir())
	b.Hear(list(9, record(1), record(2)), 0)
	next := list(3, record(3))
	next.Epoch.Counter++
	b.Hear(next, 2)
	if known := b.Beyond(orders, 0); len(known.Entries) != 1 || known.Head != 3 || known.Epoch != next.Epoch {
		t.Fatalf("%+v", known)
	}
}

func FuzzTailLine(f *testing.F) {
	l := list(9, record(1), regions.TailEntry{From: 2, Sequence: 4, Kind: regions.Withheld, Time: noon})
	line, err := encode(&l, 3, noon)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimSuffix(line, []byte("\n")))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, ok := decode(b)
		if !ok {
			return
		}
		again, err := encode(&in.TailList, in.Cursor, in.Heard)
		if err != nil {
			t.Fatal(err)
		}
		if second, ok := decode(bytes.TrimSuffix(again, []byte("\n"))); !ok || len(second.TailList.Entries) != len(in.TailList.Entries) {
			t.Fatalf("%s became %s", b, again)
		}
	})
}
