package link

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestHeartbeatIsAtMost64Bytes(t *testing.T) {
	const grpcPrefix, http2Header, tlsRecord = 5, 9, 22
	m := &pb.ControlRequest{Frame: &pb.ControlRequest_Heartbeat{Heartbeat: &pb.Heartbeat{Number: 1<<64 - 1, SentUnixNano: -1, HearsYou: true}}}
	if n := proto.Size(m) + grpcPrefix + http2Header + tlsRecord; n > 64 {
		t.Errorf("%d bytes on the wire", n)
	}
}

// Up needs proof both ways and the peer's word, and each proof lasts three beats.
func TestR14a_UpNeedsFreshProofBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := health{beat: time.Second}
		now := start
		var answered, heard time.Time
		said := false
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"answered": func(*rapid.T) { answered, h.answered = now, now },
			"heard": func(t *rapid.T) {
				said = rapid.Bool().Draw(t, "hears us")
				heard, h.heard, h.hearsUs = now, now, said
			},
			"session over": func(*rapid.T) { answered, h.answered = time.Time{}, time.Time{} },
			"stream over":  func(*rapid.T) { heard, h.heard, h.hearsUs, said = time.Time{}, time.Time{}, false, false },
			"": func(t *rapid.T) {
				out := !answered.IsZero() && now.Sub(answered) < 3*time.Second
				in := !heard.IsZero() && now.Sub(heard) < 3*time.Second
				if h.out(now) != out || h.in(now) != in || h.up(now) != (out && in && said) {
					t.Fatalf("out %t in %t up %t, want %t %t %t", h.out(now), h.in(now), h.up(now), out, in, out && in && said)
				}
			},
		})
	})
}

// The true offset lies within the error that is shown, whatever the delays are.
func TestR14d_ClockOffsetIsWithinItsError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		drift := rapid.IntRange(-driftPPM, driftPPM).Draw(t, "ppm")
		ahead := func(at time.Time) time.Duration { return truth + at.Sub(start)*time.Duration(drift)/1_000_000 }
		var e offsetEstimator
		now := start
		for range rapid.IntRange(1, 200).Draw(t, "beats") {
			there := time.Duration(rapid.IntRange(0, 200_000).Draw(t, "there µs")) * time.Microsecond
			back := time.Duration(rapid.IntRange(0, 200_000).Draw(t, "back µs")) * time.Microsecond
			t0 := now
			arrives := now.Add(there)
			t1 := arrives.Add(ahead(arrives))
			now = arrives.Add(back)
			e.add(t0, t1, t1, now)
			now = now.Add(time.Second)
			offset, plusMinus, rtt, ok := e.best(now)
			if !ok || rtt < 0 {
				t.Fatal("no offset after an answer")
			}
			if off := (offset - ahead(now)).Abs(); off > plusMinus+time.Microsecond {
				t.Fatalf("off by %s, shown ± %s", off, plusMinus)
			}
		}
	})
}

func TestClockOffsetNeedsAnAnswerThatMakesSense(t *testing.T) {
	var e offsetEstimator
	e.add(start, start.Add(time.Hour), start.Add(time.Hour+2*time.Second), start.Add(time.Second)) // worked on it longer than it took
	e.add(start, start.Add(time.Hour), start.Add(time.Hour-time.Second), start.Add(time.Second))   // answered before it came
	if _, _, _, ok := e.best(start); ok {
		t.Error("nonsense was taken for a sample")
	}
}

func TestB31_BackoffSpreadsAndSurvivesShortSuccesses(t *testing.T) {
	var b backoff
	now := start
	for i, want := range []time.Duration{200, 400, 800, 1000, 1000, 1000} { // young outage: at most 1 s
		if got := b.next(now, 0, false, 0); got != want*time.Millisecond {
			t.Errorf("wait %d: %s", i, got)
		}
		now = now.Add(want * time.Millisecond)
	}
	now = now.Add(10 * time.Second)
	if got := b.next(now, 0, false, 0); got != 5*time.Second {
		t.Errorf("old outage: %s", got)
	}
	if got := b.next(now, 0, true, 0); got != time.Second {
		t.Errorf("old outage, the peer is heard: %s", got)
	}
	if got := b.next(now, 9*time.Second, false, 0); got != 5*time.Second {
		t.Errorf("after a short success: %s", got)
	}
	if got := b.next(now, 10*time.Second, false, 0); got != 200*time.Millisecond {
		t.Errorf("after ten seconds up: %s", got)
	}
	if got := b.next(now, 0, false, 0.999); got < 200*time.Millisecond || got > 201*time.Millisecond {
		t.Errorf("most jitter: %s", got)
	}
	quick := backoff{pace: 0.25}
	if got := quick.next(start, 0, false, 0); got != 50*time.Millisecond {
		t.Errorf("at a quarter's pace: %s", got)
	}
}

