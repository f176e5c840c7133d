package placement_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"domicile/regions/placement"
)

// dropped names the rules of the leases that a schedule is played without.
type dropped struct {
	recheck  bool // ask again before the ack
	commit   bool // a renewal is answered once it is committed, not when a leader believes itself one
	fromSend bool // the lease counts from the sending of the renewal
	drift    bool // the leader waits longer than the lease by what clocks may drift
	election bool // a new leader waits the whole time from its election
	boot     bool // time counts while the machine sleeps
	wall     bool // the lease falls when the machine's clocks move apart
	revoke   bool // no renewal covers a log from the beginning of a forced move on
	anew     bool // a forced move counts from its own beginning, not from that of a planned one before it
}

const (
	leaseLength = 20 * time.Second
	never       = time.Hour
)

// schedule is one run of a home A, two leaders in turn, and a target that opens once the
// lapse is proven. All its times are true time; clocks are made of them.
type schedule struct {
	r    *rand.Rand
	drop dropped

	rateA, rateL   float64       // of the boot clocks
	pause, resume  time.Duration // A does nothing in between
	asleep, unseen bool          // monotonic time stands still meanwhile; boot time too
	elected        time.Duration // of the second leader
	planned, began time.Duration // the forced move, and a planned one that was given up for it
	sent, got      [24]time.Duration
	granted        int
	grantor        placement.Grantor
}

func (s *schedule) within(max time.Duration) time.Duration {
	return time.Duration(s.r.Int64N(int64(max)))
}

func (s *schedule) rate() float64 { return 1 + placement.Drift*(2*s.r.Float64()-1) }

// delay is short as a rule, and now and then seconds long.
func (s *schedule) delay() time.Duration {
	if s.r.IntN(8) == 0 {
		return s.within(6 * time.Second)
	}
	return 5*time.Millisecond + s.within(200*time.Millisecond)
}

func (s *schedule) draw() {
	s.rateA, s.rateL = s.rate(), s.rate()
	if s.r.IntN(2) == 0 { // the worst that is allowed
		s.rateA, s.rateL = 1-placement.Drift, 1+placement.Drift
	}
	s.began, s.planned = 8*time.Second+s.within(25*time.Second), never
	if s.r.IntN(2) == 0 {
		s.planned = s.within(s.began)
	}
	s.elected = never
	if s.r.IntN(2) == 0 {
		s.elected = s.within(60 * time.Second)
	}
	s.pause, s.resume, s.asleep, s.unseen = never, never, false, false
	if s.r.IntN(2) == 0 {
		s.pause = s.within(55 * time.Second)
		s.resume = s.pause + s.within(40*time.Second)
		kind := s.r.IntN(3)
		s.asleep, s.unseen = kind > 0, kind == 2
	}
	s.granted = 0
}

// awake moves an act of A out of its pause.
func (s *schedule) awake(t time.Duration) time.Duration {
	if t >= s.pause && t < s.resume {
		return s.resume
	}
	return t
}

// now reads A's clocks. Wall time is right after a pause that the boot clock did not see,
// which is what gives it away; after a sleep that the boot clock did count it lags behind.
func (s *schedule) now(t time.Duration) placement.Instant {
	stood := min(max(0, t-s.pause), s.resume-s.pause)
	boot, wall := t, t
	if s.unseen || s.asleep && s.drop.boot {
		boot -= stood
	}
	if s.asleep && !s.unseen && s.drop.boot {
		wall -= stood
	}
	i := placement.Instant{Boot: time.Duration(float64(boot) * s.rateA), Wall: int64(wall)}
	if s.drop.wall {
		i.Wall = int64(i.Boot)
	}
	return i
}

func (s *schedule) leaderClock(t time.Duration) time.Duration {
	return time.Duration(float64(t) * s.rateL)
}

// renew plays A's renewals and tells the grantor of those that the leader applied. Moves
// begin at their times, and the second leader is elected at its.
func (s *schedule) renew() {
	s.grantor.Elected(0)
	cut := 5*time.Second + s.within(50*time.Second)
	due := events{plan: s.planned, begin: s.began, elect: s.elected}
	var applied [24]time.Duration
	n := 0
	for at := s.within(placement.RenewEvery); at < cut && n < len(s.sent); at += placement.RenewEvery {
		sent := s.awake(at)
		arrived := sent + s.delay()
		commit := arrived + s.within(time.Second)
		if arrived < s.elected && commit >= s.elected {
			continue
		}
		stale := arrived >= s.elected && arrived < s.elected+10*time.Second && s.began > s.elected
		if s.drop.commit && stale && s.r.IntN(2) == 0 { // a leader that is none any more answers all the same
			s.answer(sent, arrived)
			continue
		}
		applied[n] = commit
		n++
		if commit < s.began || s.drop.revoke {
			s.answer(sent, commit)
		}
	}
	for t := range sorted(applied[:n]) {
		s.advance(t, &due)
		s.grantor.Renewed("A", s.leaderClock(t))
	}
	s.advance(never, &due)
}

// events are what is still to happen, and when.
type events [3]time.Duration

const plan, begin, elect = 0, 1, 2

