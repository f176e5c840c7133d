package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/gateway/failover"
	"domicile/regions"
	"domicile/regions/fabric"
)

// job is what the process with the bubble is told.
type job struct {
	ID, Digest, Controller string
	Dir                    string // of the drill, where its history goes
	Root                   string // where nodes store; it goes with the simulation
	Policies               string
	Manifest               []byte
	Plan                   drill.Plan
	Simulated              history.Simulated
}

// word is one line that the process says: how far virtual time is, what is being done, or
// how it ended.
type word struct {
	At     time.Duration `json:"at"` // since the begin
	Say    string        `json:"say,omitempty"`
	Result *drill.Result `json:"result,omitempty"`
	Error  string        `json:"error,omitempty"`
}

const (
	// beat is how often the process says how far it is, in virtual time.
	beat = 10 * time.Second
	// settles is how long the federation may take until nothing stands against the drill.
	settles = 3 * time.Minute
	// opens is how long logs may take to open and their copies to begin.
	opens = time.Minute
	// questions is about how often each region is asked for its lags during the cut.
	questions = 720
	fastest   = 500 * time.Millisecond
	// garbage is how much of it there may be, in percent: what lives is small, and collecting
	// took a fifth of the time.
	garbage = 800
)

// Be is the process with the bubble: it does what the file of a job says, tells out of it,
// and exits. When its standard input ends, whoever started it is gone: it removes what it
// stored, and exits too.
//
// The testing package is the one way to a bubble, also for a program that is no test.
func Be(path string, out io.Writer) {
	j, err := readJob(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		for range 3 { // nodes may be writing
			_ = os.RemoveAll(j.Root)
		}
		os.Exit(1)
	}()
	debug.SetGCPercent(garbage)
	fabric.HoldTicker()
	os.Args = os.Args[:1] // the rest is not for the testing package
	testing.Init()
	flag.Parse()
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "Simulation", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { os.Exit(play(j, out)) })
	}}}, nil, nil)
}

func readJob(path string) (*job, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := &job{}
	return j, json.Unmarshal(text, j)
}

// speaker writes words, one at a time.
type speaker struct {
	mu    sync.Mutex
	out   *json.Encoder
	began time.Time
}

func (s *speaker) say(w word) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.At = time.Since(s.began)
	_ = s.out.Encode(w) // nobody reads: then standard input has ended as well
}

// play is all that happens in the bubble. Nothing is closed: the process ends.
func play(j *job, out io.Writer) int {
	s := &speaker{out: json.NewEncoder(out), began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.say(word{})
			case <-ctx.Done():
				return
			}
		}
	}()
	result, err := j.run(ctx, s)
	last := word{Result: &result}
	if err != nil {
		last.Error = err.Error()
	}
	s.say(last)
	return 0
}

func (j *job) run(ctx context.Context, s *speaker) (drill.Result, error) {
	refused := drill.Result{Outcome: history.Refused}
	log, err := os.OpenFile(filepath.Join(j.Dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return refused, err
	}
	w, err := found(j.Root, j.Policies, j.Manifest, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return refused, err
	}
	s.say(word{Say: "the nodes start, and judge their policy"})
	nodes, err := w.start(ctx)
	if err != nil {
		return refused, err
	}
	c := drill.Config{
		ID: j.ID, Plan: j.Plan, Digest: j.Digest, Dir: j.Dir, Nodes: nodes, Confirmed: true, Controller: j.Controller, Clock: regions.NewSteadyClock(),
		Say: func(line string) { s.say(word{Say: line}) }, Every: max(fastest, j.Plan.For/questions), Simulated: &j.Simulated,
	}
	if err := ready(ctx, &c); err != nil {
		return refused, err
	}
	return drill.Run(ctx, c)
}

// ready waits until nothing stands against the drill, or says what does.
func ready(ctx context.Context, c *drill.Config) error {
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began := time.Now()
	for {
		_, err := drill.Try(ctx, c)
		if err == nil {
			err = founded(ctx, c.Nodes, time.Since(began) < opens)
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not within %s of virtual time", settles), err)
		}
	}
}

// founded looks whether every region hears the placement authority, which a new federation
// has to elect first, and whether it knows what a failover of each log would lose, which it
// does once the log is open at its home and its copy has begun. A copy that never begins is
// for the drill to show: that is waited for only as long as known says.
func founded(ctx context.Context, nodes map[string]*drill.Node, known bool) error {
	for name, n := range nodes {
		m, err := n.Admin.Permissions(ctx, "")
		if err != nil {
			return err
		}
		for _, p := range m.GetLogs() {
			v := failover.Verdict(p.GetVerdict())
			if v == failover.NoCouncil || v == failover.Unknown && known {
				return fmt.Errorf("%s at %s: %s", p.GetLog().GetTopic(), name, p.GetText())
			}
		}
	}
	return nil
}
