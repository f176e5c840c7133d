package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
	"domicile/chaos/schedule"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) {
	field.Enter()
	fabrictest.VerifyTestMain(m)
}

// span is how long faults go on in one schedule.
const span = 12 * time.Second

// three says which regions have three nodes in the schedule of a seed: none, or one.
func three(seed uint64) []string {
	if seed%2 == 1 {
		return nil
	}
	return []string{[]string{"eu-west", "us-east", "ap-south"}[seed/2%3]}
}

// seeds gives one seed after the other: the one that DOMICILE_CHAOS_SEED names, or as
// many as DOMICILE_CHAOS_SCHEDULES says, new ones or from DOMICILE_CHAOS_FIRST on, or from 1
// on as many as there is time for in DOMICILE_CHAOS_SHARE, or the first: what a change has to
// pass are the same plans each time.
func seeds(t *testing.T) func(yield func(uint64) bool) {
	number := func(name string) (uint64, bool) {
		text := os.Getenv(name)
		n, err := strconv.ParseUint(text, 10, 64)
		if text != "" && err != nil {
			t.Fatalf("%s=%s: write a number", name, text)
		}
		return n, text != ""
	}
	if seed, ok := number("DOMICILE_CHAOS_SEED"); ok {
		return func(yield func(uint64) bool) { yield(seed) }
	}
	most, counted := number("DOMICILE_CHAOS_SCHEDULES")
	share, err := time.ParseDuration(os.Getenv("DOMICILE_CHAOS_SHARE"))
	if err != nil && os.Getenv("DOMICILE_CHAOS_SHARE") != "" {
		t.Fatalf("DOMICILE_CHAOS_SHARE: %v", err)
	}
	first, named := number("DOMICILE_CHAOS_FIRST")
	if !named {
		first = 1
	}
	fresh := counted && !named
	if !counted && share == 0 {
		most, counted = 1, true
	}
	start := time.Now()
	return func(yield func(uint64) bool) {
		var longest time.Duration
		for n := uint64(0); (!counted || n < most) && (share == 0 || time.Since(start)+longest < share); n++ {
			begin := time.Now()
			seed := first + n
			if fresh {
				seed = uint64(rand.Uint32())
			}
			if !yield(seed) {
				return
			}
			longest = max(longest, time.Since(begin))
		}
	}
}

// always are the promises that every schedule puts to the test, whatever its plan; often
// those that several together do: whether a sample falls into the right moment depends on
// the plan and the machine.
var always = []int{
	invariant.Whole, invariant.Kept, invariant.Resident, invariant.Order, invariant.NoRepeat, invariant.Fenced,
	invariant.Gaps, invariant.Revision, invariant.Counted, invariant.Converged,
}

var often = []int{invariant.Slope, invariant.LagTruth, invariant.Idle, invariant.OneWay}

// RA1, RA5, R14a, R14b, RD3: whatever happens to processes, disks, links and clocks,
// every acknowledged record is where it was acknowledged, once and in order, every
// copy is complete in the end, and no resident byte is on a disk outside its boundary.
func TestRA1_SchedulesOfFaultsLoseNothing(t *testing.T) {
	field.Need(t)
	ran, judged := 0, map[int]int{}
	for seed := range seeds(t) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			v, err := schedule.Run(t.Context(), schedule.Options{Parent: t.TempDir(), Quorum: three(seed)}, func(s schedule.Shape) schedule.Plan {
				return schedule.Generate(seed, s, span)
			})
			if err != nil {
				t.Fatalf("DOMICILE_CHAOS_SEED=%d: %v", seed, err)
			}
			t.Log(v)
			ran++
			for n, times := range v.Judged {
				judged[n] += times
			}
			if !v.Holds() {
				t.Fail()
			}
			if v.Sum.Acked == 0 || v.Sum.Mirrored == 0 {
				t.Error("nothing was acknowledged or mirrored: the schedule proves nothing")
			}
			for _, n := range always {
				if v.Holds() && v.Judged[n] == 0 {
					t.Errorf("invariant %d was not put to the test: the schedule proves nothing of it", n)
				}
			}
		})
	}
	for _, n := range often {
		if ran >= 5 && judged[n] == 0 {
			t.Errorf("invariant %d was not put to the test in any of %d schedules", n, ran)
		}
	}
}

