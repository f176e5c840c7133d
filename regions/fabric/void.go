package fabric

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Divergence is what a store holds of an epoch beyond its end. It is void: it stays where
// it is, no reader and no mirror is shown it, and retention leaves it until an operator
// has settled it. Nothing of any record is in it.
type Divergence struct {
	Epoch   api.Epoch   `json:"epoch"`
	End     uint64      `json:"end"`     // of the epoch; 0: the epoch never was the log's
	From    uint64      `json:"from"`    // its first sequence here
	To      uint64      `json:"to"`      // and its last
	Count   uint64      `json:"count"`   // sequences, those of gaps included
	Records uint64      `json:"records"` // data records
	Bytes   int64       `json:"bytes"`   // on disk
	First   time.Time   `json:"first"`   // ingest time of the first record
	Last    time.Time   `json:"last"`    // and of the last
	Hash    string      `json:"hash"`    // under the store's key, over positions, ids, times, tags, headers and bodies, in order
	Settled *Settlement `json:"settled,omitempty"`

	// Back is where the log went on when the divergence was found.
	Back place `json:"back"`
}

type place struct {
	Epoch    api.Epoch `json:"epoch"`
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time,omitzero"`
}

// holds reports whether a place is one of the divergence: this is all that makes a record
// void.
func (d *Divergence) holds(p position) bool { return p.Epoch == d.Epoch && p.Sequence > d.End }

// voidIn is the divergence that a stored message belongs to, nil if it counts.
func (l *store) voidIn(m *message) *Divergence {
	all := l.voids.Load()
	if all == nil || !m.hasPos {
		return nil
	}
	for i := range *all {
		if (*all)[i].holds(m.position) {
			return &(*all)[i]
		}
	}
	return nil
}

func (l *store) isVoid(m *message) bool { return l.voidIn(m) != nil }

// counted is the message as its place in the row of those that count: a void one has the
// place that the log went back to, so that a search by sequence or time never goes astray.
func (l *store) counted(m *message) *message {
	d := l.voidIn(m)
	if d == nil {
		return m
	}
	at := *m
	at.void = true
	at.position.Epoch, at.position.Sequence = d.Back.Epoch, d.Back.Sequence
	at.item.Epoch, at.item.Sequence, at.item.Time, at.item.Gap = d.Back.Epoch, d.Back.Sequence, d.Back.Time, nil
	return &at
}

// Learn gives an open copy the history of its log: from then on Apply goes over the ends
// of the epochs that it tells of. What the copy holds beyond the end of an epoch is void
// from then on, and the cursor goes back to where the log counts; a frozen copy goes on if
// its epoch has ended. All of it is durable when Learn returns, and nothing is changed when
// it fails, or by a history that is older than the one that the copy goes by. A history that
// does not reach the copy's epoch is refused with HISTORY_NEEDED, one that gives an epoch
// another end than an earlier one with CONTESTED.
func (f *Fabric) Learn(ctx context.Context, id api.LogID, history regions.History) error {
	l, err := f.opened(id, "learn history")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(purgeWithin))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.kind != kindCopy {
		return &api.Error{Code: api.BadRequest, Op: "learn history", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(),
			Hint: "the log is a home here: fence it, close it, and open it as a copy with the history"}
	}
	if err := l.learn(ctx, history); err != nil {
		return err
	}
	return l.enroll()
}

// learn is Learn; sweeping is held.
func (l *store) learn(ctx context.Context, h regions.History) error {
	if err := h.Check(); err != nil || len(h) == 0 {
		return refuse("history", l.cfg.ID.String(), "the history of the log is none: ask the authority again", err)
	}
	before, err := l.pause(ctx)
	if err != nil {
		return err
	}
	at := l.durableEnd()
	t, back, err := l.goneBy(ctx, at, h)
	if err == nil && t != nil {
		l.f.step("history judged")
		err = l.forgetPurged(ctx, back.Sequence)
	}
	if err == nil && t != nil {
		err = l.mark(ctx, controlRewind, *t, back)
	}
	if err == nil && t != nil {
		l.f.step("history learned")
		if back.Sequence < at.Sequence {
			l.log.Warn("the log went back to where its epoch ended", "epoch", at.Epoch.String(), "from", at.Sequence, "to", back.Sequence)
		}
	}
	l.resume(before)
	return err
}

// pause refuses batches for a while and waits until what is under way is decided; resume
// takes it back.
func (l *store) pause(ctx context.Context) (before error, err error) {
	l.mu.Lock()
	before = l.refusal
	if l.dead {
		l.mu.Unlock()
		return before, l.f.writingMoves()
	}
	if before == nil {
		l.refusal = &api.Error{Code: api.NotReady, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			RetryAfter: l.f.cfg.Pace.Of(200 * time.Millisecond), Hint: "the copy learns where an epoch ended; ask for the cursor again"}
	}
	l.mu.Unlock()
	if err := l.settled(ctx, "learn history"); err != nil {
		l.resume(before)
		return before, err
	}
	return before, nil
}