// advance lets what is due before t happen. The home may renew while the planned move waits.
func (s *schedule) advance(t time.Duration, due *events) {
	for {
		next := plan
		for i, at := range due {
			if at < due[next] {
				next = i
			}
		}
		if due[next] >= t || due[next] >= never {
			return
		}
		due[next] = never
		switch next {
		case plan:
			s.grantor.Begun("L", "A")
		case begin:
			if s.drop.anew && s.planned < never {
				continue
			}
			s.grantor.Ended("L")
			s.grantor.Begun("L", "A")
		case elect:
			if _, lapse := s.lapse(s.elected); due[begin] == never && lapse {
				continue // the first leader had proven it before
			}
			s.grantor.Elected(s.electedBy())
		}
	}
}

// electedBy is the new leader's election on its clock; without the rule it counts as if it
// had led for ever and never heard of A.
func (s *schedule) electedBy() time.Duration {
	if s.drop.election {
		return -time.Hour
	}
	return s.leaderClock(s.elected)
}

func sorted(times []time.Duration) func(func(time.Duration) bool) {
	for i := range times {
		for j := i; j > 0 && times[j] < times[j-1]; j-- {
			times[j], times[j-1] = times[j-1], times[j]
		}
	}
	return func(yield func(time.Duration) bool) {
		for _, t := range times {
			if !yield(t) {
				return
			}
		}
	}
}

func (s *schedule) answer(sent, commit time.Duration) {
	if s.granted == len(s.sent) {
		return
	}
	s.sent[s.granted], s.got[s.granted] = sent, s.awake(commit+s.delay())
	s.granted++
}

// lapse is when a leader that asks from t on finds the lease lapsed, and whether that is
// before t.
func (s *schedule) lapse(t time.Duration) (time.Duration, bool) {
	length := leaseLength
	if s.drop.drift { // a wait of exactly the lease
		length = time.Duration(float64(length-placement.Margin) * (1 - placement.Drift) / (1 + placement.Drift))
	}
	left, waited := s.grantor.Remaining("L", length, s.leaderClock(t))
	whole := placement.Wait(length)
	at := t + time.Duration(float64(left)/s.rateL) + 1
	if left == 0 {
		at = t - time.Duration(float64(waited-whole)/s.rateL)
	}
	return max(at, s.began), left == 0
}

func (s *schedule) holds(t time.Duration) bool {
	var l placement.Lease
	var order [24]time.Duration
	copy(order[:], s.got[:s.granted])
	for got := range sorted(order[:s.granted]) {
		if got > t {
			break
		}
		for i := range s.granted {
			if s.got[i] != got {
				continue
			}
			from := s.sent[i]
			if s.drop.fromSend {
				from = got
			}
			l.Grant(1, s.now(from))
		}
	}
	return l.Holds(leaseLength, s.now(t))
}

// overlap plays the schedule and reports whether A acknowledged a record after the target
// had opened.
func (s *schedule) overlap() bool {
	s.draw()
	s.renew()
	from := s.began
	if s.elected < never {
		from = max(from, s.elected)
	}
	opened, _ := s.lapse(from)
	for range 3 {
		check := s.awake(max(0, opened-2*time.Second+s.within(4*time.Second)))
		if s.r.IntN(4) == 0 {
			check = s.awake(s.pause - s.within(50*time.Millisecond)) // stored, then stopped
		}
		ack := s.awake(check + s.within(100*time.Millisecond))
		if ack >= opened && s.holds(check) && (s.drop.recheck || s.holds(ack)) {
			return true
		}
	}
	return false
}

// violations counts the schedules of a seed that overlap; it ends early once it has found
// as many as were asked for.
func violations(seed uint64, schedules, enough int, drop dropped) (found int) {
	s := &schedule{r: rand.New(rand.NewPCG(seed, 7)), drop: drop}
	for range schedules {
		if s.overlap() {
			if found++; found >= enough {
				break
			}
		}
	}
	return found
}

// TestR14g_LeaseRulesHold plays random schedules of renewals, drifting clocks, delays,
// pauses and leader changes against the real lease and grantor.
func TestR14g_LeaseRulesHold(t *testing.T) {
	schedules := 1_000_000
	if testing.Short() || raceDetector {
		schedules = 50_000
	}
	begin := time.Now()
	if n := violations(1, schedules, 1, dropped{}); n > 0 {
		t.Fatal("the old home acknowledged a record after the new one had opened")
	}
	t.Logf("%d schedules in %s", schedules, time.Since(begin).Round(time.Millisecond))
}

// TestR14g_EveryLeaseRuleCounts leaves out one rule at a time: each time the old home
// acknowledges beside the new one.
func TestR14g_EveryLeaseRuleCounts(t *testing.T) {
	for name, drop := range map[string]dropped{
		"re-check before the ack":        {recheck: true},
		"committed renewal":              {commit: true},
		"count from send":                {fromSend: true},
		"drift margin":                   {drift: true},
		"full wait after election":       {election: true},
		"boot clock":                     {boot: true},
		"lease falls when clocks differ": {wall: true},
		"a forced move ends renewals":    {revoke: true},
		"each move counts anew":          {anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			if violations(1, 1_000_000, 1, drop) == 0 {
				t.Fatal("a million schedules without the rule found nothing: the check is blind")
			}
		})
	}
}

func TestR14g_WaitOfTwentySeconds(t *testing.T) {
	if w := placement.Wait(20 * time.Second).Round(100 * time.Millisecond); w != 21400*time.Millisecond {
		t.Fatal(w)
	}
}
