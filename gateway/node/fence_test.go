package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/gateway/node"
	"domicile/policy/bundle"
	"domicile/regions/link"
)

// TestR14b_NothingOlderPassesTheActivationFence floods both regions with orders of two
// classes and has one of them shut for mirrors while they run. Once activate has returned
// no order of that class comes to rest in the other region any more, none that may travel
// is lacking, and no producer was told anything that is not so.
func TestR14b_NothingOlderPassesTheActivationFence(t *testing.T) {
	t.Parallel()
	x := openSigned(t)
	x.activated("eu-west", x.policy(1, false))
	flood := x.flood()
	x.eventually("orders of both regions are on the other side", func() bool {
		return x.foreign("us-east", "eu-west") > 20 && x.foreign("eu-west", "us-east") > 20
	})
	r := x.activated("us-east", x.policy(2, true))
	before := map[string]map[string]bool{"eu-west": x.ids("eu-west"), "us-east": x.ids("us-east")}
	marks := map[string]int64{"eu-west": flood.count("eu-west"), "us-east": flood.count("us-east")}
	x.eventually("the flood goes on", func() bool {
		return flood.count("eu-west") > marks["eu-west"]+50 && flood.count("us-east") > marks["us-east"]+50
	})
	acked := flood.stop()
	if err := x.CaughtUp(t.Context(), time.Now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	x.judge(acked, before)
	t.Logf("%d orders acked, %s", len(acked), r.GetRevision())
}

// judge stops the federation and reads its disks: what is there against what producers
// were told.
func (x *signedLab) judge(acked []string, before map[string]map[string]bool) {
	x.Helper()
	if err := x.Stop(x.Context()); err != nil {
		x.Fatal(err)
	}
	rests, records := map[string]map[string]int{}, 0
	for _, r := range x.Regions() {
		shelves, err := lab.Shelves(x.Context(), x.Federation, r.Name, r.Data())
		if err != nil {
			x.Fatal(err)
		}
		rests[r.Name] = map[string]int{}
		for _, item := range ledger.Items(shelves) {
			rests[r.Name][item.ID]++
			records++
		}
	}
	late, stayed := 0, 0
	for _, id := range acked {
		home, away := "eu-west", "us-east"
		if strings.HasPrefix(id, away) {
			home, away = away, home
		}
		if rests[home][id] != 1 {
			x.Errorf("%s rests %d times at its home", id, rests[home][id])
		}
		switch there := rests[away][id]; {
		case strings.Contains(id, "-a-") && there != 1:
			x.Errorf("%s may travel and rests %d times in %s", id, there, away)
		case strings.Contains(id, "-b-") && there > 0 && !before[away][id]:
			late++
		case strings.Contains(id, "-b-") && there == 0:
			stayed++
		}
	}
	if late > 0 {
		x.Errorf("%d orders came to rest elsewhere under the old policy after activate had returned", late)
	}
	if stayed == 0 || records == 0 {
		x.Error("no order of the class that was shut stayed at home: the flood proves nothing")
	}
}

// flood is producers that publish, in both regions, until they are stopped.
type flood struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
	counts map[string]*atomic.Int64
	mu     sync.Mutex
	acked  []string
}

func (x *signedLab) flood() *flood {
	ctx, cancel := context.WithCancel(x.Context())
	f := &flood{cancel: cancel, counts: map[string]*atomic.Int64{"eu-west": {}, "us-east": {}}}
	for region := range f.counts {
		for _, class := range []string{"a", "b"} {
			for worker := range 2 {
				f.work.Go(func() { f.publish(ctx, x, region, class, worker) })
			}
		}
	}
	x.Cleanup(func() { cancel(); f.work.Wait() })
	return f
}

func (f *flood) publish(ctx context.Context, x *signedLab, region, class string, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%s-%d-%d", region, class, worker, n)
		r := orderIn(class, "global", id)
		_, err := x.doors[region].Publish(context.WithoutCancel(ctx), &r)
		if err != nil {
			x.Errorf("%s: %v", id, err)
			return
		}
		f.counts[region].Add(1)
		f.mu.Lock()
		f.acked = append(f.acked, id)
		f.mu.Unlock()
	}
}

func (f *flood) count(region string) int64 { return f.counts[region].Load() }

func (f *flood) stop() []string {
	f.cancel()
	f.work.Wait()
	return f.acked
}

// foreign is how many orders of another region one serves.
func (x *signedLab) foreign(region, of string) (n int) {
	for id := range x.ids(region) {
		if strings.HasPrefix(id, of) {
			n++
		}
	}
	return n
}

