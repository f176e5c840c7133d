package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// Move takes a whole store over into a new, empty one: every log with its incarnation,
// epochs, terms, sequences, ids, times and gaps, under the new store's own id and hash
// key. A node that opens the new store goes on as after an unclean end: each home log
// gets the next writer term, and mirrors elsewhere neither miss nor repeat a record.
//
// It may be cut off at any moment, also by a killed process, and done over: what is
// there already is not copied again. At no moment do both stores open, and until all is
// copied, compared and on disk the old one does.
type Move struct {
	from  Config
	to    []Config
	dirs  []string  // of to, absolute
	old   *Fabric   // nil when it was retired before
	nodes []*Fabric // of the new store, one or three
	fresh *Fabric   // the one of them that writes
	logs  []*passage
}

// MovePlan is what a move is about to do.
type MovePlan struct {
	From, To string   // ids of the two fabrics
	FromDir  string   // of the old store
	Dirs     []string // of the new one
	Logs     int
	Messages uint64 // in all logs, those that were copied before included
	Bytes    int64  // of them, as the broker counts them
	Copied   uint64 // messages that are there from an earlier run of the same move
	Retired  bool   // all is copied and the old store is retired: only the last mark is missing
}

// MoveProgress is how far one log's copying has come.
type MoveProgress struct {
	Log      api.LogID
	Kind     string // "home" or "copy"
	Messages uint64 // copied
	Of       uint64
}

// Moved is one log as both stores hold it.
type Moved struct {
	Log  api.LogID
	Kind string
	Sum
}

// NewMove opens the store at from, which no other process may have open, and makes the
// new one. Nothing is copied before Run. It fails with CONFIG_INVALID when the new
// directory holds anything but an earlier run of this very move, and with STORAGE_FULL
// when its volume lacks room. The caller closes the Move.
func NewMove(ctx context.Context, from Config, to ...Config) (*Move, error) {
	m := &Move{from: from, to: to}
	dirs := []string{from.Dir}
	for _, c := range to {
		if c.Region != from.Region || c.Federation != from.Federation {
			return nil, refuse("region", c.Region, "a store moves within its region and federation: "+from.Region+" of "+from.Federation, nil)
		}
		dirs = append(dirs, c.Dir)
	}
	dirs, err := absolute(dirs)
	if err != nil {
		return nil, err
	}
	m.from.Dir, m.dirs = dirs[0], dirs[1:]
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	return m, nil
}

func (m *Move) open(ctx context.Context) error {
	if mark, err := retiredTo(m.from.Dir); err != nil || mark != nil {
		if err == nil && !belongsTo(mark.Fabric, m.dirs) {
			err = (&identity{Mode: modeRetired, Move: mark}).checkMove(&m.from)
		}
		return err
	}
	var err error
	if m.old, err = Open(ctx, m.from); err != nil {
		return err
	}
	arrival := &moveMark{Fabric: m.old.ID(), Dirs: []string{m.from.Dir}, At: m.old.cfg.Clock.Now().UTC(), Ends: map[string]streamEnds{}}
	for _, stream := range slices.Sorted(maps.Keys(m.old.known)) {
		if m.old.known[stream].State != "" {
			continue // deleted: there is nothing but its entry
		}
		p, err := m.old.passageOf(ctx, stream)
		if err != nil {
			return err
		}
		arrival.Ends[stream] = streamEnds{p.first, p.last}
		m.logs = append(m.logs, p)
	}
	if err := m.checkSpace(m.Plan().Bytes); err != nil {
		return err
	}
	for i := range m.to {
		m.to[i].arrival = arrival
	}
	if err := m.gather(ctx); err != nil {
		return err
	}
	for _, p := range m.logs {
		if err := p.land(ctx, m.fresh, m.nodes); err != nil {
			return err
		}
	}
	return m.remember()
}

