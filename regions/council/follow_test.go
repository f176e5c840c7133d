package council_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/council"
	"domicile/regions/placement"
)

func (w *world) follow(name, cache string, voters ...string) *council.Follower {
	w.t.Helper()
	f, err := council.Follow(council.FollowerConfig{Cache: cache, Lines: w.line(name, false), Voters: voters, Clock: w.clock, Pace: pace, Log: slog.New(slog.DiscardHandler), Identity: w.id(name), MayFound: agreed, Refused: w.refused})
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// TestR14e_FollowerStartsFromItsCache: a gateway without a vote learns what changes, starts
// from its cache with no voter in reach, and refuses a damaged cache loudly.
func TestR14e_FollowerStartsFromItsCache(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	cache := filepath.Join(t.TempDir(), "placement.cache")
	f := w.follow("sa-north", cache, "ap-south", "eu-west")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	w.until("it is followed", func() bool { _, ok := f.Log("L"); return ok })

	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	terms := movable(placement.FenceAfter)
	terms.Allowed = []string{"ap-south", "eu-west", "sa-north", "us-east"}
	own := declared("M", "sa-north", terms)
	if _, err := f.Submit(ctx, own); err != nil {
		t.Fatal(err)
	}
	if g, err := f.Renew(ctx, "sa-north"); err != nil || g.Region != "sa-north" || g.Index == 0 {
		t.Fatalf("%+v %v", g, err)
	}

	w.until("it has both", func() bool { _, ok := f.Log("M"); return ok })
	f.Close()
	for _, name := range w.names {
		w.stop(name)
	}
	cold := w.follow("sa-north", cache, "ap-south")
	defer cold.Close()
	for log, home := range map[string]string{"L": "eu-west", "M": "sa-north"} {
		if l, ok := cold.Log(log); !ok || l.Home != home {
			t.Fatalf("%s is not in the cache", log)
		}
	}
	if _, _, heard := cold.Since(0, ""); !heard.IsZero() {
		t.Fatal("it says that it heard a voter")
	}
	short, stop := context.WithTimeout(context.Background(), pace.Of(time.Second))
	defer stop()
	if _, err := cold.Submit(short, own); api.CodeOf(err) != api.AuthorityUnreachable {
		t.Fatal(err)
	}

	data, err := os.ReadFile(cache)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "placement.cache")
	if err := os.WriteFile(damaged, bytes.Replace(data, []byte("eu-west"), []byte("us-east"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = council.Follow(council.FollowerConfig{Cache: damaged})
	if api.CodeOf(err) != api.StorageFailed || !strings.Contains(err.Error(), "fetched anew") {
		t.Fatal(err)
	}
}

// TestR14e_IdleCouncilCostsNoEntry: without a log that needs a lease renewals are answered
// and write nothing; with one all regions together cost one entry a second.
func TestR14e_IdleCouncilCostsNoEntry(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	renewAll := func() (grants []placement.Grant) {
		t.Helper()
		type answer struct {
			g   placement.Grant
			err error
		}
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		answers := make(chan answer, len(w.names))
		for _, name := range w.names {
			go func() {
				g, err := w.seats[name].Renew(ctx)
				answers <- answer{g, err}
			}()
		}
		for range w.names {
			a := <-answers
			if a.err != nil {
				t.Fatal(a.err)
			}
			grants = append(grants, a.g)
		}
		return grants
	}
	before := w.seats[leader].Status().Entries
	for range 3 {
		for _, g := range renewAll() {
			if g.Index != 0 || g.Digest != placement.CoverDigest(nil) {
				t.Fatalf("something was granted: %+v", g)
			}
		}
	}
	if after := w.seats[leader].Status().Entries; after > before+1 { // what spreads the founding may be one
		t.Fatalf("%d entries for nothing", after-before)
	}
	w.must("eu-west", declared("M", "eu-west", movable(placement.FenceAfter)))
	before, begin := w.seats[leader].Status().Entries, time.Now()
	for range 3 {
		l, _ := w.seats[leader].Log("M")
		for _, g := range renewAll() {
			if g.Index == 0 || g.Region == "eu-west" && g.Digest != placement.CoverDigest([]placement.Log{l}) {
				t.Fatalf("not covered: %+v", g)
			}
		}
	}
	most := uint64(time.Since(begin)/pace.Of(time.Second)) + 3 // one may be what spreads the declaration
	if spent := w.seats[leader].Status().Entries - before; spent > most {
		t.Fatalf("%d entries in %s", spent, time.Since(begin))
	}
}

// TestR14g_RegionsSpeakForThemselves: a region's command names that region, only voters
// vote and speak for others, and nobody speaks with the authority's own voice.
func TestR14g_RegionsSpeakForThemselves(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	f := w.follow("sa-north", filepath.Join(t.TempDir(), "placement.cache"), "ap-south", "eu-west")
	defer f.Close()
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	foreign := step(placement.Prove, "L", "m", "eu-west", api.StaticEpoch("eu-west"))
	foreign.Proof = &placement.Proof{Kind: placement.Marker}
	if code, _, err := w.liar("sa-north").ask("ap-south", foreign, false, nil); code != api.PermissionDenied {
		t.Fatal(code, err)
	}
	foreign.Region, foreign.Proof.Kind = "", placement.Lapsed
	if _, err := f.Submit(ctx, foreign); api.CodeOf(err) != api.PermissionDenied {
		t.Fatal(err)
	}
	if _, err := f.Renew(ctx, "eu-west"); api.CodeOf(err) != api.PermissionDenied {
		t.Fatal(err)
	}

	if code := w.knock(ctx, "sa-north", "eu-west", `{"For":"vote","Authority":"`+w.seats["eu-west"].Status().Authority+`","Generation":1}`); code != api.PermissionDenied {
		t.Fatalf("a region without a vote votes: %q", code)
	}
	lapsed, err := foreign.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, forwarded := range map[string]bool{"sa-north": false, "ap-south": false, "us-east": true} {
		request, err := json.Marshal(map[string]any{"Command": lapsed, "Left": patient, "Forwarded": forwarded})
		if err != nil {
			t.Fatal(err)
		}
		if code := w.knock(ctx, name, "eu-west", `{"For":"ask"}`, string(request)); code != api.PermissionDenied {
			t.Fatalf("%s proved a lapse: %q", name, code)
		}
	}
	if code := w.knock(ctx, "sa-north", "eu-west", `{"For":"ask"}`, `{"Renew":"eu-west","Forwarded":true,"Left":1000000000}`); code != api.PermissionDenied {
		t.Fatalf("a region without a vote speaks for another: %q", code)
	}
	if code := w.knock(ctx, "ap-south", "eu-west", `{"For":"vote","Authority":"A9","Generation":1}`); code != api.Contested {
		t.Fatalf("another founding votes: %q", code)
	}
}

// knock speaks to a region's council by hand, a frame at a time, and returns the code of
// its refusal.
func (w *world) knock(ctx context.Context, from, to string, frames ...string) (code api.Code) {
	w.t.Helper()
	conn, err := w.line(from, false).Dial(ctx, to)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, frame := range frames {
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			w.t.Fatal(err)
		}
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			w.t.Fatal(err)
		}
		text := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(conn, text); err != nil {
			w.t.Fatal(err)
		}
		var answer struct{ Refused, Fault struct{ Code api.Code } }
		if err := json.Unmarshal(text, &answer); err != nil {
			w.t.Fatal(err)
		}
		code = answer.Refused.Code + answer.Fault.Code
	}
	return code
}

// TestR14g_AFollowerLeavesAVoterThatHearsNoLeader: the first of the voters that it knows is
// cut off from the other two, and only from them. It renews by the others within the time
// of one renewal, hears what they decide, and asks first whoever answered last.
func TestR14g_AFollowerLeavesAVoterThatHearsNoLeader(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.FenceAfter)))
	f := w.follow("sa-north", filepath.Join(t.TempDir(), "placement.cache"), w.names...)
	defer f.Close()
	w.until("it is followed", func() bool { _, ok := f.Log("L"); return ok })
	w.sever("ap-south", "eu-west", "us-east")
	leader := w.leaderOf("eu-west", "us-east")
	w.until("ap-south hears no leader", func() bool { return w.seats["ap-south"].Status().Leader == "" })
	renew := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), pace.Of(2*placement.RenewEvery))
		defer cancel()
		_, err := f.Renew(ctx, "sa-north")
		return err
	}
	if err := renew(); err != nil {
		t.Error("the first renewal: ", err)
	}
	before := w.dialed("sa-north", "ap-south")
	w.must(leader, declared("M", "eu-west", movable(placement.Accept)))
	w.until("it hears what the others decide", func() bool { _, ok := f.Log("M"); return ok })
	for range 3 {
		if err := renew(); err != nil {
			t.Error(err)
		}
	}
	if again := w.dialed("sa-north", "ap-south") - before; again > 2 { // to follow it, and no more
		t.Errorf("it called the voter without a leader %d times more", again)
	}
}
