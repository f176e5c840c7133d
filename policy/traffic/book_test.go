package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is set by the test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// gate hands over what the test asked.
type gate struct {
	mu    sync.Mutex
	asked map[string]uint64
}

func (g *gate) ask(topic string, n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked == nil {
		g.asked = map[string]uint64{}
	}
	g.asked[topic] += n
}

func (g *gate) Drain(fn func(policy.Question, bool, uint64)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, n := range g.asked {
		fn(question(topic), true, n)
	}
	clear(g.asked)
}

func question(topic string) policy.Question {
	return policy.Question{Point: policy.Admit, Topic: topic, Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Class: "app", Place: "eu-west", Origin: "eu-west", Target: policy.None}
}

type rig struct {
	*testing.T
	dir   string
	clock *clock
	gate  *gate
	log   *strings.Builder
	doubt bool // the clock is
}

func newRig(t *testing.T) *rig {
	return &rig{t, filepath.Join(t.TempDir(), "traffic"), &clock{at: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}, &gate{}, &strings.Builder{}, false}
}

func (r *rig) open() *traffic.Book {
	r.Helper()
	b, err := traffic.Open(traffic.Config{Dir: r.dir, Asked: r.gate, Clock: r.clock, Doubt: func() bool { return r.doubt }, Pace: 1, Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		r.Fatal(err)
	}
	return b
}

// hours is what a book says, an hour on a line.
func hours(t *testing.T, b *traffic.Book, since time.Time) string {
	t.Helper()
	var out strings.Builder
	err := b.Hours(since, func(h *traffic.Hour) error {
		fmt.Fprintf(&out, "%s covered %s", h.Start.Format("15:04"), h.Covered)
		for _, topic := range []string{"orders", "news"} {
			if n := h.Asked[question(topic).String()]; n > 0 {
				fmt.Fprintf(&out, " %s=%d", topic, n)
			}
		}
		if h.Uncounted > 0 {
			fmt.Fprintf(&out, " uncounted=%d", h.Uncounted)
		}
		out.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What was asked is counted in its hour, over a restart and over the end of an hour; the
// time in which nobody counted is not covered, and is not taken for silence.
func TestRP3_HoursSayWhatTheyCover(t *testing.T) {
	r := newRig(t)
	b := r.open()
	r.gate.ask("orders", 3)
	r.clock.pass(10 * time.Minute)
	b.Flush()
	r.clock.pass(20 * time.Minute) // killed: what came since is not known
	b = r.open()
	r.clock.pass(5 * time.Minute)
	r.gate.ask("orders", 4)
	b.Flush()
	r.clock.pass(25 * time.Minute) // the hour ends
	b.Flush()
	r.gate.ask("news", 1)
	r.clock.pass(time.Minute)
	want := "10:00 covered 40m0s orders=7\n11:00 covered 1m0s news=1\n"
	if got := hours(t, b, time.Time{}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := hours(t, b, r.clock.Now()); got != "11:00 covered 1m0s news=1\n" {
		t.Errorf("of this hour: %s", got)
	}
	r.clock.pass(traffic.Keep + 2*time.Hour)
	b.Flush()
	r.clock.pass(time.Minute)
	if got := hours(t, b, time.Time{}); strings.Contains(got, "10:00") || strings.Contains(got, "11:00") {
		t.Errorf("after eight days: %s", got)
	}
	files, err := os.ReadDir(r.dir)
	if err != nil || len(files) > 1 {
		t.Errorf("%d files are left: %v", len(files), err)
	}
}

// A clock that is in doubt takes no hour away, and one that is believed again does.
func TestFG1_HoursStayWhileTheClockIsInDoubt(t *testing.T) {
	r := newRig(t)
	b := r.open()
	r.clock.pass(time.Minute)
	b.Flush()
	files, err := os.ReadDir(r.dir)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for _, doubt := range []bool{true, false} {
		r.doubt = doubt
		r.clock.pass(traffic.Keep + 2*time.Hour)
		b.Flush()
		if _, err := os.Stat(filepath.Join(r.dir, files[0].Name())); (err == nil) != doubt {
			t.Errorf("doubt %t: %v", doubt, err)
		}
	}
}

// An hour takes a bounded number of questions; what finds no room is counted as such.
func TestRT3_AnHourIsBounded(t *testing.T) {
	r := newRig(t)
	b := r.open()
	for i := range traffic.MaxQuestions + 5 {
		r.gate.ask(fmt.Sprint("t", i), 2)
	}
	r.clock.pass(time.Minute)
	if got := hours(t, b, time.Time{}); got != "10:00 covered 1m0s uncounted=10\n" {
		t.Errorf("got %s", got)
	}
}

// A file that is not whole or claims too much covers nothing; counting goes on.
func TestRP3_DamagedHoursCoverNothing(t *testing.T) {
	for _, bad := range []string{"{", `{"version":9}`, `{"version":1,"hour":"2026-03-01T09:00:00Z"}`, `{"version":1,"hour":"2026-03-01T10:00:00Z","covered_ms":99999999}`} {
		r := newRig(t)
		if err := errors.Join(os.MkdirAll(r.dir, 0o700), os.WriteFile(filepath.Join(r.dir, "2026-03-01T10.json"), []byte(bad), 0o600)); err != nil {
			t.Fatal(err)
		}
		b := r.open()
		r.gate.ask("orders", 1)
		r.clock.pass(time.Minute)
		if got := hours(t, b, time.Time{}); got != "10:00 covered 1m0s orders=1\n" || !strings.Contains(r.log.String(), "cannot be read") {
			t.Errorf("%s: %s %s", bad, got, r.log)
		}
	}
}

// A disk that takes nothing loses nothing within the hour, and is said once.
func TestRP3_AFullDiskLosesNoCountOfTheHour(t *testing.T) {
	r := newRig(t)
	b := r.open()
	if err := errors.Join(os.Remove(r.dir), os.WriteFile(r.dir, nil, 0o600)); err != nil { // no folder: every write fails
		t.Fatal(err)
	}
	for range 3 {
		r.gate.ask("orders", 1)
		r.clock.pass(time.Minute)
		b.Flush()
	}
	if n := strings.Count(r.log.String(), "not on disk"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
	if err := errors.Join(os.Remove(r.dir), os.Mkdir(r.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if got := hours(t, b, time.Time{}); got != "10:00 covered 3m0s orders=3\n" {
		t.Errorf("got %s", got)
	}
}

// Whoever asks while the disk takes nothing is told what was counted, not what was written.
func TestRP3_CountsAreToldWhileTheDiskIsFull(t *testing.T) {
	r := newRig(t)
	b := r.open()
	r.gate.ask("orders", 1)
	r.clock.pass(time.Minute)
	b.Flush()
	blocked := filepath.Join(r.dir, "2026-03-01T10.json.new", "full")
	if err := os.MkdirAll(blocked, 0o700); err != nil { // what is written anew can't be
		t.Fatal(err)
	}
	r.gate.ask("orders", 2)
	r.clock.pass(time.Minute)
	if got := hours(t, b, time.Time{}); got != "10:00 covered 2m0s orders=3\n" {
		t.Errorf("got %s", got)
	}
}

// Run writes at its end what was counted last.
func TestRun_WritesAtItsEnd(t *testing.T) {
	r := newRig(t)
	b := r.open()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	r.gate.ask("orders", 5)
	r.clock.pass(time.Minute)
	cancel()
	<-done
	if got := hours(t, r.open(), time.Time{}); !strings.Contains(got, "orders=5") {
		t.Errorf("got %s", got)
	}
}

// Whatever an hour's file holds, it is refused or holds no more than an hour can.
func FuzzHour(f *testing.F) {
	f.Add([]byte(`{"version":1,"hour":"2026-03-01T10:00:00Z","covered_ms":60000,"asked":{"admit topic=orders":3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := traffic.ParseHour(text, time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))
		if err == nil && (h.Covered < 0 || h.Covered > time.Hour || len(h.Asked) > traffic.MaxQuestions || h.Asked == nil) {
			t.Fatalf("%+v", h)
		}
	})
}