// However flows take and give back, the bytes in flight stay within the hard bound,
// nothing leaks, and a flow that has nothing in flight is let in while there is room.
func TestRT3_CreditsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := regions.NewManualClock(start)
		c := newCredits(clock, func() int { return maxWindow })
		held := make([]int, 6)
		out := make([][]int, len(held))
		now, cancel := context.WithCancel(context.Background())
		cancel() // take waits for nothing: see try
		try := func(n, f int) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.fits(n, held[f])
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				f, n := rapid.IntRange(0, len(held)-1).Draw(t, "flow"), rapid.IntRange(1, 3<<20).Draw(t, "bytes")
				total := c.inFlight()
				ok := try(n, f)
				if !ok && held[f] == 0 && total+n <= maxWindow {
					t.Fatalf("flow %d has nothing in flight, %d bytes fit, and it has to wait", f, n)
				}
				if !ok {
					if err := c.take(now, n, func() int { return held[f] }); err == nil {
						t.Fatal("taken though it does not fit")
					}
					return
				}
				if err := c.take(context.Background(), n, func() int { return held[f] }); err != nil {
					t.Fatal(err)
				}
				held[f] += n
				out[f] = append(out[f], n)
			},
			"put": func(t *rapid.T) {
				f := rapid.IntRange(0, len(held)-1).Draw(t, "flow")
				clock.Advance(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
				if len(out[f]) == 0 {
					return
				}
				c.put(out[f][0], rapid.Bool().Draw(t, "answered"))
				held[f] -= out[f][0]
				out[f] = out[f][1:]
			},
			"": func(t *rapid.T) {
				sum := 0
				for _, h := range held {
					sum += h
				}
				if c.inFlight() != sum || sum > maxWindow || c.window > maxWindow {
					t.Fatalf("in flight %d, taken %d, window %d", c.inFlight(), sum, c.window)
				}
			},
		})
	})
}

func TestRT3_WindowIsHalfASecondOfTheMeasuredRate(t *testing.T) {
	clock := regions.NewManualClock(start)
	c := newCredits(clock, func() int { return maxWindow })
	for range 100 { // 10 MB/s, one batch at a time
		if err := c.take(context.Background(), 500_000, func() int { return 0 }); err != nil {
			t.Fatal(err)
		}
		clock.Advance(50 * time.Millisecond)
		c.put(500_000, true)
		clock.Advance(time.Second) // idle time does not count
		c.put(0, false)            // nor does a flow that ends with nothing in flight
	}
	if c.window < 4_900_000 || c.window > 5_100_000 {
		t.Errorf("window %d", c.window)
	}
}

// RA1: only an answer that says "acked" is an ack; one that says nothing is unknown.
func TestRA1_AnAnswerThatSaysNothingIsNoAck(t *testing.T) {
	full := wire.StatusFromError(&api.Error{Code: api.StorageFull})
	for _, c := range []struct {
		answer *pb.ForwardResponse
		code   api.Code
	}{
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Ack{Ack: &pb.Ack{}}}, ""},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Error{Error: full}}, api.StorageFull},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Error{}}, api.OutcomeUnknown},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Error{Error: &status.Status{}}}, api.OutcomeUnknown},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Ack{}}, api.OutcomeUnknown},
		{&pb.ForwardResponse{}, api.OutcomeUnknown},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Ack{Ack: &pb.Ack{Incarnation: "\x1b[2J"}}}, api.OutcomeUnknown},
		{&pb.ForwardResponse{Result: &pb.ForwardResponse_Error{Error: wire.StatusFromError(&api.Error{Code: "\x1b[2J"})}}, api.OutcomeUnknown},
	} {
		if _, err := outcome(c.answer); api.CodeOf(err) != c.code {
			t.Errorf("%v: %v", c.answer, err)
		}
	}
}