func (l *store) resume(before error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch t := l.durable.owner; {
	case l.dead:
	case t != nil && t.State == stateFrozen:
		l.refusal = l.frozen()
	case api.CodeOf(before) == api.Fenced:
		l.refusal = nil
	default:
		l.refusal = before
	}
}

// goneBy is the tenure of a copy that goes by a history, and where the log goes on then;
// nil when it does so already.
func (l *store) goneBy(ctx context.Context, at end, h regions.History) (*Tenure, end, error) {
	var known regions.History
	if at.owner != nil {
		known = at.owner.History
	}
	if h.Last().Compare(known.Last()) < 0 {
		return nil, at, nil // an older word of the authority: the copy goes by a later one
	}
	refused := func(code api.Code, epoch api.Epoch, hint string) error {
		return &api.Error{Code: code, Op: "learn history", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, Field: "epoch", Value: epoch.String(), Hint: hint}
	}
	if epoch, differs := h.Contradicts(known); differs && !h.Overrules(known) {
		return nil, at, refused(api.Contested, epoch, "an earlier history ended the epoch elsewhere: two authorities gave it, which is for a person to resolve")
	}
	back, found := at, []Divergence(nil)
	empty := at.Epoch == (api.Epoch{})
	switch h.Judge(at.Epoch, at.Sequence) {
	case regions.Unsettled:
		if !empty {
			return nil, at, refused(api.HistoryNeeded, at.Epoch, "the history does not reach the epoch that the log is in here: ask the authority for a newer one")
		}
	case regions.Beyond:
		var err error
		if back, found, err = l.findEnd(ctx, at, h); err != nil {
			return nil, at, err
		}
	}
	t := l.nextTenure(at)
	t.Epoch, t.Incarnation = back.Epoch, back.Incarnation
	t.History = h.From(back.Epoch, maxHistory)
	line, ok := h.Find(back.Epoch)
	if t.State == stateFenced || ok && !line.Open || empty && !h[0].Open {
		t.State = "" // its epoch has ended for everyone
	}
	if len(found) > 0 || back.Sequence < at.Sequence || back.Epoch != at.Epoch {
		t.Rewinds++
		if t.Diverged = append(l.unsettled(t.Diverged), found...); len(t.Diverged) > maxDivergences {
			return nil, at, refused(api.NotReady, at.Epoch, "the log holds as many void ranges as may be kept: settle those first")
		}
	}
	if at.owner != nil && at.owner.Role == kindCopy && at.owner.State == t.State && t.Rewinds == at.owner.Rewinds && slices.Equal(known, t.History) {
		return nil, at, nil
	}
	back.ledger = back.accounted()
	return &t, back, nil
}

// unsettled is the divergences without those that are settled and whose records are gone:
// retention has passed them.
func (l *store) unsettled(all []Divergence) []Divergence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(d Divergence) bool { return l.passed(&d) })
}

// findEnd is the last item that counts by the history, and what lies behind it.
func (l *store) findEnd(ctx context.Context, at end, h regions.History) (back end, found []Divergence, err error) {
	from, _, err := l.find(ctx, at, func(m *message) bool { return h.Judge(m.position.Epoch, m.position.Sequence) == regions.Beyond })
	if err != nil {
		return at, nil, err
	}
	last, err := l.itemBefore(ctx, from)
	if err != nil {
		return at, nil, err
	}
	back = end{owner: at.owner, ledger: at.ledger}
	if last != nil {
		back.position, back.time = last.position, last.item.Time
		back.ledger = upTo(last, at.ledger)
	}
	found, first, err := l.tally(ctx, from, at, h)
	if err != nil {
		return at, nil, err
	}
	if last == nil {
		back = l.beforeAll(back, at, first, h)
	}
	if len(found) == 0 {
		found = append(found, l.vanished(at, back, h))
	}
	for i := range found {
		found[i].Back = place{back.Epoch, back.Sequence, back.time}
	}
	return back, found, nil
}

// vanished is what lay beyond the end of an epoch and was taken by retention or a purge
// before the end was known: nothing of it is stored, and people are told that it was.
func (l *store) vanished(at, back end, h regions.History) Divergence {
	line, _ := h.Find(at.Epoch)
	none := l.f.hash.sum(domainVoid, sha256.New().Sum(nil))
	return Divergence{Epoch: at.Epoch, End: line.End, From: back.Sequence + 1, To: at.Sequence, Count: at.Sequence - back.Sequence,
		First: at.time, Last: at.time, Hash: hex.EncodeToString(none[:])}
}