// TestR14b_PolicyComesBeforeRecordsAfterACut: a region that was cut off while a policy was
// activated is named as not confirmed. When the cut heals it has the policy before records
// pass: what waited is judged by it, and none of it is gapped that may travel.
func TestR14b_PolicyComesBeforeRecordsAfterACut(t *testing.T) {
	t.Parallel()
	x := openSigned(t)
	x.activated("eu-west", x.policy(1, false))
	if err := x.Cut("us-east", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		for _, region := range []string{"eu-west", "us-east"} {
			for _, class := range []string{"a", "b"} {
				if err := x.publish(region, class, "global", fmt.Sprintf("%s-%s-%d", region, class, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	x.eventually("eu-west sees the cut", func() bool {
		s, err := x.desks["eu-west"].Status(t.Context())
		return err == nil && s.GetLinks()[0].GetState() == "down"
	})
	r, err := x.activate("eu-west", x.policy(2, true))
	if err != nil || len(r.GetFences()) != 1 || r.GetFences()[0].GetConfirmed() || r.GetFences()[0].GetRegion() != "us-east" {
		t.Fatalf("activated into a cut: %v, %v", r, err)
	}
	if s := x.state("us-east"); s.GetSerial() != 1 {
		t.Fatalf("us-east has serial %d across the cut", s.GetSerial())
	}
	x.Heal()
	x.linked()
	if s := x.state("us-east"); s.GetSerial() != 2 {
		t.Errorf("the link is up, and us-east has serial %d", s.GetSerial())
	}
	x.eventually("eu-west hears it", func() bool { return x.state("eu-west").GetFences()[0].GetConfirmed() })
	if err := x.CaughtUp(t.Context(), time.Now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, region := range []string{"eu-west", "us-east"} {
		for id := range x.ids(region) {
			if !strings.HasPrefix(id, region) && strings.Contains(id, "-b-") {
				t.Errorf("%s came to rest in %s", id, region)
			}
		}
		if n := x.foreign(region, map[string]string{"eu-west": "us-east", "us-east": "eu-west"}[region]); n != 10 {
			t.Errorf("%s has %d of the 10 orders that may travel", region, n)
		}
	}
}

// TestR14b_WhatAnUnconfirmedRegionLetGoIsNotTaken: us-east also asks for carol, who has not
// signed the second policy. It keeps the first and is named; what it lets go under that one
// is refused elsewhere, waits, and is judged anew once carol has signed too.
func TestR14b_WhatAnUnconfirmedRegionLetGoIsNotTaken(t *testing.T) {
	t.Parallel()
	carol, err := bundle.NewSigner("carol")
	if err != nil {
		t.Fatal(err)
	}
	public, err := carol.Public()
	if err != nil {
		t.Fatal(err)
	}
	x := openSigned(t, func(region string, c *node.Config) {
		if region == "us-east" {
			c.Policy.Keys = append(slices.Clip(c.Policy.Keys), bundle.Key{ID: "carol", Role: "security", Public: public})
			c.Policy.Need = append(slices.Clip(c.Policy.Need), bundle.Need{Role: "security", Count: 1})
		}
	})
	x.activated("eu-west", x.bundle(bundle.Manifest{Serial: 1}, signedRules(false), x.anna, x.ben, carol))
	second := bundle.Manifest{Serial: 2, ValidFrom: time.Now()}
	r, err := x.activate("eu-west", x.bundle(second, signedRules(true), x.anna, x.ben))
	if err != nil || r.GetFences()[0].GetConfirmed() || r.GetFences()[0].GetSerial() != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if w := strings.Join(x.state("us-east").GetWarnings(), ""); !strings.Contains(w, "policy 2 of eu-west is not taken here") || !strings.Contains(w, "security") {
		t.Errorf("us-east warns %q", w)
	}
	for i := range 5 {
		if err := errors.Join(x.publish("us-east", "a", "global", fmt.Sprint("us-east-a-", i)), x.publish("us-east", "b", "global", fmt.Sprint("us-east-b-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.publish("us-east", "a", "eu", "forwarded"); api.CodeOf(err) != api.PolicySkew {
		t.Errorf("a forward that the older policy let go: %v", err)
	}
	x.eventually("the flow says why it waits", func() bool {
		s, err := x.desks["us-east"].Status(t.Context())
		return err == nil && strings.Contains(fmt.Sprint(s.GetTroubles()), "POLICY_SKEW")
	})
	if n := x.foreign("eu-west", "us-east"); n != 0 {
		t.Errorf("%d orders of us-east came to rest in eu-west under its older policy", n)
	}
	x.activated("us-east", x.bundle(second, signedRules(true), x.anna, x.ben, carol))
	x.eventually("what may travel arrives", func() bool { return x.foreign("eu-west", "us-east") == 5 })
	if err := x.CaughtUp(t.Context(), time.Now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := x.foreign("eu-west", "us-east"); n != 5 || x.ids("eu-west")["us-east-b-0"] {
		t.Errorf("eu-west has %d orders of us-east", n)
	}
	if err := x.publish("us-east", "a", "eu", "forwarded"); err != nil {
		t.Error(err)
	}
}

// TestR14b_OnePersonGoesBackToWhatAllowsNothingNew: at once where the earlier policy is
// the narrower one, and not where it is the wider one.
func TestR14b_OnePersonGoesBackToWhatAllowsNothingNew(t *testing.T) {
	t.Parallel()
	x := openSigned(t)
	x.activated("eu-west", x.policy(1, true))
	x.activated("eu-west", x.policy(2, false))
	from := time.Unix(0, x.state("eu-west").GetPolicy().GetValidFromUnixNano())
	back := func(serial, to int64, shut bool, by ...*bundle.Signer) []byte {
		return x.bundle(bundle.Manifest{Serial: serial, RollsBackTo: to, ValidFrom: from}, signedRules(shut), by...)
	}
	for name, data := range map[string][]byte{
		"nobody signed": back(3, 1, true), "other files": back(3, 1, false, x.anna), "what was never here": back(8, 7, true, x.anna),
	} {
		if _, err := x.activate("eu-west", data); api.CodeOf(err) != api.PolicyError {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.activated("eu-west", back(3, 1, true, x.anna))
	if s := x.state("us-east"); s.GetSerial() != 3 || s.GetPolicy().GetRollsBackTo() != 1 {
		t.Errorf("us-east: %v", s)
	}
	x.restart("eu-west")
	if s := x.state("eu-west"); s.GetSerial() != 3 {
		t.Fatalf("after a restart: %v", s)
	}
	if _, err := x.activate("eu-west", back(4, 2, false, x.anna)); err == nil || !strings.Contains(err.Error(), "newly allows") {
		t.Errorf("one person widened: %v", err)
	}
	x.activated("eu-west", back(4, 2, false, x.anna, x.ben))
}

// TestR14b_PolicyWhoseTimeIsOverStopsAtTheBorder: mirrors and forwards wait, without a gap;
// what stays in its boundary goes on; the next policy lets go what waited.
func TestR14b_PolicyWhoseTimeIsOverStopsAtTheBorder(t *testing.T) {
	x := openSigned(t)
	now := time.Now().Truncate(time.Second)
	x.activated("eu-west", x.bundle(bundle.Manifest{Serial: 1, ValidFrom: now.Add(-time.Hour), ValidUntil: now.Add(4 * time.Second)}, signedRules(false), x.anna, x.ben))
	if err := errors.Join(x.publish("eu-west", "a", "global", "early"), x.publish("us-east", "a", "eu", "forwarded")); err != nil {
		t.Fatal(err)
	}
	x.eventually("what was in time crosses", func() bool { return x.ids("us-east")["early"] })
	if w := strings.Join(x.state("us-east").GetWarnings(), ""); !strings.Contains(w, "policy 1 ends in") {
		t.Errorf("no warning before the end: %q", w)
	}
	x.eventually("the end", func() bool { return x.state("eu-west").GetLapsed() && x.state("us-east").GetLapsed() })
	if err := errors.Join(x.publish("eu-west", "a", "global", "late"), x.publish("eu-west", "a", "eu", "local")); err != nil {
		t.Errorf("local publishing: %v", err)
	}
	if err := x.publish("us-east", "a", "eu", "abroad"); api.CodeOf(err) != api.PolicyUnavailable || !strings.Contains(err.Error(), "valid until") {
		t.Errorf("an order that would cross the border: %v", err)
	}
	x.restart("us-east")
	if !x.state("us-east").GetLapsed() {
		t.Error("a restart made the policy valid again")
	}
	if err := x.CaughtUp(t.Context(), time.Now(), 300*time.Millisecond); err == nil || x.ids("us-east")["late"] {
		t.Error("a record crossed after the end")
	}
	x.activated("us-east", x.policy(2, false))
	x.eventually("what waited crosses", func() bool { return x.ids("us-east")["late"] })
	if err := x.publish("us-east", "a", "eu", "abroad"); err != nil {
		t.Error(err)
	}
}
