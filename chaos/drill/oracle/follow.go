package oracle

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/drill/history"
)

// early is how far before the drill's first record a reader begins, for clocks that differ.
const early = 30 * time.Second

// follow reads a topic at a region until ctx ends, and goes on where it was when the door
// gives up.
func (o *Oracle) follow(ctx context.Context, r Region, topic string) {
	f := &follower{oracle: o, region: r, topic: topic, last: map[string]spot{}}
	q := &pb.ReadRequest{Topic: topic, Follow: true, From: &pb.ReadRequest_TimeUnixNano{TimeUnixNano: o.config.History.Origin().Add(-early).UnixNano()}}
	for n := 1; ctx.Err() == nil; n++ {
		f.name = fmt.Sprintf("%s/%s#%d", r.Name, topic, n)
		err := r.Door.Read(ctx, q, func(b *pb.ReadResponse) error {
			f.take(b)
			q.From = &pb.ReadRequest_Position{Position: b.GetPosition()}
			return nil
		})
		if ctx.Err() == nil {
			o.note(history.Event{Region: r.Name, Heard: &history.Heard{Reader: f.name, Topic: topic, Place: r.Place, Ended: fmt.Sprint(err)}})
			pass(ctx, o.config.Every)
		}
	}
}

// pass lets d go by, or less when ctx ends.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follower is one reader. One goroutine uses it.
type follower struct {
	oracle *Oracle
	region Region
	topic  string
	name   string
	last   map[string]spot // by log
}

// spot is where a reader is in a log.
type spot struct {
	epoch    string
	sequence uint64
}

// take notes what of a batch is the drill's. What others published is looked at no
// further than at whose it is.
func (f *follower) take(b *pb.ReadResponse) {
	h := &history.Heard{Reader: f.name, Topic: f.topic, Place: f.region.Place}
	for _, r := range b.GetRecords() {
		f.record(h, r)
	}
	if len(h.Runs) > 0 {
		f.oracle.note(history.Event{Region: f.region.Name, Heard: h})
	}
}

func (f *follower) record(h *history.Heard, r *pb.ReadRecord) {
	p, number := f.oracle.whose(r.GetRecord().GetId())
	if p == nil {
		return
	}
	log, epoch := wire.LogFromProto(r.GetLog()).String(), wire.EpochFromProto(r.GetEpoch()).String()
	before := f.last[log]
	if before.epoch == epoch && r.GetSequence() <= before.sequence {
		h.Disordered++
	}
	f.last[log] = spot{epoch, r.GetSequence()}
	if !bytes.Equal(r.GetRecord().GetBody(), f.oracle.body(r.GetRecord().GetId(), p.feed.Size)) {
		h.Altered++
	}
	p.mark(f.region.Name, number)
	if n := len(h.Runs); n > 0 {
		run := &h.Runs[n-1]
		if run.Producer == p.prefix && run.Log == log && run.Epoch == epoch && run.To+1 == number && run.Last < r.GetSequence() {
			run.To, run.Last = number, r.GetSequence()
			return
		}
	}
	h.Runs = append(h.Runs, history.Run{Producer: p.prefix, Residency: p.feed.Residency, Log: log, Epoch: epoch,
		From: number, To: number, First: r.GetSequence(), Last: r.GetSequence()})
}

// whose finds the producer of a record, nil when it is not the drill's.
func (o *Oracle) whose(id string) (*producer, uint64) {
	i := strings.LastIndexByte(id, '-')
	if i < 0 {
		return nil, 0
	}
	p := o.byName[id[:i]]
	n, err := strconv.ParseUint(id[i+1:], 10, 64)
	if p == nil || err != nil || n > maxRecords {
		return nil, 0
	}
	return p, n
}

func (p *producer) mark(region string, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heard[region] == nil {
		p.heard[region] = &marks{}
	}
	p.heard[region].set(number)
}