func TestHelloIsRefusedWithItsReason(t *testing.T) {
	ours := regions.Hello{Federation: "shop", Region: "us-east", FabricID: "f-us", BootID: "b1", Version: "1.0", WireVersion: 2, OldestWire: 1}
	good := regions.Hello{Federation: "shop", Region: "eu-west", FabricID: "f-eu", BootID: "b2", Version: "1.1", WireVersion: 3, OldestWire: 2}
	with := func(change func(*regions.Hello)) regions.Hello {
		h := good
		change(&h)
		return h
	}
	for name, c := range map[string]struct {
		theirs regions.Hello
		met    met
		code   api.Code
		field  string
		says   []string
	}{
		"good":             {theirs: good},
		"again":            {theirs: good, met: met{present: &good}},
		"newer wire":       {theirs: with(func(h *regions.Hello) { h.WireVersion, h.OldestWire = 9, 3 }), code: api.VersionMismatch, field: "wire_version", says: []string{"eu-west speaks 3 to 9", "us-east speaks 1 to 2", "1.0", "1.1"}},
		"older wire":       {theirs: with(func(h *regions.Hello) { h.WireVersion, h.OldestWire = 0, 0 }), code: api.VersionMismatch, field: "wire_version"},
		"federation":       {theirs: with(func(h *regions.Hello) { h.Federation = "other" }), code: api.ManifestMismatch, field: "federation", says: []string{"other", "shop"}},
		"other name":       {theirs: with(func(h *regions.Hello) { h.Region = "ap-south" }), code: api.PermissionDenied, field: "region"},
		"no fabric":        {theirs: with(func(h *regions.Hello) { h.FabricID = "" }), code: api.BadRequest, field: "fabric_id"},
		"our own fabric":   {theirs: with(func(h *regions.Hello) { h.FabricID = "f-us" }), code: api.PermissionDenied, field: "fabric_id", says: []string{"copied"}},
		"another's":        {theirs: good, met: met{owner: "ap-south"}, code: api.PermissionDenied, field: "fabric_id", says: []string{"ap-south"}},
		"claimed":          {theirs: good, met: met{claimed: "ap-south"}, code: api.PermissionDenied, field: "fabric_id", says: []string{"ap-south"}},
		"known as its own": {theirs: good, met: met{owner: "eu-west"}},
		"second fabric":    {theirs: with(func(h *regions.Hello) { h.FabricID = "f-new" }), met: met{present: &good}, code: api.PermissionDenied, field: "fabric_id", says: []string{"f-eu", "f-new"}},
		"rebuilt":          {theirs: with(func(h *regions.Hello) { h.FabricID = "f-new" })}, // while the old one is gone
		"second run":       {theirs: with(func(h *regions.Hello) { h.BootID = "b3" }), met: met{present: &good}, code: api.PermissionDenied, field: "boot_id"},
		"restarted":        {theirs: with(func(h *regions.Hello) { h.BootID = "b3" })},
		"takes our place":  {theirs: with(func(h *regions.Hello) { h.Region = "us-east" }), code: api.PermissionDenied, field: "region"},
	} {
		err := checkHello(ours, c.theirs, "eu-west", c.met)
		e, _ := err.(*api.Error)
		switch {
		case c.code == "" && err == nil:
		case c.code == "" || e == nil || e.Code != c.code || e.Field != c.field || e.Hint == "":
			t.Errorf("%s: %v", name, err)
		default:
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%s: %q does not say %q", name, err, s)
				}
			}
		}
	}
}

// A round survives its cutting into frames; half a round is never passed on.
func TestR14d_RoundsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 499, 500, 501, 1999, 2000, 2001, 2600}).Draw(t, "logs")
		last := start.Add(-time.Second)
		w := regions.Watermarks{Issued: start, Instant: start, All: rapid.Bool().Draw(t, "all"), Refused: 3}
		for i := range n {
			w.Logs = append(w.Logs, regions.LogMark{Log: api.LogID{Tenant: "default", Topic: fmt.Sprint("t", i), Slot: "home"}, Head: uint64(i)})
		}
		rounds := make(chan regions.Watermarks, 1)
		var r roundReader
		per := rapid.SampledFrom([]int{0, 1, 16, 500, 9000}).Draw(t, "marks in a frame")
		fs := frames(&w, last, per)
		for i, f := range fs {
			if len(f.Logs) > min(max(per, 1), marksPerFrame) {
				t.Fatalf("a frame of %d logs", len(f.Logs))
			}
			if err := r.add(f, rounds); err != nil {
				t.Fatal(err)
			}
			if i < len(fs)-1 && len(rounds) > 0 {
				t.Fatal("half a round was passed on")
			}
		}
		got := <-rounds
		over := max(0, n-marksPerRound)
		if len(got.Logs) != n-over || got.Refused != 3+over || got.All != w.All || !got.Issued.Equal(start) {
			t.Fatalf("%d logs, %d refused", len(got.Logs), got.Refused)
		}
		if want := w.Instant; over > 0 && !got.Instant.Equal(last) || over == 0 && !got.Instant.Equal(want) {
			t.Fatalf("instant %s", got.Instant)
		}
		for i, m := range got.Logs {
			if m.Head != uint64(i) {
				t.Fatalf("mark %d is of log %d", i, m.Head)
			}
		}
	})
}

