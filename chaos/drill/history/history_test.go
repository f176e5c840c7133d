package history

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func value(v float64) *float64 { return &v }

// small writes a short history and answers the file's bytes and its last hash.
func small(t testing.TB) ([]byte, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	clock := regions.NewManualClock(noon)
	w, err := Create(path, Head{Drill: "d1", Federation: "example", Controller: "test"}, clock)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
	}
	must(w.Note(Event{Plan: &Plan{Isolate: "eu-west", Peers: []string{"us-east"}, For: time.Minute, Topics: []Topic{{Name: "orders", Mode: "never", Logs: []Log{{Log: "orders@eu-west", Home: "eu-west"}}}}}}))
	must(w.Begin(Cut, time.Minute))
	must(w.Note(Event{Region: "us-east", Gauge: &Gauge{Log: "orders@eu-west", Home: "eu-west", Target: "us-east", State: "LINK_DOWN", Staleness: value(1.25), Asked: time.Second}}))
	must(w.Note(Event{Region: "us-east", Told: &Told{Producer: "us-east/1", Asked: "us-east", Topic: "orders", Residency: "eu", Outcome: NotStored, Code: api.HomeUnreachable, Rows: []Row{{Number: 7, Begin: time.Second, End: 2 * time.Second}}}}))
	must(w.Note(Event{Probe: &Probe{Topic: "orders", Log: "orders@eu-west", Home: "eu-west", Target: "us-east", Kind: "forced", Moment: AtCut, Why: WhyResides, Text: `"<&>" stays text`}}))
	must(w.End(Cut, true, ""))
	chain, err := w.Close(Close{Outcome: Completed})
	must(err)
	text, err := os.ReadFile(path)
	must(err)
	return text, chain
}

func TestR14i_AHistoryIsReadAsItWasWritten(t *testing.T) {
	text, chain := small(t)
	h, err := Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if h.Chain != chain || h.Torn || h.Closed() == nil || h.Head.Drill != "d1" || len(h.Events) != 8 {
		t.Errorf("chain %s want %s, torn %v, closed %v, %d events", h.Chain, chain, h.Torn, h.Closed(), len(h.Events))
	}
	want := Event{N: 4, At: 2 * time.Second, Wall: noon.Add(2 * time.Second), Region: "us-east", Phase: Cut,
		Gauge: &Gauge{Log: "orders@eu-west", Home: "eu-west", Target: "us-east", State: "LINK_DOWN", Staleness: value(1.25), Asked: time.Second}}
	if d := cmp.Diff(want, h.Events[3]); d != "" {
		t.Errorf("event 4 (-want +got):\n%s", d)
	}
	if h.Plan() == nil || h.Plan().Isolate != "eu-west" {
		t.Errorf("plan %v", h.Plan())
	}
}

// Whatever single byte of a history is changed, a reader with the last hash notices.
func TestR14i_EveryFlippedByteIsSeen(t *testing.T) {
	text, chain := small(t)
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1
		if h, err := Read(bytes.NewReader(bad)); err == nil && h.Chain == chain && !h.Torn {
			t.Fatalf("byte %d of %d (%q) was changed and nothing said so", i, len(text), text[i])
		}
	}
}

// A history that ends too early is never taken for a whole one.
func TestR14i_ATornTailIsSaid(t *testing.T) {
	text, _ := small(t)
	first := bytes.IndexByte(text, '\n') + 1
	for end := range text {
		h, err := Read(bytes.NewReader(text[:end]))
		switch {
		case end < first:
			if err == nil {
				t.Fatalf("%d bytes hold no event and were taken", end)
			}
		case err != nil:
			t.Fatalf("cut at %d of %d: %v", end, len(text), err)
		case h.Torn == (text[end-1] == '\n'):
			t.Fatalf("cut at %d of %d: torn %v", end, len(text), h.Torn)
		case h.Closed() != nil:
			t.Fatalf("cut at %d of %d, and it counts as closed", end, len(text))
		}
	}
}

func TestR14i_LinesLeftOutPutInOrSwappedAreNamed(t *testing.T) {
	text, _ := small(t)
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	for name, bad := range map[string]struct {
		lines [][]byte
		line  int
		err   error
	}{
		"left out":  {append(append([][]byte{}, lines[:2]...), lines[3:]...), 3, ErrChain},
		"twice":     {append(append([][]byte{}, lines[:3]...), lines[2:]...), 4, ErrChain},
		"swapped":   {[][]byte{lines[0], lines[2], lines[1]}, 2, ErrChain},
		"no head":   {lines[1:], 1, ErrChain},
		"empty":     {[][]byte{lines[0], []byte("\n")}, 2, ErrForm},
		"not ours":  {[][]byte{lines[0], []byte(`{"n":2}` + "\n")}, 2, ErrForm},
		"very long": {[][]byte{lines[0], bytes.Repeat([]byte("a"), maxLine+2)}, 2, ErrSize},
	} {
		var b *BadLine
		if _, err := Read(bytes.NewReader(bytes.Join(bad.lines, nil))); !errors.As(err, &b) || b.Line != bad.line || !errors.Is(err, bad.err) {
			t.Errorf("%s: %v, want line %d: %v", name, err, bad.line, bad.err)
		}
	}
}

