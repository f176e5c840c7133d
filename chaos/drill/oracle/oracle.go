package oracle

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/drill/history"
)

// Region is one region as the oracle reaches it.
type Region struct {
	Name  string
	Place string         // the boundary that the door's certificate puts readers in; "": none
	Door  *client.Client // with one attempt, so that every answer is seen as it was given; nil: nothing is published or read there
	Admin *client.Client // nil: not asked
}

// Feed is one producer: a steady row of records of one kind at one region's door.
type Feed struct {
	Region    string // whose door is asked
	Topic     string
	Tags      []api.Tag // all that the topic's policy wants, the residency among them
	Residency string    // history.Global or a boundary, as in Tags
	Rate      int       // records a second
	Size      int       // bytes of each body; 0: 256
}

func (f *Feed) name() string { return f.Region + "/" + f.Topic + "/" + f.Residency }

// Config says whom to ask and what to publish.
type Config struct {
	History *history.Writer
	Plan    *history.Plan
	Regions []Region
	Feeds   []Feed
	// Every is the time between two questions to a region for its lags and links; 0: 500 ms.
	Every time.Duration
	// Patience bounds the wait for one answer; 0: 5 s.
	Patience time.Duration
}

const (
	usualEvery    = 500 * time.Millisecond
	usualPatience = 5 * time.Second
	usualSize     = 256
	flushEvery    = 100 * time.Millisecond
	// maxRecords bounds what one producer makes in a drill: the rest of its memory is one
	// bit per record and region.
	maxRecords = 50_000_000
	// maxUnknown bounds the unknown outcomes that are kept to be asked again.
	maxUnknown = 100_000
)

// Oracle watches a federation from Start to Close.
type Oracle struct {
	config Config
	run    string // begins every record's id
	secret []byte // that bodies are made from
	cancel context.CancelFunc
	work   sync.WaitGroup

	spans     latencies
	producers []*producer
	byName    map[string]*producer // by what its ids begin with

	mu     sync.Mutex
	failed error // the first error of the history
}

// Start begins to publish, to read and to ask. It returns at once; what can't be reached
// is noted as what it is. Close ends it.
func Start(ctx context.Context, c Config) (*Oracle, error) {
	c.Every, c.Patience = cmp.Or(c.Every, usualEvery), cmp.Or(c.Patience, usualPatience)
	o := &Oracle{config: c, run: "drill-" + strings.ToLower(rand.Text()[:16]), secret: []byte(rand.Text()), byName: map[string]*producer{}}
	ctx, o.cancel = context.WithCancel(ctx)
	doors := map[string]*client.Client{}
	for _, r := range c.Regions {
		if r.Door != nil {
			doors[r.Name] = r.Door
		}
	}
	topics := map[string]bool{}
	for i, f := range c.Feeds {
		door := doors[f.Region]
		if door == nil || f.Rate < 1 {
			o.cancel()
			return nil, fmt.Errorf("feed %s: no door of that region, or no rate", f.name())
		}
		o.add(fmt.Sprintf("%s-%02x", o.run, i), f, door)
		topics[f.Topic] = true
	}
	for _, p := range o.producers {
		o.work.Go(func() { p.publish(ctx) })
	}
	for _, r := range c.Regions {
		if r.Admin != nil {
			o.work.Go(func() { o.ask(ctx, r) })
		}
		for topic := range topics {
			if r.Door != nil {
				o.work.Go(func() { o.follow(ctx, r, topic) })
			}
		}
	}
	return o, nil
}

func (o *Oracle) add(prefix string, f Feed, door *client.Client) {
	f.Size = cmp.Or(f.Size, usualSize)
	p := &producer{oracle: o, feed: f, prefix: prefix, door: door, pipe: door.NewPublisher(client.Window{}), rows: map[sheet][]history.Row{}, heard: map[string]*marks{}, unknown: map[uint64]api.Record{}}
	o.producers, o.byName[prefix] = append(o.producers, p), p
}

// pause has the producers stop publishing, for good.
func (o *Oracle) pause() {
	for _, p := range o.producers {
		p.paused.Store(true)
	}
}

// Close ends everything and waits for it. Records without an answer by the end of ctx are
// noted as unknown. Its error says that the history is not whole.
func (o *Oracle) Close(ctx context.Context) error {
	o.pause()
	o.cancel()
	o.work.Wait()
	for _, p := range o.producers {
		if err := p.pipe.Close(ctx); err != nil && ctx.Err() == nil {
			o.fail(fmt.Errorf("close the producer %s: %w", p.feed.name(), err))
		}
		p.flush()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

func (o *Oracle) note(e history.Event) {
	if err := o.config.History.Note(e); err != nil {
		o.fail(err)
	}
}

func (o *Oracle) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = errors.Join(o.failed, err)
}

// each calls do at once and then every d until ctx ends.
func each(ctx context.Context, d time.Duration, do func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Mark is what every record of one producer carries in its id, its key and its body, and
// nothing else in the world does.
type Mark struct {
	Text, Residency string
	Records         uint64 // that were acknowledged with it
}

// Marks are those of all producers.
func (o *Oracle) Marks() []Mark {
	var out []Mark
	for _, p := range o.producers {
		m := Mark{Text: p.prefix, Residency: p.feed.Residency}
		p.mu.Lock()
		for _, acked := range p.acked {
			m.Records += acked.count
		}
		p.mu.Unlock()
		out = append(out, m)
	}
	return out
}
