package oracle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/drill/history"
)

// producer publishes one feed's records and notes every answer.
type producer struct {
	oracle *Oracle
	feed   Feed
	prefix string // of its ids
	door   *client.Client
	pipe   *client.Publisher
	paused atomic.Bool
	open   atomic.Int64 // records without an answer

	mu      sync.Mutex
	number  uint64
	rows    map[sheet][]history.Row
	acked   map[string]*marks // by log
	heard   map[string]*marks // by region
	unknown map[uint64]api.Record
}

// sheet is what the rows of one event share.
type sheet struct {
	outcome            history.Answer
	code               api.Code
	log, region, epoch string
	durable            api.Durability
}

// publish sends records at the feed's rate until ctx ends. What a full window or a busy
// machine holds up is not caught up later: the rate is a bound, not a promise.
func (p *producer) publish(ctx context.Context) {
	const beat = 10 * time.Millisecond
	last, owed := p.oracle.config.History.Now(), 0.0
	var flushed time.Duration
	each(ctx, beat, func() {
		now := p.oracle.config.History.Now()
		owed = min(owed+(now-last).Seconds()*float64(p.feed.Rate), float64(p.feed.Rate)*0.1+1)
		last = now
		if p.paused.Load() {
			owed = 0
		}
		for ; owed >= 1 && ctx.Err() == nil; owed-- {
			p.send(ctx)
		}
		if now-flushed >= flushEvery {
			flushed = now
			p.flush()
		}
	})
}

// record is the record with a number; always the same one.
func (p *producer) record(number uint64) api.Record {
	id := p.prefix + "-" + strconv.FormatUint(number, 10)
	return api.Record{ID: id, Topic: p.feed.Topic, Key: p.prefix, Tags: p.feed.Tags, Body: p.oracle.body(id, p.feed.Size)}
}

// body is what a record with this id must hold: nobody who did not write it can guess it.
func (o *Oracle) body(id string, size int) []byte {
	sum := sha256.Sum256(append([]byte(id), o.secret...))
	text := id + " " + hex.EncodeToString(sum[:]) + " "
	return []byte(text + strings.Repeat(".", max(0, size-len(text))))
}

func (p *producer) send(ctx context.Context) {
	p.mu.Lock()
	if p.number >= maxRecords {
		p.mu.Unlock()
		return
	}
	p.number++
	number := p.number
	p.mu.Unlock()
	begin := p.oracle.config.History.Now()
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.oracle.config.Patience)
	r := p.record(number)
	p.open.Add(1)
	p.pipe.Publish(wait, r, func(ack api.Ack, err error) {
		defer p.open.Add(-1)
		defer cancel()
		p.answered(number, begin, r, ack, err)
	})
}

// answered notes what came of a try.
func (p *producer) answered(number uint64, begin time.Duration, r api.Record, ack api.Ack, err error) {
	row := history.Row{Number: number, Begin: begin, End: p.oracle.config.History.Now()}
	var s sheet
	if err == nil {
		s = sheet{outcome: history.Acked, log: ack.Log.String(), region: ack.Region, epoch: ack.Epoch.String(), durable: ack.Durability}
		row.Sequence, row.Repeat = ack.Sequence, ack.Duplicate
		p.oracle.spans.add(took{row.End, row.End - begin})
	} else {
		s = sheet{outcome: history.NotStored, code: api.CodeOf(err)}
		if s.code.Stored() == api.StoredUnknown {
			s.outcome = history.Unknown
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows[s] = append(p.rows[s], row)
	switch s.outcome {
	case history.Acked:
		if p.acked == nil {
			p.acked = map[string]*marks{}
		}
		if p.acked[s.log] == nil {
			p.acked[s.log] = &marks{}
		}
		p.acked[s.log].set(number)
		delete(p.unknown, number)
	case history.Unknown:
		if e, ok := err.(*api.Error); ok {
			r.Retry = api.Retry{Again: true, Log: e.Log}
		}
		if len(p.unknown) < maxUnknown {
			p.unknown[number] = r
		}
	case history.NotStored:
		delete(p.unknown, number)
	}
}

// flush notes the answers that have come.
func (p *producer) flush() {
	p.mu.Lock()
	rows := p.rows
	p.rows = map[sheet][]history.Row{}
	p.mu.Unlock()
	for s, list := range rows {
		for len(list) > 0 {
			n := min(len(list), maxRows)
			p.oracle.note(history.Event{Region: p.feed.Region, Told: &history.Told{
				Producer: p.prefix, Asked: p.feed.Region, Topic: p.feed.Topic, Residency: p.feed.Residency, Size: p.feed.Size,
				Outcome: s.outcome, Code: s.code, Log: s.log, Region: s.region, Epoch: s.epoch, Durable: s.durable, Rows: list[:n],
			}})
			list = list[n:]
		}
	}
}

// maxRows bounds the rows of one event.
const maxRows = 4096

// again sends every record whose outcome nobody knew once more, under the same id, and
// reports whether there are some of which nobody knows it yet.
func (p *producer) again(ctx context.Context) bool {
	p.mu.Lock()
	list := maps.Clone(p.unknown)
	p.mu.Unlock()
	for number, r := range list {
		if ctx.Err() != nil {
			break
		}
		wait, cancel := context.WithTimeout(ctx, p.oracle.config.Patience)
		begin := p.oracle.config.History.Now()
		ack, err := p.door.Publish(wait, &r)
		cancel()
		p.answered(number, begin, r, ack, err)
	}
	p.flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unknown) > 0 && ctx.Err() == nil
}
