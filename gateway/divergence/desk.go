package divergence

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/loss"
)

// Decision is what people decided about a tail.
type Decision struct {
	How    string // Republished or Discarded
	Who    string
	Reason string
	At     time.Time
}

// The decisions.
const (
	Republished = "republished"
	Discarded   = "discarded"
)

// Tail is what a region holds of a log beyond the end of one epoch.
type Tail struct {
	loss.Tail
	Log         api.LogID
	Incarnation string
	Epoch       api.Epoch
	End         uint64 // of the epoch; 0: the epoch never was the log's
	Decision    *Decision
	Fates       map[loss.Fate]uint64 // of its records
}

// Store is this region's store. It is safe for concurrent use.
type Store interface {
	// Logs lists the open logs that hold anything void.
	Logs() []api.LogID
	// Tails is what an open log holds that is void, oldest first, without the fates.
	Tails(id api.LogID) ([]Tail, error)
	// Void reads the records and gaps of one in order.
	Void(ctx context.Context, id api.LogID, epoch api.Epoch) iter.Seq2[regions.Item, error]
	// Settle puts on record, durably, what was decided about the tail of that hash.
	Settle(ctx context.Context, id api.LogID, epoch api.Epoch, hash string, d Decision) error
	// Key keys the hashes that stand for ids.
	Key(incarnation string) regions.TailKey
}

// Config is what a Desk works with. All of it is required.
type Config struct {
	Self  string // this region
	Store Store
	Dir   string // of the journals
	// Closed tells the authority what became of a tail. It may be told again.
	Closed func(ctx context.Context, t Tail, how string) error
	Clock  regions.Clock
	Pace   regions.Pace
	Logger *slog.Logger
}

// Desk is where operators see and decide about this region's divergences. Safe for
// concurrent use: one decision at a time is carried out.
type Desk struct {
	cfg Config
	one sync.Mutex
}

// New makes a desk, and the folder of its journals.
func New(c Config) (*Desk, error) {
	return &Desk{cfg: c}, regions.MakeFolder(c.Dir)
}

func (d *Desk) journal(t *Tail) string { return filepath.Join(d.cfg.Dir, t.Hash+".jsonl") }

// List is everything void that this region holds of a topic's open logs, or of all.
func (d *Desk) List(topic string) (all []Tail, err error) {
	for _, id := range d.cfg.Store.Logs() {
		if topic != "" && id.Topic != topic {
			continue
		}
		tails, err := d.tails(id)
		if err != nil {
			return nil, err
		}
		all = append(all, tails...)
	}
	return all, nil
}

func (d *Desk) tails(id api.LogID) ([]Tail, error) {
	tails, err := d.cfg.Store.Tails(id)
	for i := range tails {
		o, err := d.outcomes(&tails[i])
		if err != nil {
			return nil, err
		}
		tails[i].Fates = o.count(tails[i].Records, tails[i].discarded())
	}
	return tails, err
}

func (t *Tail) discarded() bool { return t.Decision != nil && t.Decision.How == Discarded }

func (d *Desk) outcomes(t *Tail) (outcomes, error) {
	o, err := loadOutcomes(d.journal(t))
	if err != nil {
		return nil, &api.Error{Code: api.StorageFailed, Op: "read journal", Topic: t.Log.Topic, Region: d.cfg.Self, Err: err, Hint: "look at the folder divergence of the data directory"}
	}
	return o, nil
}

// Find is one tail of a log; the zero epoch stands for the only one.
func (d *Desk) Find(id api.LogID, epoch api.Epoch) (Tail, error) {
	tails, err := d.tails(id)
	if err != nil {
		return Tail{}, err
	}
	bad := func(hint string) (Tail, error) {
		return Tail{}, &api.Error{Code: api.BadRequest, Op: "find divergence", Topic: id.Topic, Region: d.cfg.Self, Field: "epoch", Value: epoch.String(), Hint: hint}
	}
	switch {
	case len(tails) == 0:
		return bad(d.cfg.Self + " holds nothing void of this log: ask the region that was its home")
	case epoch == api.Epoch{} && len(tails) > 1:
		return bad("there are several: name one with --epoch, see domicile divergence ls")
	case epoch == api.Epoch{}:
		return tails[0], nil
	}
	for _, t := range tails {
		if t.Epoch == epoch {
			return t, nil
		}
	}
	return bad("nothing of this epoch is void here: see domicile divergence ls")
}

// Entry is one record of a tail, with what became of it. Its id and content are in Item.
type Entry struct {
	Found loss.Found
	Item  regions.Item
}

// Read gives the records of a tail after a sequence, in order, and ends with the first
// error. Gaps are left out.
func (d *Desk) Read(ctx context.Context, t Tail, after uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		o, err := d.outcomes(&t)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		key := d.cfg.Store.Key(t.Incarnation)
		for it, err := range d.cfg.Store.Void(ctx, t.Log, t.Epoch) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if it.Gap != nil || it.Sequence <= after {
				continue
			}
			if !yield(Entry{Found: found(&it, o.of(it.Sequence), key, t.discarded()), Item: it}, nil) {
				return
			}
		}
	}
}

func found(it *regions.Item, o Outcome, key regions.TailKey, discarded bool) loss.Found {
	h := key.Hash(it.Record.ID)
	f := loss.Found{Record: loss.Record{Sequence: it.Sequence, Hash: hex.EncodeToString(h[:]), Time: it.Time, Bytes: uint32(it.Record.Size())},
		Fate: o.Fate, Code: string(o.Code)}
	if o.At > 0 {
		f.Where = fmt.Sprintf("%s/%d", o.Epoch, o.At)
	}
	if discarded && !o.decided() {
		f.Fate = loss.Discarded
	}
	return f
}

// Report compares the report at the cut with what this region holds.
func (d *Desk) Report(ctx context.Context, t Tail, first loss.Report) (loss.Report, error) {
	in := loss.TruthInput{First: first, By: d.cfg.Self, Now: d.cfg.Clock.Now().UTC().Round(0), Tail: t.Tail}
	for e, err := range d.Read(ctx, t, 0) {
		if err != nil {
			return loss.Report{}, err
		}
		in.Records = append(in.Records, e.Found)
	}
	return loss.Compare(in), nil
}
