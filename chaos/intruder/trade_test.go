package intruder_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// trade is what honest producers do all the while: one at each honest door whose records rest
// with honest regions, and one whose records are the liar's.
type trade struct {
	world *world
	book  ledger.Book
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu     sync.Mutex
	latest map[string]time.Time // region → begin of the last record that was acknowledged
	told   map[string]string    // region → the last answer that was no ack
	wrong  []string             // acks that can't be true
}

// every is the pause of a producer between two records.
const every = 15 * time.Millisecond

// patience is how long a producer waits for the liar's answer.
const patience = time.Second

func begin(t *testing.T, w *world) *trade {
	p := &trade{world: w, latest: map[string]time.Time{}, told: map[string]string{}}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	for _, name := range honest() {
		p.work.Go(func() { p.produce(name) })
		p.work.Go(func() { p.produceAbroad(name) })
	}
	return p
}

func (p *trade) end() {
	p.stop()
	p.work.Wait()
}

// goods is the i-th record of a region's producer. Those of class catalog are forwarded to
// their home from all regions but that.
func goods(name string, i int) api.Record {
	r := api.Record{Topic: "orders", ID: fmt.Sprintf("%s-%d", name, i), Key: fmt.Sprint(i % 7), Body: fmt.Appendf(nil, "goods %d of %s", i, name)}
	class, residency := "order", "eu"
	switch i % 4 {
	case 1:
		residency = regions.GlobalResidency
	case 2:
		r.Topic, class, residency = "catalog", "catalog", regions.GlobalResidency
	case 3:
		r.Topic, class = "health", "health"
	}
	r.Tags = []api.Tag{{Name: "class", Value: class}, {Name: regions.ResidencyTag, Value: residency}}
	return r
}

func (p *trade) produce(name string) {
	for i := 0; p.ctx.Err() == nil; i++ {
		r := goods(name, i)
		e := ledger.Entry{ID: r.ID, Hash: ledger.Hash(r.Body), Key: r.Key, Topic: r.Topic, Residency: r.Tag(regions.ResidencyTag),
			Size: r.Size(), Asked: name, Rests: honest(), Started: time.Now()}
		ack, err := p.publish(name, r, 10*time.Second)
		e.Answer(ack, err, time.Now())
		p.book.Enter(e)
		p.mu.Lock()
		if err == nil {
			p.latest[name] = e.Started
		} else {
			p.told[name] = err.Error()
		}
		p.mu.Unlock()
		_ = lab.Pass(p.ctx, every)
	}
}

// publish goes on after the trade has ended: a record that was begun gets its answer.
func (p *trade) publish(name string, r api.Record, within time.Duration) (api.Ack, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), within)
	defer cancel()
	return p.world.regions[name].door.Publish(ctx, &r)
}

// produceAbroad publishes what only the liar may hold. Whether it is stored there nobody can
// know; what an ack says of others must be true.
func (p *trade) produceAbroad(name string) {
	for i := 0; p.ctx.Err() == nil; i++ {
		r := goods(name, 0)
		r.ID, r.Tags[1].Value = fmt.Sprintf("abroad-%s-%d", name, i), "us"
		ack, err := p.publish(name, r, patience)
		if err == nil {
			if wrong := impossible(ack, r.ID); wrong != "" {
				p.mu.Lock()
				p.wrong = append(p.wrong, fmt.Sprintf("%s passed on an ack of the liar's whose %s", name, wrong))
				p.mu.Unlock()
			}
		}
		_ = lab.Pass(p.ctx, 10*every)
	}
}

// impossible is what an ack of a record that went to the liar says and can't be so.
func impossible(a api.Ack, id string) string {
	switch {
	case a.ID != id:
		return "id is another record's"
	case a.Log != api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: traitor} || a.Region != traitor:
		return "log is another region's"
	case len(a.Copies) > 0:
		return "copies name honest regions, where nothing of it is"
	case a.Sequence == 0:
		return "sequence is none"
	case a.Durability != api.Disk1:
		return "durability is one that the region has not"
	case a.Position != "":
		return "position is of another log"
	}
	for _, text := range []string{a.Incarnation, a.PolicyRevision, string(a.Durability), a.Epoch.String()} {
		if raw(text) || len(text) > longest {
			return "text was never looked at"
		}
	}
	return ""
}

// after is which honest producers got no ack yet for a record that was begun since.
func (p *trade) after(since time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range honest() {
		if p.latest[name].Before(since) {
			return fmt.Errorf("the door of %s acknowledges nothing, it says %.200s", name, p.told[name])
		}
	}
	return nil
}

func (p *trade) takeWrong() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.wrong)
	wrong := slices.Compact(p.wrong)
	p.wrong = nil
	return wrong
}

// settled holds what producers were told against the stores of the honest regions, which are
// stopped, and looks for what must not be in any store.
func (w *world) settled(ctx context.Context) {
	var shelves []ledger.Shelf
	for _, name := range honest() {
		read, err := lab.Shelves(ctx, w.federation, name, w.regions[name].data())
		if err != nil {
			w.found("the store of %s can't be read: %v", name, err)
			return
		}
		for _, s := range read {
			if home, _, ok := w.federation.Home(logID(s.Log)); ok && home != traitor {
				shelves = append(shelves, s)
				continue
			}
			for _, item := range s.Items {
				if item.Residency != regions.GlobalResidency || raw(item.ID+item.Key) || len(item.ID) > api.MaxID {
					w.found("%s holds of the liar's log %s what it must not take: residency %.20q at %d", name, s.Log, item.Residency, item.Sequence)
					break
				}
			}
		}
	}
	times := map[ledger.Fault]int{}
	for _, b := range ledger.CheckShelves(w.trade.book.Entries(), shelves).Broken {
		if times[b.Fault]++; times[b.Fault] == 1 {
			w.found("%s", b)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(times)) {
		if times[f] > 1 {
			w.found("and %d more: %s", times[f]-1, f)
		}
	}
}

func logID(text string) api.LogID {
	id, _ := api.ParseLogID(text)
	return id
}
