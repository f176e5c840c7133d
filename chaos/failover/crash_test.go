package failover

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/invariant"
	told "domicile/chaos/ledger"
	"domicile/regions/placement"
)

// crash is one point of the table: who dies, and when.
type crash struct {
	kind placement.Kind
	role string // home, target, third; leader: of the authority, when the target or the home comes to the point
	at   string
}

// attested is the point of a move for which people sign that its home is stopped, as it is.
const attested = "act attest"

// crashes is the table of steps and roles. Of a forced move the home is killed before it
// begins and comes back when it is over.
func crashes() (all []crash) {
	add := func(kind placement.Kind, role string, points ...string) {
		for _, at := range points {
			all = append(all, crash{kind, role, at})
		}
	}
	add(placement.Planned, "home", "act fence", "step admission stopped", "step fenced", "act prove", "act follow")
	add(placement.Planned, "target", "act study", "act cut", "act freeze", "step copy stopped", "step frozen", "act caughtup", "act flip", "act become", "step epoch opened", "act opened")
	add(placement.Planned, "third", "act learn", "step history learned")
	add(placement.Planned, "leader", "act prove", "act cut", "act flip", "act opened")
	add(placement.Forced, "target", "act study", "act diverge", attested, "act freeze", "step frozen", "act cut", "act frozen", "act flip", "act become", "act opened")
	add(placement.Forced, "third", "act lend", "act learn")
	add(placement.Forced, "home", "act follow", "step history learned")
	add(placement.Forced, "leader", "act flip")
	return all
}

// dying is three regions, each a process of its own, that move a log while producers go on.
type dying struct {
	*testing.T
	*world
	began time.Time

	mu      sync.Mutex
	entries []told.Entry
	acked   int
}

// TestR14f_AKillAtEveryStepOfAMove kills one of three regions, or the leader of the authority,
// with SIGKILL at each step of planned and forced moves, starts it again, and has the move come
// to its end, while producers go on at two doors. What they were told is held against where
// the epochs ended: no two regions acknowledge in one epoch, and every acknowledged record is
// at its place, or void where it was said to be, or stored again. A third of the table is
// played, chosen by DOMICILE_SEED; all of it under DOMICILE_LONG=1.
func TestR14f_AKillAtEveryStepOfAMove(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes again and again: not with -short")
	}
	table := crashes()
	if os.Getenv("DOMICILE_LONG") == "" {
		seed := fnv.New32()
		fmt.Fprint(seed, os.Getenv("DOMICILE_SEED"))
		third := int(seed.Sum32() % 3)
		kept := table[:0:0]
		for i, c := range table {
			if i%3 == third {
				kept = append(kept, c)
			}
		}
		table = kept
		t.Logf("DOMICILE_SEED=%s", os.Getenv("DOMICILE_SEED"))
	}
	d := die(t)
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	d.publish(ctx, &producers, west, "w")
	d.publish(ctx, &producers, east, "e")
	d.more(20)
	home, target := west, east
	for _, c := range table {
		begun := time.Now()
		d.play(c, home, target)
		t.Logf("%5.1f s: %s, %s at %s", time.Since(begun).Seconds(), c.kind, c.role, c.at)
		home, target = target, home
	}
	stop()
	producers.Wait()
	d.judge(home, len(table))
}