func TestRoundReaderRefusesFloods(t *testing.T) {
	var r roundReader
	w := regions.Watermarks{Logs: make([]regions.LogMark, 1500)}
	for i := range w.Logs {
		w.Logs[i].Log = api.LogID{Tenant: "default", Topic: "t", Slot: "s"}
	}
	f := wire.WatermarksToProto(w)
	f.More = true
	if err := r.add(f, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.add(f, nil); api.CodeOf(err) != api.BadRequest {
		t.Errorf("3,000 marks in one round: %v", err)
	}
	full := make(chan regions.Watermarks)
	var late roundReader
	if err := late.add(&pb.WatermarkList{}, full); api.CodeOf(err) != api.Overloaded {
		t.Errorf("a round nobody has room for must not be dropped silently: %v", err)
	}
}

func TestServerNameTellsLaneAndRegion(t *testing.T) {
	for _, plane := range []Plane{Control, Data} {
		if p, region, ok := parseServerName(serverName(plane, "eu-west")); !ok || p != plane || region != "eu-west" {
			t.Errorf("%s: %s %s %t", plane, p, region, ok)
		}
	}
	for _, name := range []string{"", "eu-west", "bulk.eu-west.link.domicile", "control" + sniSuffix, "localhost"} {
		if _, _, ok := parseServerName(name); ok {
			t.Errorf("%q was taken", name)
		}
	}
}

// TestR14i_AGateOnlyTakesAway: whatever cuts are held, one more lets nothing pass that did
// not pass before, and healing all of them lets everything pass.
func TestR14i_AGateOnlyTakesAway(t *testing.T) {
	dirs := []regions.Direction{regions.In, regions.Out}
	peers := []string{"us-east", "ap-south"}
	passing := func(g *ends) map[string]bool {
		out := map[string]bool{}
		for _, peer := range peers {
			for _, plane := range Planes() {
				for _, dir := range dirs {
					for _, origin := range dirs {
						if mode, _ := g.verdict(peer, plane, dir, origin); mode == "" {
							out[fmt.Sprint(peer, plane, dir, origin)] = true
						}
					}
				}
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		g := newGates(regions.SystemBootClock, anyPeer, func(string) {})
		defer g.close()
		all := passing(g)
		var held []uint64
		for before := all; len(held) < 4; {
			id, err := g.Hold(Cut{Peer: rapid.SampledFrom(peers).Draw(t, "peer"), Planes: rapid.SliceOfNDistinct(rapid.SampledFrom(Planes()), 1, 3, rapid.ID).Draw(t, "planes"),
				Dirs: rapid.SliceOfNDistinct(rapid.SampledFrom(dirs), 1, 2, rapid.ID).Draw(t, "dirs"), Mode: rapid.SampledFrom([]Mode{Reject, BlackHole}).Draw(t, "mode"), Drill: "d"}, MaxLease)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, id)
			now := passing(g)
			for flow := range now {
				if !before[flow] {
					t.Fatalf("%s passes since a cut began", flow)
				}
			}
			if len(now) == len(all) {
				t.Fatal("a cut took nothing away")
			}
			before = now
		}
		for _, id := range held {
			g.Heal(id)
		}
		if now := passing(g); len(now) != len(all) {
			t.Fatalf("%d of %d flows pass after healing", len(now), len(all))
		}
	})
}

// An answer to what was not sent yet, or never, is no answer and counts; one to what was given up
// may be late. What is not believed is unknown.
func TestFA_OnlyWhatWasSentIsAnswered(t *testing.T) {
	refused := regions.NewPeerRefusals(regions.NewManualClock(start), slog.New(slog.DiscardHandler))
	w := newForwarder(&peerLink{name: "eu-west", beat: time.Second, mesh: &Mesh{cfg: Config{Refused: refused}}})
	told := map[string]error{}
	submit := func(id string) {
		w.submit(regions.Forward{Record: api.Record{ID: id, Topic: "orders"}, Deadline: start.Add(time.Minute)}, func(a api.Ack, err error) {
			if _, twice := told[id]; twice || err == nil && a.ID != id {
				t.Errorf("%s: told %+v, %v", id, a, err)
			}
			told[id] = err
		})
	}
	answer := func(number uint64, id string, counted uint64) {
		t.Helper()
		w.answered(&pb.ForwardResponse{Number: number, Result: &pb.ForwardResponse_Ack{Ack: &pb.Ack{Id: id}}})
		var n uint64
		for _, r := range refused.Totals() {
			n += r.Count
		}
		if n != counted {
			t.Errorf("answer to %d: counted %d, want %d", number, n, counted)
		}
	}
	submit("a")
	answer(1, "", 1) // it has not left
	answer(2, "", 2)
	if len(told) > 0 {
		t.Fatalf("told %v", told)
	}
	if fl := w.take(start); fl == nil || fl.number != 1 {
		t.Fatal("it is not sent any more")
	}
	answer(1, "", 2)
	answer(1, "", 2) // late
	submit("b")
	w.take(start)
	answer(2, "another", 3)
	if told["a"] != nil || api.CodeOf(told["b"]) != api.OutcomeUnknown {
		t.Errorf("told %v", told)
	}
}
