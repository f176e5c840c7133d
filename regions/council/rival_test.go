package council_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// greets says a greeting to a voter, and returns what was answered.
func (l *liar) greets(at string, h map[string]any) (answer map[string]any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	conn, err := l.line.Dial(ctx, at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err = conn.SetDeadline(time.Now().Add(patient)); err == nil {
		err = say(conn, h)
	}
	if err == nil {
		err = hear(conn, &answer)
	}
	return answer, err
}

// answers has a region, whose voter was stopped, answer whoever calls with what the liar says,
// and returns how often it did.
func (w *world) answers(name string, say ...func(map[string]any) any) (l *liar, called chan struct{}) {
	w.stop(name)
	l = w.liar(name)
	l.line = w.line(name, true)
	called = make(chan struct{}, 1)
	done := make(chan struct{})
	w.t.Cleanup(func() { _ = l.line.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, _, err := l.line.Accept()
			if err != nil {
				return
			}
			answerWith(conn, say)
			select {
			case called <- struct{}{}:
			default:
			}
		}
	}()
	return l, called
}

func answerWith(conn net.Conn, all []func(map[string]any) any) {
	defer func() { _ = conn.Close() }()
	var h map[string]any
	if conn.SetDeadline(time.Now().Add(patient)) != nil || hear(conn, &h) != nil {
		return
	}
	for _, what := range all {
		if say(conn, what(h)) != nil {
			return
		}
	}
}

// goesOn: the honest regions have their say, decide, and speak of no rival.
func (w *world) goesOn(log string, honest ...string) {
	w.t.Helper()
	w.until("they have a leader", func() bool {
		for _, name := range honest {
			if w.seats[name].Status().Leader == "" {
				return false
			}
		}
		return true
	})
	for _, name := range honest {
		if by, aside := w.seats[name].Aside(); aside {
			w.t.Errorf("%s has no say and goes by %v", name, by)
		}
		if r := w.seats[name].Status().Rivals; len(r) > 0 {
			w.t.Errorf("%s believes in %v", name, r)
		}
	}
	w.must(honest[0], declared(log, honest[0], movable(placement.Accept)))
	if _, err := w.seats[honest[1]].Renew(w.t.Context()); err != nil {
		w.t.Errorf("%s does not renew: %v", honest[1], err)
	}
}

// TestFA2_NobodyFoundsByItsWordAlone: a voter that was broken into greets the others as one of a
// later founding, of any name and generation, with nothing to show for it, with what people did
// not sign, and with the proof of another founding. The others go on, and count each of them.
func TestFA2_NobodyFoundsByItsWordAlone(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	l := w.liar("us-east")
	theirs := council.Consent{Region: "us-east", Before: "A1", Generation: 1, Others: []string{"ap-south", "eu-west"},
		Approvals: []placement.Approval{{Actor: "ben", Signed: "forged"}, {Actor: "carl", Signed: "forged"}}}
	agreed := theirs
	agreed.Approvals = []placement.Approval{{Actor: "ben"}, {Actor: "carl"}}
	stolen := agreed
	stolen.Region = "sa-north"
	for what, h := range map[string]map[string]any{
		"nothing to show":          {"Authority": "rival", "Generation": 2},
		"far away":                 {"Authority": "rival", "Generation": 1 << 30, "After": uint64(1) << 60, "Led": true},
		"forged consent":           {"Authority": "rival", "Generation": 2, "Founding": council.ShowFounding(w.id("us-east"), "rival", theirs)},
		"under another name":       {"Authority": "rival", "Generation": 2, "Founding": council.ShowFounding(w.id("us-east"), "other", agreed)},
		"of another generation":    {"Authority": "rival", "Generation": 3, "Founding": council.ShowFounding(w.id("us-east"), "rival", agreed)},
		"another region's consent": {"Authority": "rival", "Generation": 2, "Founding": council.ShowFounding(w.id("us-east"), "rival", stolen)},
		"a name that moves":        {"Authority": "\x1b[2J", "Generation": 1},
		"a roll that moves":        {"Authority": "rival", "Generation": 1, "Roll": "a\r\nb"},
	} {
		for _, purpose := range []string{"greet", "vote", "ask"} {
			before := w.refusals("us-east", "")
			h["For"] = purpose
			_, err := l.greets("eu-west", h)
			if purpose != "ask" && w.refusals("us-east", "") == before {
				t.Errorf("%s, to %s: nothing is counted, %v", what, purpose, err)
			}
		}
	}
	w.goesOn("L", "eu-west", "ap-south")
	l.mustFound(agreed) // a proof that holds is believed, so it is the proof that was missing
}

func (l *liar) mustFound(c council.Consent) {
	l.t.Helper()
	h := map[string]any{"For": "greet", "Authority": "rival", "Generation": 2, "Founding": council.ShowFounding(l.id(c.Region), "rival", c)}
	if _, err := l.greets("eu-west", h); err != nil {
		l.t.Fatal(err)
	}
	if by, aside := l.seats["eu-west"].Aside(); !aside || len(by) != 1 || by[0] != l.name {
		l.t.Errorf("a founding that people agreed to leaves eu-west with %v %v", by, aside)
	}
}

// TestFA2_NoAnswerTakesAVote: a voter that was broken into answers each call: with a later
// founding, with the vote of the caller given away, with texts that move the cursor. Whoever
// calls keeps its vote.
func TestFA2_NoAnswerTakesAVote(t *testing.T) {
	t.Parallel()
	given := map[string]any{"Code": api.PermissionDenied, "Field": "voter", "Hint": "the region's vote was given to another voter"}
	for name, answer := range map[string]func(h map[string]any) any{
		"a later founding": func(map[string]any) any {
			return map[string]any{"Authority": "rival", "Generation": 2, "After": 10, "Led": true, "Reads": 1}
		},
		"a vote that was given away": func(h map[string]any) any {
			after, _ := h["After"].(float64)
			return map[string]any{"Authority": h["Authority"], "Generation": h["Generation"], "After": after + 5, "Refused": given}
		},
		"a vote that was given away long ago": func(h map[string]any) any {
			return map[string]any{"Authority": h["Authority"], "Generation": h["Generation"], "After": uint64(1) << 60, "Refused": given}
		},
		"a first founding": func(map[string]any) any { return map[string]any{"Authority": "rival", "Generation": 1} },
		"words": func(map[string]any) any {
			return map[string]any{"Authority": "\x1b[2J", "Generation": 1, "Refused": map[string]any{"Code": "a\r\nb"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := founding(t, "ap-south", "eu-west", "us-east")
			_, called := w.answers("us-east", answer)
			for range 4 {
				select {
				case <-called:
				case <-time.After(patient):
					t.Fatal("nobody calls")
				}
			}
			w.until("they decide", func() bool {
				_, err := w.submit("eu-west", declared("L", "eu-west", movable(placement.Accept)))
				return err == nil
			})
			for _, honest := range []string{"ap-south", "eu-west"} {
				if by, aside := w.seats[honest].Aside(); aside {
					t.Errorf("%s gave its vote up, and goes by %v", honest, by)
				}
			}
		})
	}
}

// TestFA2_ACopyTakesNoLaterFoundingUnproven: a follower, with a copy and without one, is fed by a
// voter that lies of an authority that was founded anew, in which a log is its own.
func TestFA2_ACopyTakesNoLaterFoundingUnproven(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	f := w.follow("sa-north", filepath.Join(t.TempDir(), "placement.cache"), "us-east", "eu-west")
	defer f.Close()
	w.until("it is followed", func() bool { _, ok := f.Log("L"); return ok })
	placed, _ := f.Log("L")
	placed.Home, placed.Epoch = "us-east", api.Epoch{Term: 2, Counter: 2, Issuer: "rival"}
	d := placement.Delta{Authority: "rival", Generation: 2, Version: 10, Logs: []placement.Log{placed}}
	_, called := w.answers("us-east", func(map[string]any) any {
		return map[string]any{"Authority": "rival", "Generation": 2, "After": 10, "Led": true}
	},
		func(map[string]any) any { return d })
	cold := w.follow("me-south", filepath.Join(t.TempDir(), "placement.cache"), "us-east")
	defer cold.Close()
	w.until("the lie was told to a follower", func() bool { return w.refusals("us-east", regions.NotTheirs) > 2 })
	<-called
	if l, _ := f.Log("L"); l.Home != "eu-west" {
		t.Errorf("the log is in %s", l.Home)
	}
	if _, ok := cold.Log("L"); ok {
		t.Error("a follower that knew nothing took it")
	}
}

// TestFA2_AFoundingIsShownByWhoeverJoinedIt: a region joins an authority that was founded anew,
// which then ends. A copy of the authority before goes by the one that joined, also after its
// start.
func TestFA2_AFoundingIsShownByWhoeverJoinedIt(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	w.until("us-east has it", func() bool { _, ok := w.seats["us-east"].Log("L"); return ok })
	cache := filepath.Join(t.TempDir(), "placement.cache")
	f := w.follow("sa-north", cache, "us-east")
	w.until("it is followed", func() bool { _, ok := f.Log("L"); return ok })
	f.Close()
	for _, name := range w.names {
		w.stop(name)
	}
	_, state, err := council.LoadCache(filepath.Join(w.dirs["us-east"], council.CacheFile))
	if err != nil {
		t.Fatal(err)
	}
	birth := council.Birth{Dir: filepath.Join(t.TempDir(), "council"), Region: "us-east", Authority: "A2", Voters: []string{"us-east"}, Cache: state,
		Others: []string{"ap-south", "eu-west"}, Actor: "anna", Reason: "alone", Approvals: []placement.Approval{{Actor: "ben", Role: "incident"}, {Actor: "carl", Role: "incident"}}}
	if err := council.Create(birth); err != nil {
		t.Fatal(err)
	}
	w.dirs["us-east"] = birth.Dir
	w.start("us-east")
	w.until("the second generation stands", func() bool { return w.seats["us-east"].Status().Generation == 2 })
	for _, name := range []string{"ap-south", "eu-west"} {
		w.start(name)
		w.joins("us-east", name)
	}
	w.stop("us-east")
	w.stop("eu-west")
	w.start("eu-west")
	late := w.follow("sa-north", cache, "eu-west")
	defer late.Close()
	w.until("it goes by the later one", func() bool { d, _, _ := late.Since(0, ""); return d.Generation == 2 })
}

// TestFA2_WhoLosesItsLeaderSpeaksForNobody: a voter that was asked to renew another region's
// leases, and loses its leader just then, is no liar.
func TestFA2_WhoLosesItsLeaderSpeaksForNobody(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	leader := w.leader()
	cut := w.other(leader)
	w.sever(cut, leader)
	w.until("it hears no leader", func() bool { return w.seats[cut].Status().Leader == "" })
	ctx, cancel := context.WithTimeout(context.Background(), pace.Of(4*time.Second))
	defer cancel()
	if _, err := w.seats[cut].RenewOf(ctx, leader); err == nil {
		t.Log("it heard a leader again")
	}
	if n := w.refusals(cut, ""); n > 0 {
		t.Errorf("it is called a liar %d times: %v", n, w.refused.Totals())
	}
}

// FuzzGreeting: whatever a greeting says, what is kept of it can be shown.
func FuzzGreeting(f *testing.F) {
	f.Add([]byte(`{"Authority":"A1.0a","Generation":1,"Roll":"eu-west,us-east","Born":"X"}`))
	f.Add([]byte(`{"Authority":"\u001b[2J","Founding":{"Authority":"A","Generation":4294967295}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		name, roll, ok := council.ReadGreeting(text)
		if ok && (name != api.Printable(name, 256) || roll != api.Printable(roll, 32<<10)) {
			t.Errorf("%q %q", name, roll)
		}
	})
}
