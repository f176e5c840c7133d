package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// readAll reads to the end and returns the records.
func readAll(t *testing.T, r *rig, at string, q gateway.ReadRequest, who regions.Principal) []gateway.ReadRecord {
	t.Helper()
	records, _, err := readTo(r, at, q, who)
	if err != nil {
		t.Fatalf("read in %s: %v", at, err)
	}
	return records
}

// readTo reads to the end and returns the records and the last batch.
func readTo(r *rig, at string, q gateway.ReadRequest, who regions.Principal) ([]gateway.ReadRecord, gateway.Batch, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var all []gateway.ReadRecord
	var last gateway.Batch
	err := r.region[at].Read(ctx, q, who, func(b gateway.Batch) error {
		all, last = append(all, b.Records...), b
		return nil
	})
	return all, last, err
}

// mirror copies a log to a region as the mirror would, leaving gaps where the map
// says that a record may not rest.
func (r *rig) mirror(log, target string) {
	r.t.Helper()
	id := logID(r.t, log)
	home, _, _ := r.federation.Home(id)
	from, to := r.region[home].homes[id], r.region[target].copies[id]
	items := fabrictest.ReadAll(r.t, from, to.Cursor().Sequence)
	for i := range items {
		if items[i].Gap == nil && !r.federation.MayRest(items[i].Record.Tag("residency"), target) {
			n := items[i].Sequence
			items[i].Record, items[i].Gap = api.Record{}, &regions.Gap{Kind: regions.Withheld, From: n, To: n, Code: api.ResidencyDenied, Side: "egress"}
		}
	}
	if len(items) == 0 {
		return
	}
	if _, err := to.Apply(context.Background(), from.Head().Incarnation, items); err != nil {
		r.t.Fatal(err)
	}
}

func bodies(records []gateway.ReadRecord) string {
	var b strings.Builder
	for i := range records {
		fmt.Fprintf(&b, "%s/%s ", records[i].Log.Slot, records[i].Item.Record.Body)
	}
	return strings.TrimSpace(b.String())
}

func with(rec api.Record, body string) api.Record {
	rec.Body = []byte(body)
	return rec
}

func TestR14c_ReadersSeeTheUnionOfTheCopiesHere(t *testing.T) {
	r := newRig(t)
	r.must("us-east", with(order("us"), "us1"))
	r.must("us-east", with(order("global"), "g1"))
	r.must("eu-west", with(order("eu"), "eu1"))
	r.must("eu-west", with(order("global"), "g2"))
	r.must("eu-west", with(order("eu"), "eu2"))
	r.mirror("orders@eu-west", "us-east")
	r.mirror("orders@us-east", "eu-west")
	us := r.region["us-east"]
	us.lags[logID(t, "orders@eu-west")] = regions.Lag{Log: logID(t, "orders@eu-west"), Home: "eu-west", Target: "us-east", State: regions.LagCaughtUp,
		Staleness: 300 * time.Millisecond, StalenessKnown: true, Ledger: regions.Ledger{Mirrored: 1, Withheld: 2}}
	records, last, err := readTo(r, "us-east", gateway.ReadRequest{Topic: "orders"}, client("us-east"))
	if err != nil {
		t.Fatal(err)
	}
	// Order holds per log.
	got := bodies(records)
	if len(records) != 3 || !strings.Contains(got, "us-east/us1 us-east/g1") || !strings.Contains(got, "eu-west/g2") {
		t.Errorf("us-east reads %q", got)
	}
	states := map[string]gateway.LogState{}
	for _, s := range last.Logs {
		states[s.Lag.Log.Slot] = s
	}
	if s := states["us-east"]; s.Lag.State != regions.LagHome || !s.Lag.StalenessKnown {
		t.Errorf("home: %+v", s)
	}
	if s := states["eu-west"]; s.Lag.Staleness != 300*time.Millisecond || s.Lag.Ledger.Withheld != 2 || s.Cursor != 3 {
		t.Errorf("copy: %+v", s)
	}
	if s := states["ap-south"]; s.Lag.State != regions.LagUnknown || s.Lag.StalenessKnown {
		t.Errorf("a copy nobody knows anything of: %+v", s)
	}
	if got := bodies(readAll(t, r, "us-east", gateway.ReadRequest{Topic: "orders", Slot: "us-east"}, client("us-east"))); got != "us-east/us1 us-east/g1" {
		t.Errorf("one log: %q", got)
	}
}