// remember enters in the new store's list the logs that were deleted from the old one.
func (m *Move) remember() error {
	for _, stream := range slices.Sorted(maps.Keys(m.old.known)) {
		if e := m.old.known[stream]; e.State != "" {
			if err := m.fresh.enter(stream, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// Plan is what Run is about to do.
func (m *Move) Plan() MovePlan {
	plan := MovePlan{FromDir: m.from.Dir, Dirs: m.dirs, Logs: len(m.logs), Retired: m.old == nil}
	if m.old != nil {
		plan.From = m.old.ID()
	}
	if m.fresh != nil {
		plan.To = m.fresh.ID()
	}
	for _, p := range m.logs {
		plan.Messages += p.live
		plan.Bytes += p.bytes
		plan.Copied += p.copied
	}
	return plan
}

// Run copies what is missing, compares both stores record by record, and only then
// retires the old one and lets the new one open. tell is called after each batch, from
// this goroutine. After an error, or a kill, the same move can be made and run again.
func (m *Move) Run(ctx context.Context, tell func(MoveProgress)) ([]Moved, error) {
	if m.old == nil {
		return nil, m.settle()
	}
	for _, p := range m.logs {
		if err := p.copy(ctx, tell); err != nil {
			return nil, fmt.Errorf("move %s: %w", p.from.cfg.ID, err)
		}
	}
	if err := m.fresh.flush(ctx); err != nil {
		return nil, err
	}
	if err := m.caughtUp(ctx); err != nil {
		return nil, err
	}
	m.stage("copied")
	moved, err := m.compare(ctx)
	if err != nil {
		return nil, err
	}
	m.stage("compared")
	return moved, m.cutOver(ctx)
}

func (m *Move) compare(ctx context.Context) ([]Moved, error) {
	var moved []Moved
	for _, p := range m.logs {
		sums, err := p.sums(ctx)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", p.from.cfg.ID, err)
		}
		for _, s := range sums {
			if s != sums[0] {
				return nil, &api.Error{Code: api.StorageFailed, Op: "compare stores", Topic: p.from.cfg.ID.Topic, Field: "log", Value: p.from.cfg.ID.String(),
					Hint: fmt.Sprintf("the copy is not the log: %s there, %s here; the old store stays as it is: remove what is new and begin again", sums[0], s)}
			}
		}
		moved = append(moved, Moved{Log: p.from.cfg.ID, Kind: p.from.kind, Sum: sums[0]})
	}
	return moved, nil
}

// cutOver ends the old store's life and begins the new one's, in the order in which a
// kill leaves at most one of them that opens.
func (m *Move) cutOver(ctx context.Context) error {
	if err := m.closeNodes(ctx); err != nil {
		return err
	}
	m.stage("complete")
	if err := retire(m.from.Dir, m.fresh.ID(), m.dirs, m.old.cfg.Clock.Now().UTC()); err != nil {
		return fmt.Errorf("retire the old store: %w", err)
	}
	m.stage("retired")
	return m.settle()
}

// settle lets the new store open. The old one is retired.
func (m *Move) settle() error {
	for _, dir := range m.dirs {
		if err := arrived(dir); err != nil {
			return fmt.Errorf("open the new store: %w", err)
		}
	}
	return nil
}

func (m *Move) stage(name string) {
	if h := m.from.Hooks.Step; h != nil {
		h(name)
	}
}

// Close lets go of both stores. What Run did stays.
func (m *Move) Close(ctx context.Context) error {
	err := m.closeNodes(ctx)
	if m.old != nil {
		err = errors.Join(err, m.old.Close(ctx))
	}
	return err
}

// passageOf looks at one log of the old store.
func (f *Fabric) passageOf(ctx context.Context, stream string) (*passage, error) {
	e := f.known[stream]
	id, err := api.ParseLogID(e.Log)
	if err != nil {
		return nil, refuse("logs", e.Log, "the list of logs is damaged: restore the data directory from a backup", err)
	}
	l := newStore(f, LogConfig{ID: id}, e.Kind, stream)
	l.incarnation = e.Incarnation
	if l.admin, err = f.broker.js.Stream(ctx, stream); err != nil {
		return nil, fmt.Errorf("open %s: %w", id, err)
	}
	if err := l.settleKind(ctx); err != nil {
		return nil, err
	}
	info, err := l.admin.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, fmt.Errorf("read state of %s: %w", id, err)
	}
	s := info.State
	p := &passage{from: l, notes: info.Config.Metadata, first: max(s.FirstSeq, 1), last: s.LastSeq, bytes: int64(s.Bytes)}
	p.deleted = slices.DeleteFunc(s.Deleted, func(seq uint64) bool { return seq < p.first || seq > p.last })
	slices.Sort(p.deleted)
	p.live = p.last + 1 - min(p.first, p.last+1) - uint64(len(p.deleted)) // also what the broker no longer reads
	return p, nil
}