func die(t *testing.T) *dying {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w, err := found(t.TempDir(), []string{path, "serve-node"}, west, east, south)
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{T: t, world: w, began: time.Now()}
	t.Cleanup(func() {
		if err := w.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, region := range w.apart {
		if err := w.launch(region); err != nil {
			t.Fatal(err)
		}
	}
	d.settled(west)
	return d
}

func (d *dying) until(what string, ask func() error) {
	d.Helper()
	if err := poll(d.Context(), ask); err != nil {
		for region, p := range d.places {
			text, _ := os.ReadFile(filepath.Join(p.dir, "node.log"))
			d.Logf("%s:\n%s", region, text[max(0, len(text)-6000):])
		}
		d.Fatal(what, ": ", err)
	}
}

// at asks a region where the log is, and who leads the authority.
func (d *dying) at(region string) (*pb.PlacedLog, string, error) {
	c, err := d.desk(region)
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
	defer cancel()
	m, err := c.Placements(ctx, topic, "")
	switch {
	case err != nil:
		return nil, "", err
	case len(m.GetLogs()) != 1:
		return nil, "", fmt.Errorf("%s knows of %d logs", region, len(m.GetLogs()))
	}
	return m.GetLogs()[0], m.GetAuthority().GetLeader(), nil
}

// settled waits until the log is open at a region, by the word of all.
func (d *dying) settled(home string) {
	d.Helper()
	d.until("the log is open in "+home, func() error {
		for _, region := range d.apart {
			l, _, err := d.at(region)
			if err != nil {
				return err
			}
			if l.GetHome() != home || l.GetStatus() != string(placement.Active) {
				return fmt.Errorf("%s says: home %s, %s, step %q", region, l.GetHome(), l.GetStatus(), l.GetMove().GetStep())
			}
		}
		return nil
	})
}

// play moves the log once, with one death on the way.
func (d *dying) play(c crash, home, target string) {
	d.Helper()
	region := map[string]string{"home": home, "target": target, "third": south, "leader": target}[c.role]
	by := target // who is asked to begin it
	if c.kind == placement.Planned && region == target {
		by = home
	}
	if c.kind == placement.Forced {
		if err := d.kill(home); err != nil {
			d.Fatal(err)
		}
		if region == target {
			by = south
		}
	}
	dies := pointOf(d.places[region].config())
	switch {
	case c.role == "leader" && c.at == "act prove":
		region = home
		dies = pointOf(d.places[home].config())
		fallthrough
	case c.role == "leader":
		d.must(dies.ask(standing + c.at))
	default:
		d.must(dies.ask(c.at))
	}
	d.begin(c, by, target)
	switch {
	case c.role == "leader":
		d.behead(dies)
	case c.role == "home" && c.kind == placement.Forced:
		d.until("the new home writes", func() error {
			l, _, err := d.at(south)
			if err == nil && (l.GetHome() != target || l.GetStatus() != string(placement.Active)) {
				err = fmt.Errorf("home %s, %s", l.GetHome(), l.GetStatus())
			}
			return err
		})
		d.must(d.launch(home))
		fallthrough
	default:
		d.died(region)
		d.must(d.launch(region))
	}
	if d.processes[home] == nil {
		d.until("the new home is known", func() error {
			l, _, err := d.at(target)
			if err == nil && l.GetHome() != target {
				err = fmt.Errorf("home %s, %s, step %q", l.GetHome(), l.GetStatus(), l.GetMove().GetStep())
			}
			return err
		})
		d.must(d.launch(home))
	}
	d.settled(target)
	d.more(10)
	if c.kind == placement.Forced {
		d.republish()
	}
}

func (d *dying) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// died waits until a region has killed itself.
func (d *dying) died(region string) {
	d.Helper()
	select {
	case <-d.processes[region].ended:
		delete(d.processes, region)
	case <-time.After(time.Minute):
		d.until(region+" was to die and did not", func() error { return errors.New("it lives") })
	}
}

// behead kills the leader of the authority while a region stands at its point, lets that go on,
// and starts the leader again.
func (d *dying) behead(stands point) {
	d.Helper()
	d.until("somebody stands at the point", func() error { _, err := os.Stat(stands.reached); return err })
	var leader string
	d.until("the leader is known", func() error {
		for _, region := range d.apart {
			if d.processes[region] == nil {
				continue
			}
			_, who, err := d.at(region)
			if leader = who; err == nil && who != "" && d.processes[who] != nil {
				return nil
			}
		}
		return fmt.Errorf("it is %q", leader)
	})
	d.must(d.kill(leader))
	d.must(stands.forget())
	d.must(d.launch(leader))
}

// begin begins a move, and asks again until it is known to have been begun.
func (d *dying) begin(c crash, by, target string) {
	d.Helper()
	q := &pb.MoveRequest{Topic: topic, Kind: string(c.kind), Target: target}
	if c.kind == placement.Forced {
		span := int64(time.Hour)
		q.AttestStopped = c.at == attested
		q.AcceptSpanNano, q.AcceptDivergence, q.Overrides = &span, !q.AttestStopped, []string{placement.RuleCutFirst, placement.RuleUnknown}
	}
	d.until("the move is begun", func() error {
		ctx, cancel := context.WithTimeout(d.Context(), 20*time.Second)
		defer cancel()
		_, err := d.move(ctx, by, q, "a test")
		if err != nil { // it may have been begun all the same
			if l, _, e := d.at(by); e == nil && (l.GetMove() != nil || l.GetHome() == target) {
				return nil
			}
		}
		return err
	})
}

// republish publishes anew what the forced move left void, in every region that has any.
func (d *dying) republish() {
	d.Helper()
	for _, region := range d.apart {
		d.until("what is void in "+region+" is published anew", func() error {
			c, err := d.desk(region)
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Divergences(d.Context(), &pb.ListDivergencesRequest{})
			if err == nil && !all.GetComplete() {
				err = errors.New("it does not know yet where its epochs ended")
			}
			for _, v := range all.GetDivergences() {
				if err == nil && v.GetSettled() == "" {
					q := &pb.RepublishDivergenceRequest{Topic: topic, Epoch: v.GetEpoch(), Hash: v.GetHash(), Reason: "a test", PrincipalClass: "app"}
					err = c.RepublishDivergence(d.Context(), q, func(*pb.RepublishDivergenceResponse) error { return nil })
				}
			}
			return err
		})
	}
	d.until("nothing void waits", func() error {
		l, _, err := d.at(south)
		for _, tail := range l.GetTails() {
			if tail.GetFate() == string(placement.Kept) {
				err = fmt.Errorf("the tail in %s is open", tail.GetRegion())
			}
		}
		return err
	})
}

// publish sends records at a region's door until ctx ends, one after the other, each again
// under its id until it is acknowledged.
func (d *dying) publish(ctx context.Context, wg *sync.WaitGroup, region, name string) {
	c, err := d.door(region)
	d.must(err)
	wg.Go(func() {
		defer c.Close()
		for i := 0; ctx.Err() == nil; i++ {
			r := record(fmt.Sprintf("%s-%06d", name, i))
			for acked := false; !acked && ctx.Err() == nil; {
				begin := time.Since(d.began)
				try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
				ack, err := c.Publish(try, &r)
				cancel()
				e := told.Entry{ID: r.ID, Begin: begin, End: time.Since(d.began)}
				e.Answer(ack, err, time.Now())
				acked = d.note(e)
			}
		}
	})
}

func (d *dying) note(e told.Entry) (acked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, e)
	if acked = e.Outcome == told.Acked; acked {
		d.acked++
	}
	return acked
}

func (d *dying) more(n int) {
	d.Helper()
	count := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.acked
	}
	want := count() + n
	d.until(fmt.Sprintf("%d more records are acknowledged", n), func() error {
		if have := count(); have < want {
			return fmt.Errorf("%d of %d", have, want)
		}
		return nil
	})
}