// Lines whose hashes are right, and which the writer would still not have written.
func TestR14i_AForgedChainMustStillBeInForm(t *testing.T) {
	head := `"n":1,"at_ns":0,"wall":"2026-03-01T12:00:00Z","head":{"version":1,"drill":"d","federation":"f","controller":"c","origin":"2026-03-01T12:00:00Z"}}`
	for name, bad := range map[string]struct {
		line string
		err  error
	}{
		"unknown key":     {`"n":2,"at_ns":1,"wall":"2026-03-01T12:00:00Z","more":1,"stop":{"condition":"x","value":1,"limit":0}}`, ErrForm},
		"spaces":          {`"n":2, "at_ns":1,"wall":"2026-03-01T12:00:00Z","stop":{"condition":"x","value":1,"limit":0}}`, ErrForm},
		"twice the key":   {`"n":3,"n":2,"at_ns":1,"wall":"2026-03-01T12:00:00Z","stop":{"condition":"x","value":1,"limit":0}}`, ErrForm},
		"nothing":         {`"n":2,"at_ns":1,"wall":"2026-03-01T12:00:00Z"}`, errKind},
		"two things":      {`"n":2,"at_ns":1,"wall":"2026-03-01T12:00:00Z","stop":{"condition":"x","value":1,"limit":0},"outside":{"text":"y"}}`, errKind},
		"number":          {`"n":4,"at_ns":1,"wall":"2026-03-01T12:00:00Z","outside":{"text":"y"}}`, ErrOrder},
		"before the head": {`"n":2,"at_ns":-1,"wall":"2026-03-01T12:00:00Z","outside":{"text":"y"}}`, ErrOrder},
		"second head":     {`"n":2` + strings.TrimPrefix(head, `"n":1`), ErrOrder},
	} {
		var text bytes.Buffer
		chain := noChain
		for _, body := range []string{head, bad.line} {
			chain = link(chain, []byte(body+"\n"))
			text.WriteString(chainOpen + chain + chainEnd + body + "\n")
		}
		if _, err := Read(&text); !errors.Is(err, bad.err) {
			t.Errorf("%s: %v, want %v", name, err, bad.err)
		}
	}
}

func TestR14i_WritersSideBySideMakeOneChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w, err := Create(path, Head{Drill: "d"}, regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := w.Note(Event{Outside: &Outside{Text: "x"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := w.Close(Close{Outcome: Completed}); err != nil {
		t.Fatal(err)
	}
	if err := w.Note(Event{Outside: &Outside{Text: "late"}}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
	h, err := Open(path)
	if err != nil || len(h.Events) != 402 || h.Closed() == nil {
		t.Fatalf("%v, %d events", err, len(h.Events))
	}
	if _, err := Create(path, Head{}, regions.NewSteadyClock()); !errors.Is(err, os.ErrExist) {
		t.Errorf("a history was begun over another one: %v", err)
	}
}

// A history that had no room counts what it left out, and still ends.
func TestR14i_AFullHistoryCountsWhatItDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w, err := Create(path, Head{Drill: "d"}, regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	w.limit = spare + 4096
	for range 100 {
		if err := w.Note(Event{Outside: &Outside{Text: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(Close{Outcome: Completed}); err != nil {
		t.Fatal(err)
	}
	h, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := h.Closed(); c == nil || c.Dropped == 0 || int(c.Dropped)+len(h.Events) != 102 {
		t.Errorf("close %+v with %d events", c, len(h.Events))
	}
}

// FuzzRead is given the lines without their hashes, so that it gets past the chain. What
// is read is what would be written again.
func FuzzRead(f *testing.F) {
	text, _ := small(f)
	var bodies []byte
	for line := range bytes.Lines(text) {
		bodies = append(bodies, line[bodyFrom:]...)
	}
	f.Add(bodies)
	f.Add(bodies[:len(bodies)/2])
	f.Fuzz(func(t *testing.T, in []byte) {
		chain, chained := noChain, []byte(nil)
		for body := range bytes.Lines(in) {
			chain = link(chain, body)
			chained = append(chained, chainOpen+chain+chainEnd...)
			chained = append(chained, body...)
		}
		h, err := Read(bytes.NewReader(chained))
		if err != nil {
			return
		}
		again, out := noChain, []byte(nil)
		for i := range h.Events {
			line, err := encode(&h.Events[i], again)
			if err != nil {
				t.Fatal(err)
			}
			again, out = string(line[len(chainOpen):len(chainOpen)+chainLen]), append(out, line...)
		}
		if !bytes.HasPrefix(chained, out) || !h.Torn && len(out) != len(chained) {
			t.Fatalf("read %d events of %d bytes, written again they are %d bytes", len(h.Events), len(chained), len(out))
		}
	})
}
