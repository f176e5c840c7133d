package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/chaos/demo"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

// short is a demo at a test's pace, in a directory that must be empty afterwards. The
// directory is in memory where it can be: a machine's real disk is everybody's.
func short(t *testing.T, h demo.Hooks) demo.Options {
	t.Helper()
	parent, err := os.MkdirTemp("/dev/shm", "domicile-demo-")
	if err != nil {
		parent = t.TempDir()
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
			t.Errorf("the demo left %v, %v", left, err)
		}
		os.RemoveAll(parent)
	})
	return demo.Options{For: demo.MinFor, Rate: 60, Pace: 0.25, Parent: parent, Hooks: h}
}

// The whole demo on a real disk: it holds, says so in one line of JSON, and stays up
// until it is called off.
func TestR14_DemoHoldsAndStays(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := short(t, demo.Hooks{})
	o.Parent, o.For = t.TempDir(), 3*time.Second
	ctx, cancel := context.WithCancel(t.Context())
	told := &until{word: "lag --watch", then: cancel}
	o.JSON, o.Stay, o.Out, o.Story = true, true, &out, told
	r, err := demo.Run(ctx, o)
	story := told.text()
	if err != nil {
		t.Fatalf("%v\n%s", err, story)
	}
	if !r.Holds() {
		t.Errorf("%v\n%s", r.Why, story)
	}
	var line struct {
		Acked, Forwarded, Mirrored, Refused, Lost, Duplicates int
		Outside                                               int     `json:"resident_bytes_outside"`
		Slope                                                 float64 `json:"lag_slope_during_cut"`
		Checks                                                map[string]bool
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if line.Acked == 0 || line.Forwarded == 0 || line.Mirrored == 0 || line.Refused == 0 || line.Lost+line.Duplicates+line.Outside != 0 {
		t.Errorf("%+v", line)
	}
	if math.Abs(line.Slope-1) > 0.1 || len(line.Checks) != 10 {
		t.Errorf("%+v", line)
	}
	for _, word := range []string{
		"TRANSIT_DENIED", "UNKNOWN_TAG", "MISSING_TAG", "UNKNOWN_TOPIC", "ID_REUSED",
		"domicile tail orders", "domicile publish orders", "domicile lag --watch",
	} {
		if !strings.Contains(story, word) {
			t.Errorf("the story does not tell of %q", word)
		}
	}
}

// Each mechanism is broken alone, and its own check is red. What else must be red
// follows from it: a record that got through is in files and in the ledger too.
// TestR14b_AuditSeesWhatIsAmiss has the checks that are made on what was left behind.
func TestR14b_EachBrokenMechanismIsSeen(t *testing.T) {
	through := []string{demo.CheckCanary, demo.CheckLedger, demo.CheckFloorRefuses}
	cases := []struct {
		name  string
		hooks demo.Hooks
		own   string
		also  []string // may be red as well
	}{
		{"egress", demo.Hooks{SkipEgress: true}, demo.CheckEgressWithheld, []string{demo.CheckLinks}},
		{"ingress", demo.Hooks{SkipIngress: true}, demo.CheckIngressRefuses, through},
		{"floor", demo.Hooks{SkipFloor: true}, demo.CheckFloorRefuses, through},
		{"dedupe", demo.Hooks{NoDedupe: true}, demo.CheckDedupe, []string{demo.CheckLedger}},
		{"barrier", demo.Hooks{NoBarrier: true}, demo.CheckAckAfterSync, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var story bytes.Buffer
			o := short(t, c.hooks)
			o.Out = &story
			r, err := demo.Run(t.Context(), o)
			if err != nil {
				t.Fatalf("%v\n%s", err, &story)
			}
			if r.Checks[c.own] || r.Holds() {
				t.Errorf("%s is not red\n%s", c.own, &story)
			}
			if c.hooks.SkipEgress && r.Checks[demo.CheckLinks] {
				t.Errorf("what egress let go was heard on no link\n%s", &story)
			}
			for _, name := range r.Failed() {
				// A cut of one second is too short to hold the slope to a tenth on a busy machine.
				if name != c.own && name != demo.CheckSlope && !slices.Contains(c.also, name) {
					t.Errorf("%s is red too: %s", name, r.Why[name])
				}
			}
			if !strings.Contains(story.String(), "Not everything holds") {
				t.Errorf("the story ends well:\n%s", &story)
			}
		})
	}
}

func TestDemoCalledOffLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	o := short(t, demo.Hooks{})
	o.For = 10 * time.Second
	o.Out = &until{word: "cut off", then: cancel}
	r, err := demo.Run(ctx, o)
	if !errors.Is(err, context.Canceled) || r.Holds() {
		t.Errorf("holds %v, err %v", r.Holds(), err)
	}
}

func TestDemoRefusesOptions(t *testing.T) {
	for _, o := range []demo.Options{{For: time.Second}, {For: 48 * time.Hour}, {Rate: 1}, {Rate: 1e6}} {
		if _, err := demo.Run(t.Context(), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// until is an output that calls then when a word is written.
type until struct {
	word string
	then func()
	mu   sync.Mutex
	b    bytes.Buffer
}

func (u *until) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if bytes.Contains(p, []byte(u.word)) {
		u.then()
	}
	return u.b.Write(p)
}

func (u *until) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.b.String()
}
