package intruder_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

// number is that of an environment variable, or instead.
func number(t *testing.T, name string, instead uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return instead
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: write a number", name, text)
	}
	return n
}

// TestFA_NoLieMovesAnHonestRegion tells each lie once, by the seed in DOMICILE_CHAOS_SEED, and
// looks at the honest regions after each. A lie that did harm for good has the next one told in
// another federation; DOMICILE_INTRUDER_ALONE=1 does so for each, with a restart after it.
func TestFA_NoLieMovesAnHonestRegion(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: not with -short")
	}
	seed := number(t, "DOMICILE_CHAOS_SEED", 1)
	var w *world
	for i, l := range all() {
		t.Run(l.String(), func(inner *testing.T) {
			if w == nil || alone() {
				owner := t
				if alone() {
					owner = inner
				}
				w = open(inner, owner)
			}
			found := w.say(inner, l, i, seed)
			if alone() {
				w.again(inner.Context())
				w.over(inner.Context())
				found = append(found, w.take()...)
			}
			report(inner, l, seed, found)
			if w.loss {
				w.close(inner)
				w = nil
			}
		})
	}
	if w == nil || alone() {
		return
	}
	w.again(t.Context())
	w.over(t.Context())
	for _, f := range w.take() {
		t.Errorf("after all lies: %s (DOMICILE_INTRUDER_ALONE=1 says which)", f)
	}
}

func report(t *testing.T, l lie, seed uint64, found []string) {
	for _, f := range found {
		t.Errorf("%s: %s", l.rule, f)
	}
	if len(found) > 0 {
		t.Logf("again: DOMICILE_CHAOS_SEED=%d go test ./chaos/intruder -run '^TestFA_NoLieMovesAnHonestRegion$/^%s$'", seed, strings.ReplaceAll(l.String(), "/", "$/^"))
	}
}

// TestFA_SchedulesOfLies has the liar tell lies in an order that a seed picks, among faults that
// honest regions have: DOMICILE_INTRUDER_SEEDS plans, or the one of DOMICILE_CHAOS_SEED.
func TestFA_SchedulesOfLies(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: not with -short")
	}
	first, times := uint64(1), number(t, "DOMICILE_INTRUDER_SEEDS", 2)
	if os.Getenv("DOMICILE_CHAOS_SEED") != "" {
		first, times = number(t, "DOMICILE_CHAOS_SEED", 1), 1
	}
	var w *world
	violations := 0
	for seed := first; seed < first+times; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(inner *testing.T) {
			if w == nil {
				w = open(inner, t)
			}
			found := w.play(inner, seed)
			if seed%10 == 0 || seed == first+times-1 { // the stores are read now and then: they have to be closed for it
				w.over(inner.Context())
				found = append(found, w.take()...)
				w.loss = true
			}
			for _, f := range found {
				violations++
				inner.Error(f)
			}
			if w.loss {
				w.close(inner)
				w = nil
			}
		})
	}
	t.Logf("%d seeds, %d violations", times, violations)
}

// lieCount and strikes are how many lies and faults one plan has.
const lieCount, strikes = 12, 2

// play carries out the plan of a seed.
func (w *world) play(t *testing.T, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 0x1E5))
	lies := all()
	var found []string
	at := []int{rng.IntN(lieCount), rng.IntN(lieCount)}
	for i := range lieCount {
		n := rng.IntN(len(lies))
		for _, f := range w.say(t, lies[n], n, rng.Uint64()) {
			found = append(found, lies[n].String()+": "+f)
		}
		if w.loss {
			return found
		}
		if slices.Contains(at[:strikes], i) {
			what, err := w.strike(t.Context(), rng.IntN(4), honest()[rng.IntN(2)])
			t.Log(what)
			if err != nil {
				w.broken("%s: %v", what, err)
			}
		}
	}
	w.again(t.Context())
	return append(found, w.take()...)
}

// TestFA_TheChecksAreSeenRed has each kind of harm done by the test itself.
func TestFA_TheChecksAreSeenRed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: not with -short")
	}
	w := open(t, t)
	red := func(what, want string, found []string) {
		if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("%s: nothing says %q: %q", what, want, found)
		}
	}
	quiet := lie{lane: "none", name: "nothing", tell: func(*telling) {}}
	red("a lie that nobody noticed", "counted nothing", w.say(t, quiet, 0, 1))
	taken := lie{lane: "none", name: "taken", mute: "it is none", tell: func(q *telling) { q.takes("it") }}
	red("a lie that was taken", "took it", w.say(t, taken, 0, 1))
	moved := w.placed
	w.placed = "elsewhere"
	if now, err := w.placements(t.Context()); err != nil || now == w.placed || now != moved {
		t.Errorf("the log is at %q, was at %q: %v", now, moved, err)
	}
	w.trade.book.Enter(ledger.Entry{ID: "nobody", Topic: "orders", Residency: "eu", Asked: west, Rests: honest(), Outcome: ledger.Acked,
		Log: "orders@" + west, Region: west, Sequence: 1 << 40, Started: time.Now(), Ended: time.Now()})
	w.regions[central].signal(syscall.SIGKILL)
	if err := lab.Poll(t.Context(), soon, func() error {
		if w.alive(); w.loss {
			return nil
		}
		return errors.New("it runs")
	}); err != nil {
		t.Error(err)
	}
	red("a process that ended", "has ended", w.take())
	w.over(t.Context())
	red("an ack of what is not there", string(ledger.Lost), w.take())
}

// TestFA_AThousandOfEachLane tells each lane's lies again and again with new seeds, and judges
// the honest regions after every twenty-five: DOMICILE_INTRUDER_EACH of them on each lane.
func TestFA_AThousandOfEachLane(t *testing.T) {
	times := number(t, "DOMICILE_INTRUDER_EACH", 0)
	if times == 0 {
		t.Skip("takes minutes: set DOMICILE_INTRUDER_EACH=1000")
	}
	lanes := map[string][]int{}
	lies := all()
	for i, l := range lies {
		lanes[l.lane] = append(lanes[l.lane], i)
	}
	var w *world
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		t.Run(lane, func(inner *testing.T) {
			for n := range times {
				if w == nil {
					w = open(inner, t)
				}
				i := lanes[lane][n%uint64(len(lanes[lane]))]
				before := w.mark(inner.Context())
				q := w.tells(inner, lies[i], i, n)
				if n%25 == 24 || n == times-1 {
					w.check(inner.Context(), before, time.Now())
				}
				w.undone(q)
				for _, f := range w.take() {
					inner.Errorf("%s, seed %d: %s", lies[i], n, f)
				}
				if w.loss {
					w.close(inner)
					w = nil
				}
			}
		})
	}
}
