package fabric

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
)

// verifyRate is how many bytes per second an audit reads, at pace 1, so that it leaves
// most of a disk to those who publish.
const verifyRate = 64 << 20

// Verified is what an audit found in a log. Nothing of any record is in it.
type Verified struct {
	Log         api.LogID
	From, To    uint64  // sequences looked at; To 0: the log is empty
	Records     uint64  // data records read and believed: Checked + WithoutSum
	Checked     uint64  // those that match their checksum
	WithoutSum  uint64  // those of store format 1: only the body was held against its hash
	Damaged     uint64  // sequences whose records are damaged or missing
	Ranges      []Range // of those, the first thousand
	DamageKnown bool    // Ranges is all of it
	Markers     uint64  // the store's own messages that are damaged or missing, as far as they can be told from records

	unplaced uint64 // damaged messages, of which it is not known yet whether they were records
	Node     string // of a quorum region: whose disk was read
	Stopped  string // of a replica: why it was not read to its end; "": it was
	// Replicas is, of a quorum region, what the disks of the other nodes hold, each under
	// its Node. It is held against what this node read.
	Replicas []Verified
}

// Verify reads a whole log from the disk and holds every record against its checksum, at
// most 64 MiB a second; of a quorum region on each node's own disk. What it finds damaged is in Health too from then on. It ends
// early, with an error, when ctx ends or a file can't be read.
func (f *Fabric) Verify(ctx context.Context, id api.LogID) (Verified, error) {
	v := Verified{Log: id, DamageKnown: true}
	l, err := f.opened(id, "verify")
	if err != nil {
		return v, err
	}
	d := l.durableEnd()
	l.mu.Lock()
	v.From, v.To = max(l.first, 1), d.Sequence
	l.mu.Unlock()
	if c := f.cfg.Cluster; c != nil {
		v.Node, v.Replicas = c.Node, f.replicaAudits()
		for i := range v.Replicas {
			v.Replicas[i].Log, v.Replicas[i].From, v.Replicas[i].To = id, v.From, v.To
		}
	}
	r := &reader{l: l, after: v.From - 1, broker: max(l.front.Load(), 1)}
	for r.broker <= d.broker {
		size, err := v.step(ctx, r, d.broker)
		if err != nil {
			return v, err
		}
		if err := f.rest(ctx, time.Duration(size)*time.Second/verifyRate); err != nil {
			return v, err
		}
	}
	if r.after < d.Sequence {
		for _, it := range r.missing(d.Sequence, regions.Item{}) {
			v.count(it, nil)
		}
	}
	v.place()
	v.tellDamaged(ctx, l)
	return v, nil
}

// step looks at one read's worth and says how many bytes that was.
func (v *Verified) step(ctx context.Context, r *reader, to uint64) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.l.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	got, err := r.l.readUpTo(ctx, r.broker, to, readMessages, readBytes)
	if err != nil {
		return 0, err
	}
	if n := len(got); n > 0 { // what lies before is deleted, perhaps not yet at a sibling
		v.auditReplicas(ctx, r.l, got, got[0].broker, min(to, got[n-1].broker))
	}
	if len(got) == 0 {
		r.broker = to + 1
	}
	for _, m := range got {
		r.broker = m.broker + 1
		size += m.stored
		if m.broker > to {
			break
		}
		v.unplaced += m.lost
		for _, it := range r.items(m) {
			v.count(it, m)
			if it.Gap == nil || it.Gap == m.item.Gap {
				v.place()
			}
			r.after = it.Sequence
		}
	}
	return size, nil
}

func (v *Verified) count(it regions.Item, m *message) {
	switch {
	case it.Gap != nil && it.Gap.Kind == regions.Damaged && (m == nil || it.Gap != m.item.Gap):
		v.lose(Range{it.Gap.From, it.Gap.To})
		v.unplaced -= min(v.unplaced, it.Gap.Count())
	case it.Gap != nil:
	case m.checked == sumGood:
		v.Records, v.Checked = v.Records+1, v.Checked+1
	default:
		v.Records, v.WithoutSum = v.Records+1, v.WithoutSum+1
	}
}

// place counts the damaged messages that left no sequence out: they were the store's own.
func (v *Verified) place() { v.Markers, v.unplaced = v.Markers+v.unplaced, 0 }

// lose counts sequences that are not there as they were stored; ranges come in order.
func (v *Verified) lose(r Range) {
	v.Damaged += r.To - r.From + 1
	if n := len(v.Ranges); n > 0 && v.Ranges[n-1].To+1 == r.From {
		v.Ranges[n-1].To = r.To
		return
	}
	if v.DamageKnown = v.DamageKnown && len(v.Ranges) < maxRanges; v.DamageKnown {
		v.Ranges = append(v.Ranges, r)
	}
}

// rest waits for d at the fabric's pace, or until someone ends it.
func (f *Fabric) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(f.cfg.Pace.Of(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.ctx.Done():
		return shuttingDown()
	}
}