// beforeAll is where the log counts up to when nothing that counts is stored any more:
// retention took it, or nothing ever counted.
func (l *store) beforeAll(back, at end, first *message, h regions.History) end {
	if len(h) == 0 {
		return back
	}
	// Where not even what is void is stored, the log's end tells what was.
	stored, before, when, ledger := at.position, at.Sequence, at.time, back.ledger
	if first != nil {
		stored, before, when, ledger = first.position, first.firstSequence()-1, first.item.Time, upTo(first, back.ledger)
	}
	back.position = position{Incarnation: stored.Incarnation, Epoch: h[0].Epoch, Term: stored.Term}
	for _, line := range h {
		if fits := line.Epoch.Compare(stored.Epoch) <= 0 && !line.Open && line.End <= before; fits || line.Epoch == stored.Epoch {
			back.Epoch, back.Sequence = line.Epoch, min(line.End, before)
		}
	}
	if back.Sequence == 0 {
		back.ledger = regions.Ledger{}
		return back
	}
	back.time, back.ledger = when, less(ledger, back.Sequence)
	return back
}

// upTo is the ledger behind an item: its own or, behind a home's record, that of the log
// where it ends without the records since, which all were stored here.
func upTo(m *message, at regions.Ledger) regions.Ledger {
	if m.hasLedger {
		return m.ledger
	}
	return less(at, m.position.Sequence)
}

// less takes stored records out of a ledger until it sums up to a sequence.
func less(l regions.Ledger, sequence uint64) regions.Ledger {
	l.Mirrored -= min(l.Mirrored, l.Sum()-min(l.Sum(), sequence))
	return l
}

// tally counts, by epoch, what lies from the broker's sequence from on and does not count.
func (l *store) tally(ctx context.Context, from uint64, at end, h regions.History) (found []Divergence, first *message, err error) {
	sums := map[api.Epoch]hash.Hash{}
	err = l.scanHere(ctx, from, at.broker, func(m *message) error {
		if m.control != "" && m.control != controlGap || l.isVoid(m) {
			return nil
		}
		if h.Judge(m.position.Epoch, m.position.Sequence) != regions.Beyond {
			return &api.Error{Code: api.Contested, Op: "learn history", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, Field: "epoch", Value: m.position.Epoch.String(),
				Hint: "by the history the log would count again behind what is void: two authorities gave it, which is for a person to resolve"}
		}
		if first == nil {
			first = m
		}
		if n := len(found); n == 0 || found[n-1].Epoch != m.position.Epoch {
			line, _ := h.Find(m.position.Epoch)
			found = append(found, Divergence{Epoch: m.position.Epoch, End: line.End, From: max(m.firstSequence(), line.End+1), First: m.item.Time})
			sums[m.position.Epoch] = sha256.New()
		}
		found[len(found)-1].add(m, sums[m.position.Epoch])
		return nil
	})
	for i := range found {
		keyed := l.f.hash.sum(domainVoid, sums[found[i].Epoch].Sum(nil))
		found[i].Hash = hex.EncodeToString(keyed[:])
	}
	return found, first, err
}

func (d *Divergence) add(m *message, h hash.Hash) {
	d.To, d.Last = m.position.Sequence, m.item.Time
	d.Count = d.To - d.From + 1
	d.Bytes += m.stored
	if m.control == "" {
		d.Records++
	}
	new(Sum).add(h, m)
}

// itemBefore is the last item that counts before a broker's sequence; nil: there is none.
func (l *store) itemBefore(ctx context.Context, before uint64) (last *message, err error) {
	for step := uint64(64); last == nil && before > 1; step *= 4 {
		from := before - min(step, before-1)
		err := l.scanHere(ctx, from, before-1, func(m *message) error {
			if (m.control == "" || m.control == controlGap) && !l.isVoid(m) {
				last = m
			}
			return nil
		})
		if err != nil || from <= l.front.Load() {
			return last, err
		}
		before = from
	}
	return last, nil
}

// turn is what an ownership marker changes once it is durable; mu is held.
func (l *store) turn(m *marked) {
	t := m.from.owner
	before := l.voids.Swap(&t.Diverged)
	if m.stays || m.from.Sequence >= l.durable.Sequence {
		return
	}
	if l.rewound++; l.rewound == 1 || m.from.Sequence < l.lowest {
		l.lowest = m.from.Sequence
	}
	for _, d := range t.Diverged {
		if d.To > m.from.Sequence && d.Back.Sequence == m.from.Sequence && d.Settled == nil && !d.among(before) {
			l.records -= min(l.records, d.Records)
		}
	}
	l.first = min(l.first, m.from.Sequence+1)
}

// among: the divergence was known before.
func (d *Divergence) among(before *[]Divergence) bool {
	return before != nil && slices.ContainsFunc(*before, func(b Divergence) bool { return b.Epoch == d.Epoch && b.From == d.From })
}

// counting is how many of the data records that the broker holds are not void.
func (l *store) counting(records uint64) uint64 {
	if all := l.voids.Load(); all != nil {
		for i := range *all {
			if d := &(*all)[i]; !l.passed(d) {
				records -= min(records, d.Records)
			}
		}
	}
	return records
}

// passed: the divergence was settled, and retention took what lies behind it too.
func (l *store) passed(d *Divergence) bool { return d.Settled != nil && l.first > d.Back.Sequence+1 }