// RA1, RA4: a region of three nodes under load, thirty times struck: one, two or all
// of its nodes are killed or lose their power, and start again in any order.
func TestRA1_KillsAndPowerCutsOfAQuorumRegionLoseNothing(t *testing.T) {
	field.Need(t)
	rounds := 2
	if text := os.Getenv("DOMICILE_QUORUM_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("DOMICILE_QUORUM_ROUNDS=%s: write a number", text)
		}
	}
	seed := uint64(rand.Uint32())
	below := false // a majority is gone, for long enough to be asked meanwhile
	v, err := schedule.Run(t.Context(), schedule.Options{Parent: t.TempDir(), Quorum: []string{"eu-west"}}, func(s schedule.Shape) schedule.Plan {
		s.Regions = map[string][]string{"eu-west": s.Regions["eu-west"]}
		s.Kinds = []ledger.StepKind{ledger.Kill, ledger.PowerCut}
		p := schedule.Generate(seed, s, time.Duration(rounds)*5*time.Second)
		for _, step := range p.Steps {
			below = below || len(step.Nodes) == 2 && step.For > time.Second // of three that are down nobody asks
		}
		return p
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Log(v)
	if !v.Holds() {
		t.Fail()
	}
	if v.Sum.Acked == 0 || below && v.Judged[invariant.Durable] == 0 {
		t.Errorf("%d acknowledged, %d asked below the majority: the kills prove nothing", v.Sum.Acked, v.Judged[invariant.Durable])
	}
}

// The same with the sync before the ack left out: power cuts must lose records, or
// the schedules prove nothing.
func TestRA1_AMissingSyncIsFound(t *testing.T) {
	field.Need(t)
	v, err := schedule.Run(t.Context(), schedule.Options{Parent: t.TempDir(), Break: field.NoBarrier, Patience: 10 * time.Second}, func(s schedule.Shape) schedule.Plan {
		p := schedule.Plan{Span: 6 * time.Second}
		for i, name := range []string{"eu-west", "us-east", "ap-south"} {
			p.Steps = append(p.Steps, schedule.Step{At: time.Duration(i+1) * time.Second, For: 100 * time.Millisecond, Kind: ledger.PowerCut, Nodes: s.Regions[name]})
		}
		return p
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	kept := fmt.Sprintf("invariant %d, ", invariant.Kept)
	if v.Sum.Lost == 0 || !slices.ContainsFunc(v.Found, func(f string) bool { return strings.HasPrefix(f, kept) }) {
		t.Error("no record is lost without the barrier, or the verdict does not say so: the schedules can't see a missing sync")
	}
}

// B31, R14a: ten minutes with a cut each minute: heap, goroutines and descriptors of
// every process are back where they were. DOMICILE_LONG=1 runs it.
func TestB31_TenMinutesWithACutEachMinute(t *testing.T) {
	field.Need(t)
	minutes := 10
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("takes eleven minutes: DOMICILE_LONG=1 runs it")
	}
	v, err := schedule.Run(t.Context(), schedule.Options{Parent: t.TempDir(), Gauges: true}, func(schedule.Shape) schedule.Plan {
		p := schedule.Plan{Span: time.Duration(minutes) * time.Minute}
		pairs := [][2]string{{"eu-west", "us-east"}, {"us-east", "ap-south"}, {"ap-south", "eu-west"}}
		for m := range minutes {
			pair := pairs[m%len(pairs)]
			p.Steps = append(p.Steps, schedule.Step{At: time.Duration(m)*time.Minute + 20*time.Second, For: 15 * time.Second,
				Kind: ledger.Cut, From: pair[0], To: pair[1], Loss: field.Drop})
		}
		return p
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	if !v.Holds() || v.Judged[invariant.NoLeak] == 0 {
		t.Errorf("%d leaks looked for", v.Judged[invariant.NoLeak])
	}
}

func TestPlan_ASeedIsAPlan(t *testing.T) {
	shape := schedule.Shape{Regions: map[string][]string{"a": {"a.a", "a.b", "a.c"}, "b": {"b"}, "c": {"c"}}}
	seen := map[ledger.StepKind]bool{}
	for seed := range uint64(200) {
		p := schedule.Generate(seed, shape, span)
		if again := schedule.Generate(seed, shape, span); again.String() != p.String() {
			t.Fatalf("seed %d makes two plans:\n%s%s", seed, p, again)
		}
		if len(p.Steps) == 0 {
			t.Errorf("seed %d strikes nothing", seed)
		}
		for _, s := range p.Steps {
			seen[s.Kind] = true
			if s.At < 0 || s.For <= 0 || s.At+s.For > span {
				t.Errorf("seed %d: %s at %s", seed, s, s.At)
			}
			strikes := 0
			for _, yes := range []bool{s.From != "" && s.From != s.To, len(s.Nodes) > 0, len(s.Regions) == 3} {
				if yes {
					strikes++
				}
			}
			if strikes != 1 {
				t.Errorf("seed %d: %s strikes nobody, or too many", seed, s)
			}
		}
		if !slices.ContainsFunc(p.Steps, func(s schedule.Step) bool { return judgeable(p, s) }) {
			t.Errorf("seed %d has no fault of a link that can be judged:\n%s", seed, p)
		}
	}
	if len(seen) != 13 {
		t.Errorf("200 seeds make only %v", seen)
	}
}

// judgeable reports whether a fault of a link lasts long enough for what is said of it to
// be judged, and one of its ends is left alone.
func judgeable(p schedule.Plan, long schedule.Step) bool {
	if long.From == "" || long.For < 10*time.Second {
		return false
	}
	alone := func(region string) bool {
		return !slices.ContainsFunc(p.Steps, func(s schedule.Step) bool {
			return slices.ContainsFunc(s.Nodes, func(node string) bool { return strings.HasPrefix(node, region) })
		})
	}
	return alone(long.From) || alone(long.To)
}