// TestR14b_ResidentRecordsGoToReadersOfTheirPlaceOnly: what counts is where the
// reader is, not where it connects.
func TestR14b_ResidentRecordsGoToReadersOfTheirPlaceOnly(t *testing.T) {
	r := newRig(t)
	r.must("eu-west", with(order("eu"), "eu1"))
	r.must("eu-west", with(order("global"), "g1"))
	for _, c := range []struct{ place, want string }{{"eu-west", "eu-west/eu1 eu-west/g1"}, {"us-east", "eu-west/g1"}, {"", "eu-west/g1"}} {
		records, last, err := readTo(r, "eu-west", gateway.ReadRequest{Topic: "orders", Slot: "eu-west"}, client(c.place))
		if err != nil || bodies(records) != c.want {
			t.Errorf("a reader placed in %q reads %q, %v", c.place, bodies(records), err)
		}
		if want := uint64(2 - len(records)); last.Logs[0].Unreadable != want {
			t.Errorf("a reader placed in %q is told of %d records it may not see, want %d", c.place, last.Logs[0].Unreadable, want)
		}
	}
	if r.region["eu-west"].counts.withheld != 2 {
		t.Errorf("counted %d", r.region["eu-west"].counts.withheld)
	}
}

func TestRD1_ReadersGoOnFromTheirPositionInAnyRegion(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.must("us-east", with(order("global"), fmt.Sprint(i)))
	}
	r.mirror("orders@us-east", "eu-west")
	var got []string
	var position api.Position
	stop := errors.New("stop")
	for n := range 5 { // two at a time, in two regions in turn
		at := []string{"us-east", "eu-west"}[n%2]
		seen := 0
		err := r.region[at].Read(t.Context(), gateway.ReadRequest{Topic: "orders", Position: position, Records: 2}, client(at), func(b gateway.Batch) error {
			for i := range b.Records {
				got = append(got, string(b.Records[i].Item.Record.Body))
			}
			position = b.Position
			if seen += len(b.Records); seen >= 2 {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
	}
	if s := strings.Join(got, ""); s != "0123456789" {
		t.Errorf("read %s", s)
	}
}

func TestReadStartsWhereItIsAsked(t *testing.T) {
	r := newRig(t)
	first := r.must("us-east", with(order("us"), "a"))
	second := r.must("us-east", with(order("us"), "b"))
	third := r.must("us-east", with(order("us"), "c"))
	us := client("us-east")
	for _, c := range []struct {
		name string
		q    gateway.ReadRequest
		want string
	}{
		{"oldest", gateway.ReadRequest{}, "us-east/a us-east/b us-east/c"},
		{"latest", gateway.ReadRequest{Latest: true}, ""},
		{"after an ack", gateway.ReadRequest{Position: first.Position}, "us-east/b us-east/c"},
		{"after the last ack", gateway.ReadRequest{Position: third.Position}, ""},
		{"from a time", gateway.ReadRequest{Time: second.IngestTime}, "us-east/b us-east/c"},
		{"from the future", gateway.ReadRequest{Time: time.Now().Add(time.Hour)}, ""},
		{"one at a time", gateway.ReadRequest{Records: 1, Bytes: 1}, "us-east/a us-east/b us-east/c"},
	} {
		c.q.Topic = "orders"
		if got := bodies(readAll(t, r, "us-east", c.q, us)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// broken is a log whose disk does not answer.
type broken struct{ regions.Log }

func (broken) After(context.Context, time.Time) (uint64, error) {
	return 0, errors.New("no answer")
}

func (broken) Reader(context.Context, uint64) (regions.Reader, error) {
	return nil, errors.New("no answer")
}

// TestRA2_AFailedReadIsNoUnknownOutcome: a read changes nothing, so its failure
// leaves nothing in doubt.
func TestRA2_AFailedReadIsNoUnknownOutcome(t *testing.T) {
	r := newRig(t)
	r.must("us-east", order("us"))
	us := r.region["us-east"]
	logs := us.Config.Logs
	us.Config.Logs = func(topic string) []regions.Log {
		all := logs(topic)
		for i := range all {
			all[i] = broken{all[i]}
		}
		return all
	}
	for name, q := range map[string]gateway.ReadRequest{"by time": {Topic: "orders", Time: time.Now()}, "from the start": {Topic: "orders"}} {
		if _, _, err := readTo(r, "us-east", q, client("us-east")); api.CodeOf(err) != api.NotReady {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unsure is a log whose end is not known.
type unsure struct{ regions.Log }

func (u unsure) Head() regions.Head {
	h := u.Log.Head()
	h.Unsure = true
	return h
}

// TestR14c_AUnionWithoutOneOfItsLogsIsNone: while the end of one log is not known, the union
// is refused, not shown without it, and the refusal names the log; the others are read alone.
func TestR14c_AUnionWithoutOneOfItsLogsIsNone(t *testing.T) {
	r := newRig(t)
	r.must("us-east", with(order("us"), "us1"))
	us := r.region["us-east"]
	logs := us.Config.Logs
	us.Config.Logs = func(topic string) []regions.Log {
		all := logs(topic)
		for i, l := range all {
			if l.ID().Slot == "eu-west" {
				all[i] = unsure{l}
			}
		}
		return all
	}
	_, _, err := readTo(r, "us-east", gateway.ReadRequest{Topic: "orders"}, client("us-east"))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.NotReady || e.Field != "log" || e.Value != "orders@eu-west" || !strings.Contains(e.Hint, "slot") {
		t.Errorf("the union: %v", err)
	}
	if got := bodies(readAll(t, r, "us-east", gateway.ReadRequest{Topic: "orders", Slot: "us-east"}, client("us-east"))); got != "us-east/us1" {
		t.Errorf("one log: %q", got)
	}
}

func TestReadRefusals(t *testing.T) {
	r := newRig(t)
	ack := r.must("us-east", order("us"))
	cursors, err := api.DecodePosition(ack.Position)
	if err != nil {
		t.Fatal(err)
	}
	position := func(change func(*api.Cursor)) api.Position {
		c := cursors[0]
		change(&c)
		return api.EncodePosition([]api.Cursor{c})
	}
	for _, c := range []struct {
		name string
		at   string
		q    gateway.ReadRequest
		code api.Code
	}{
		{"unknown topic", "us-east", gateway.ReadRequest{Topic: "order"}, api.UnknownTopic},
		{"wildcard", "us-east", gateway.ReadRequest{Topic: "*"}, api.BadName},
		{"unknown log", "us-east", gateway.ReadRequest{Topic: "orders", Slot: "mars"}, api.UnknownRegion},
		{"no copy here", "us-east", gateway.ReadRequest{Topic: "health.records", Slot: "eu-west"}, api.BadRequest},
		{"damaged position", "us-east", gateway.ReadRequest{Topic: "orders", Position: ack.Position + "x"}, api.PositionInvalid},
		{"position of another topic", "us-east", gateway.ReadRequest{Topic: "catalog.updates", Position: ack.Position}, api.PositionInvalid},
		{"another incarnation", "us-east", gateway.ReadRequest{Topic: "orders", Position: position(func(c *api.Cursor) { c.Incarnation = "0000" })}, api.PositionInvalid},
		{"beyond the home's disk", "us-east", gateway.ReadRequest{Topic: "orders", Position: position(func(c *api.Cursor) { c.Sequence = 99 })}, api.CursorAhead},
		{"two starts", "us-east", gateway.ReadRequest{Topic: "orders", Latest: true, Position: ack.Position}, api.BadRequest},
		{"too many records", "us-east", gateway.ReadRequest{Topic: "orders", Records: gateway.MaxReadRecords + 1}, api.BadRequest},
		{"too many bytes", "us-east", gateway.ReadRequest{Topic: "orders", Bytes: gateway.MaxReadBytes + 1}, api.BadRequest},
	} {
		_, _, err := readTo(r, c.at, c.q, client(c.at))
		if api.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", c.name, err, c.code)
		}
	}
	// A copy may be behind the position: the reader waits for it there.
	if got := readAll(t, r, "eu-west", gateway.ReadRequest{Topic: "orders", Position: ack.Position}, client("eu-west")); len(got) != 0 {
		t.Errorf("read %d", len(got))
	}
}

// A reader comes back after retention has taken what it had not read: its position still counts,
// it is told how many are gone, and goes on with the oldest record that is there.
func TestRT7_Decision7_ExpiredRecordsAreCounted(t *testing.T) {
	r := newRig(t)
	id := logID(t, "orders@ap-south")
	to := r.region["eu-west"].copies[id]
	rec := with(order("global"), "kept")
	rec.ID = "kept"
	items := []regions.Item{
		{Sequence: 40, Time: time.Now(), Epoch: api.StaticEpoch("ap-south"), Term: 1, Gap: &regions.Gap{Kind: regions.Expired, From: 1, To: 40}},
		{Sequence: 41, Time: time.Now(), Epoch: api.StaticEpoch("ap-south"), Term: 1, Record: rec},
	}
	if _, err := to.Apply(t.Context(), "abcd", items); err != nil {
		t.Fatal(err)
	}
	position := api.EncodePosition([]api.Cursor{{Log: id, Incarnation: "abcd", Epoch: api.StaticEpoch("ap-south"), Sequence: 5}})
	records, last, err := readTo(r, "eu-west", gateway.ReadRequest{Topic: "orders", Slot: "ap-south", Position: position}, client("eu-west"))
	if err != nil || bodies(records) != "ap-south/kept" || last.Logs[0].Expired == 0 || last.Logs[0].Cursor != 41 {
		t.Errorf("%q %+v %v", bodies(records), last.Logs, err)
	}
}

// A reader that was in an epoch which lost a contest goes back to where both sides had the
// same, and is given what the winner wrote from there.
func TestR14g_ReaderOfALostEpochGoesBack(t *testing.T) {
	won, lost := api.StaticEpoch("ap-south"), api.Epoch{Term: 1, Counter: 9, Issuer: "lost"}
	r := newRig(t, func(c *gateway.Config) {
		c.EpochEnd = func(_ api.LogID, e api.Epoch) (uint64, bool) { return 2, e == lost }
	})
	id := logID(t, "orders@ap-south")
	var items []regions.Item
	for i := range 6 {
		rec := with(order("global"), fmt.Sprint(i+1))
		rec.ID = fmt.Sprint("id-", i+1)
		items = append(items, regions.Item{Sequence: uint64(i + 1), Time: time.Now(), Epoch: won, Term: 1, Record: rec})
	}
	if _, err := r.region["eu-west"].copies[id].Apply(t.Context(), "abcd", items); err != nil {
		t.Fatal(err)
	}
	position := api.EncodePosition([]api.Cursor{{Log: id, Incarnation: "abcd", Epoch: lost, Sequence: 5}})
	records, last, err := readTo(r, "eu-west", gateway.ReadRequest{Topic: "orders", Slot: "ap-south", Position: position}, client("eu-west"))
	if err != nil || len(records) != 4 || records[0].Item.Record.ID != "id-3" || last.Logs[0].Diverged != 3 {
		t.Errorf("%d records, %+v %v", len(records), last.Logs, err)
	}
}

// follow reads with Follow on a goroutine of its own.
func follow(t *testing.T, r *rig, at string, q gateway.ReadRequest) (batches chan gateway.Batch, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	batches, ended = make(chan gateway.Batch, 100), make(chan error, 1)
	q.Follow = true
	go func() {
		ended <- r.region[at].Read(ctx, q, client(at), func(b gateway.Batch) error {
			select {
			case batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		for range ended {
		}
	})
	return batches, ended
}

// await returns the first batch that fits.
func await(t *testing.T, batches chan gateway.Batch, what string, fits func(gateway.Batch) bool) gateway.Batch {
	t.Helper()
	deadline := time.After(wait)
	for {
		select {
		case b := <-batches:
			if fits(b) {
				return b
			}
		case <-deadline:
			t.Fatalf("never came: %s", what)
		}
	}
}

func holding(body string) func(gateway.Batch) bool {
	return func(b gateway.Batch) bool { return strings.Contains(bodies(b.Records), body) }
}

func TestR14d_FollowersLearnTheStateAlsoWhileNothingMoves(t *testing.T) {
	r := newRig(t)
	batches, _ := follow(t, r, "us-east", gateway.ReadRequest{Topic: "orders", Latest: true})
	for range 3 {
		b := await(t, batches, "a batch without records", func(b gateway.Batch) bool { return len(b.Records) == 0 })
		if len(b.Logs) != 3 || b.Position == "" {
			t.Fatalf("%+v", b)
		}
	}
	r.must("us-east", with(order("us"), "new"))
	await(t, batches, "the new record", holding("us-east/new"))
	r.must("eu-west", with(order("global"), "far"))
	r.mirror("orders@eu-west", "us-east")
	await(t, batches, "the mirrored record", holding("eu-west/far"))
}

// lose cuts the link to a region and says how old the copy of its log is.
func (r *rig) lose(at, home, log string, staleness time.Duration, known bool) {
	r.region[at].links.set(home, down)
	id := logID(r.t, log)
	r.region[at].lags[id] = regions.Lag{Log: id, Home: home, Target: at, State: regions.LagLinkDown, Staleness: staleness, StalenessKnown: known}
}

func TestR14e_OnHomeLossIsObeyed(t *testing.T) {
	r := newRig(t)
	r.must("eu-west", with(order("global"), "order"))
	r.must("eu-west", with(catalogue(), "price"))
	r.must("us-east", with(order("us"), "own"))
	r.mirror("orders@eu-west", "us-east")
	r.mirror("catalog.updates@home", "us-east")

	// orders: consumers wait. Its other logs go on; the lost one comes back by itself.
	r.lose("us-east", "eu-west", "orders@eu-west", 0, false)
	batches, _ := follow(t, r, "us-east", gateway.ReadRequest{Topic: "orders"})
	b := await(t, batches, "the region's own log", holding("us-east/own"))
	if strings.Contains(bodies(b.Records), "eu-west/order") {
		t.Error("a reader that waits was given the copy")
	}
	var e *api.Error
	_, _, err := readTo(r, "us-east", gateway.ReadRequest{Topic: "orders"}, client("us-east"))
	if !errors.As(err, &e) || e.Code != api.HomeUnreachable || e.Region != "eu-west" || e.For < 50*time.Second {
		t.Errorf("a read that does not follow: %v", err)
	}
	r.region["us-east"].links.set("eu-west", up)
	await(t, batches, "the log that was lost", holding("eu-west/order"))

	// catalog.updates: a copy of at most an hour.
	q := gateway.ReadRequest{Topic: "catalog.updates"}
	r.lose("us-east", "eu-west", "catalog.updates@home", 59*time.Minute, true)
	if got := bodies(readAll(t, r, "us-east", q, client("us-east"))); got != "home/price" {
		t.Errorf("a fresh copy: %q", got)
	}
	for _, known := range []bool{true, false} {
		r.lose("us-east", "eu-west", "catalog.updates@home", 61*time.Minute, known)
		_, _, err = readTo(r, "us-east", q, client("us-east"))
		topic, _ := r.federation.Topic("catalog.updates")
		if !errors.As(err, &e) || e.Code != api.HomeLost || !strings.Contains(e.Hint, topic.OnHomeLoss.Text) || !strings.Contains(e.Hint, topic.OnHomeLoss.Owner) {
			t.Errorf("a copy too old (known: %v): %v", known, err)
		}
	}
	// The home itself reads on whatever happens to its links.
	r.region["eu-west"].links.set("us-east", down)
	r.region["eu-west"].links.set("ap-south", down)
	if got := bodies(readAll(t, r, "eu-west", q, client("eu-west"))); got != "home/price" {
		t.Errorf("at home: %q", got)
	}
}

func TestR14e_StopStopsReaders(t *testing.T) {
	manifest := other(t, "consumers: {mode: wait}", "consumers: {mode: stop}")
	r := newRig(t, func(c *gateway.Config) { c.Federation, c.Placement = manifest, manifest })
	r.must("us-east", with(order("us"), "own"))
	r.region["us-east"].links.set("eu-west", down)
	if _, _, err := readTo(r, "us-east", gateway.ReadRequest{Topic: "orders"}, client("us-east")); api.CodeOf(err) != api.HomeLost {
		t.Errorf("got %v", err)
	}
	if got := bodies(readAll(t, r, "us-east", gateway.ReadRequest{Topic: "orders", Slot: "us-east"}, client("us-east"))); got != "us-east/own" {
		t.Errorf("the log that is not lost: %q", got)
	}
}

// TestR14b_AReaderIsJudgedAgainAfterAFlip: what may be read changes while a reader
// follows.
func TestR14b_AReaderIsJudgedAgainAfterAFlip(t *testing.T) {
	r := newRig(t)
	batches, _ := follow(t, r, "us-east", gateway.ReadRequest{Topic: "orders"})
	r.must("us-east", with(order("us"), "before"))
	await(t, batches, "the record before the flip", holding("before"))
	r.must("eu-west", with(order("global"), "after")) // admitted under the old policy, at another region
	if err := r.region["us-east"].gate.Activate(t.Context(), r.policies.none); err != nil {
		t.Fatal(err)
	}
	r.mirror("orders@eu-west", "us-east")
	b := await(t, batches, "the count of what may not be read", func(b gateway.Batch) bool {
		for _, s := range b.Logs {
			if s.Unreadable == 1 {
				return true
			}
		}
		return false
	})
	if len(b.Records) != 0 {
		t.Errorf("read %q", bodies(b.Records))
	}
}

// TestR14b_ASlowReaderDoesNotHoldAFlip: a reader that takes nothing keeps its pass
// for a moment only.
func TestR14b_ASlowReaderDoesNotHoldAFlip(t *testing.T) {
	r := newRig(t)
	r.must("us-east", order("us"))
	release, ended := make(chan struct{}), make(chan error, 1)
	reading := make(chan struct{})
	go func() {
		ended <- r.region["us-east"].Read(context.Background(), gateway.ReadRequest{Topic: "orders"}, client("us-east"), func(gateway.Batch) error {
			close(reading)
			<-release
			return errors.New("gone")
		})
	}()
	<-reading
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := r.region["us-east"].gate.Activate(ctx, r.policies.next); err != nil {
		t.Error(err)
	}
	close(release)
	<-ended
}

func TestReadEndsWhenThePolicyIsGone(t *testing.T) {
	r := newRig(t)
	r.must("us-east", order("us"))
	gone := policy.NewGate(r.federation, "us-east", policy.Hooks{})
	r.region["us-east"].Config.Gate = gone
	if _, _, err := readTo(r, "us-east", gateway.ReadRequest{Topic: "orders"}, client("us-east")); api.CodeOf(err) != api.PolicyUnavailable {
		t.Errorf("records were skipped instead: %v", err)
	}
}

// TestFollowersFindCopiesThatOpenLater: a copy may come into being while a reader
// follows.
func TestFollowersFindCopiesThatOpenLater(t *testing.T) {
	id := logID(t, "orders@eu-west")
	store := fabrictest.Open(t)
	late, err := store.Copy(t.Context(), fabric.LogConfig{ID: id, MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	r := newRig(t, func(c *gateway.Config) {
		if c.Self == "us-east" {
			c.Logs = func(string) []regions.Log {
				select {
				case <-opened:
					return []regions.Log{late}
				default:
					return nil
				}
			}
		}
	})
	r.must("eu-west", with(order("global"), "first"))
	batches, _ := follow(t, r, "us-east", gateway.ReadRequest{Topic: "orders", Latest: true})
	await(t, batches, "a batch of nothing", func(b gateway.Batch) bool { return len(b.Logs) == 0 })
	close(opened)
	r.region["us-east"].copies[id] = late
	await(t, batches, "the copy", func(b gateway.Batch) bool { return len(b.Logs) == 1 })
	r.mirror("orders@eu-west", "us-east")
	await(t, batches, "its record", holding("eu-west/first"))
}