// judge holds what producers were told against the log, as each region has it after so many
// moves, and against what is void.
func (d *dying) judge(home string, moves int) {
	placed, _, err := d.at(home)
	d.must(err)
	var ends []invariant.Ended
	for _, e := range placed.GetHistory() {
		forced, diverged := e.GetHow() == string(placement.ByForce) && e.GetProof() != string(placement.Marker), e.GetProof() == string(placement.Diverges)
		ends = append(ends, invariant.Ended{Log: log().String(), Epoch: wire.EpochFromProto(e.GetEpoch()).String(), End: e.GetEnd(), Forced: forced, Overlap: diverged})
	}
	for _, region := range d.apart {
		shelf := told.Shelf{Region: region, Log: log().String(), Home: true}
		d.until(region+" has what the home has", func() error {
			shelf.Items = nil
			c, err := d.door(region)
			if err != nil {
				return err
			}
			defer c.Close()
			err = c.Read(d.Context(), &pb.ReadRequest{Topic: topic}, func(b *pb.ReadResponse) error {
				for _, r := range b.GetRecords() {
					shelf.Items = append(shelf.Items, told.Item{Log: shelf.Log, Sequence: r.GetSequence(), ID: r.GetRecord().GetId()})
				}
				return nil
			})
			if err == nil {
				if v := invariant.Moves(d.entries, ends, []told.Shelf{shelf}, []told.Item{}); len(v) > 0 {
					err = fmt.Errorf("%d claims do not hold, the first: %v", len(v), v[0])
				}
			}
			return err
		})
		ids := map[string]bool{}
		for _, it := range shelf.Items {
			if ids[it.ID] {
				d.Errorf("%s holds %s twice", region, it.ID)
			}
			ids[it.ID] = true
		}
		d.Logf("%s holds %d records of %d acknowledged in %d epochs", region, len(shelf.Items), d.acked, len(ends)+1)
	}
	if len(ends) < moves {
		d.Errorf("%d epochs ended in %d moves", len(ends), moves)
	}
}
