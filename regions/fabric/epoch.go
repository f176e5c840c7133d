package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// The kinds of ownership markers. They have a subject of their own, so that the last of
// them is found at once, and each carries all that the ones before it said, as a Tenure in
// its body. A log that never moved has none: its role is the one it was made with.
const (
	controlFence  = "fence"  // the home's epoch ends here
	controlFreeze = "freeze" // the copy takes nothing more of its epoch
	controlEpoch  = "epoch"  // a home opens under another epoch than the log's last
	controlRewind = "rewind" // a copy goes by a history; what lies beyond an end is void
	controlSettle = "settle" // an operator decided about void records
)

// The states of a tenure; "" is one that goes on.
const (
	stateFenced = "fenced"
	stateFrozen = "frozen"
)

// maxHistory and maxDivergences bound what a tenure carries.
const (
	maxHistory     = 64
	maxDivergences = 64
)

// Tenure is what a store knows of a log's ownership: what the log's last ownership marker
// says. It is read only.
type Tenure struct {
	Number      uint64          `json:"number"` // of the marker, from 1
	Role        string          `json:"role"`   // "home" or "copy"
	State       string          `json:"state,omitempty"`
	Incarnation string          `json:"incarnation,omitempty"` // of the log; "": an empty copy
	Epoch       api.Epoch       `json:"epoch"`                 // in which it was written; zero: an empty copy
	Fenced      api.Epoch       `json:"fenced"`                // the last that ended here: nothing of it, or of an earlier one, is appended again
	Cut         *Cut            `json:"cut,omitempty"`         // the last fence or freeze
	NotBefore   time.Time       `json:"not_before,omitzero"`   // no record of a home is stamped before it
	History     regions.History `json:"history,omitempty"`     // of a copy, from its epoch on
	Rewinds     uint64          `json:"rewinds,omitempty"`     // how often the log went back to a cut here
	Diverged    []Divergence    `json:"diverged,omitempty"`
}

// Latest is the latest epoch that the tenure tells of. A word of the authority that knows of
// earlier ones only is older than what the store goes by.
func (t *Tenure) Latest() api.Epoch {
	latest := t.Epoch
	for _, e := range []api.Epoch{t.Fenced, t.History.Last()} {
		if latest.Compare(e) < 0 {
			latest = e
		}
	}
	return latest
}

// Cut is where a log's epoch was ended or frozen.
type Cut struct {
	Op       string    `json:"op"` // the operation that asked for it first
	Epoch    api.Epoch `json:"epoch"`
	Sequence uint64    `json:"sequence"`        // the last before the marker
	Time     time.Time `json:"time,omitzero"`   // ingest time of that record
	Closed   time.Time `json:"closed,omitzero"` // of a fence: no closed instant of this epoch is past it
}

// next is the tenure that follows, for the marker that will carry it. A log's first is
// made from how it was found.
func (l *store) nextTenure(at end) Tenure {
	t := Tenure{Role: l.kind, Incarnation: at.Incarnation, Epoch: at.Epoch}
	if at.owner != nil {
		t = *at.owner
		t.Role = l.kind
		if at.Sequence > 0 {
			t.Incarnation, t.Epoch = at.Incarnation, at.Epoch
		}
	}
	t.Number++
	return t
}

// marked is an ownership marker on its way through a log's writer.
type marked struct {
	control string
	from    end  // where the log goes on, with the tenure; but for the broker's sequence
	stays   bool // it goes on wherever it ends
}

// held is what decides whether a log may be opened, and asked what it is to be opened as.
type held struct {
	role   string
	state  string
	last   api.Epoch // of the log's last record or marker; zero: it has none
	fenced api.Epoch
}

type asked struct {
	role   string
	epoch  api.Epoch // of a home
	sealed bool      // it is to take nothing
	// ended: the history that comes with a copy says that the log's last epoch has ended,
	// or never was the log's.
	ended bool
}

// refusal says why a log may not be opened as is asked; "": it may. A code is with it.
func (h held) refusal(a asked) (api.Code, string) {
	if a.role == kindCopy {
		if h.role == kindHome && h.state != stateFenced && !a.ended {
			return api.ConfigInvalid, "the store holds it as a home, it can't be opened as a copy: fence it first, or give the history that ends its epoch"
		}
		return "", ""
	}
	switch {
	case a.epoch == (api.Epoch{}):
		return api.ConfigInvalid, "a home is opened under an epoch: name the one that the manifest or the authority gives"
	case h.role == kindCopy && h.state != stateFrozen:
		return api.ConfigInvalid, "the store holds it as a copy, it can't be opened as a home: freeze it first, and open it under a new epoch"
	case a.sealed:
		if h.role == kindHome && h.state == stateFenced && a.epoch == h.fenced {
			return "", ""
		}
		return api.StaleEpoch, "the epoch has not ended here, or not as the log's last: there is nothing to seal"
	case h.fenced != (api.Epoch{}) && a.epoch.Compare(h.fenced) <= 0:
		return api.StaleEpoch, fmt.Sprintf("epoch %s ended here for good: open the log as a copy, or under an epoch that the authority gave later", h.fenced)
	case h.last == (api.Epoch{}):
		return "", ""
	case h.role == kindHome && a.epoch == h.last:
		return "", ""
	case a.epoch.Compare(h.last) <= 0:
		return api.StaleEpoch, fmt.Sprintf("the log is in epoch %s already: open it under an epoch that the authority gave later", h.last)
	}
	return "", ""
}

// heldAs is the role that the log's last marker gives it.
func (l *store) heldAs() string {
	if l.tail.owner != nil {
		return l.tail.owner.Role
	}
	return l.made
}

// allowed holds what is asked for against what the log's markers and its end say.
func (l *store) allowed() error {
	owner := l.tail.owner
	h := held{role: l.heldAs()}
	if owner != nil {
		h.state, h.fenced = owner.State, owner.Fenced
	}
	if l.tail.Sequence > 0 || owner != nil {
		h.last = l.tail.Epoch
	}
	history := l.cfg.History
	a := asked{role: l.kind, epoch: l.cfg.Epoch, sealed: l.cfg.Sealed, ended: history.Judge(h.last, math.MaxUint64) == regions.Beyond ||
		h.last == (api.Epoch{}) && len(history) > 0}
	code, hint := h.refusal(a)
	if code == "" {
		return nil
	}
	return &api.Error{Code: code, Op: "open log", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, Field: "log", Value: l.cfg.ID.String(), Hint: hint}
}

// readTenure reads the log's last ownership marker, if by its state there is one.
func (l *store) readTenure(ctx context.Context, info *jetstream.StreamInfo) error {
	var m *message
	var err error
	if info.State.Subjects[l.owner] > 0 {
		if m, err = l.f.readLast(ctx, l, l.owner); err != nil {
			return err
		}
	}
	l.f.mu.Lock()
	known := l.f.known[l.key].Markers
	l.f.mu.Unlock()
	var t Tenure
	switch {
	case m == nil && known == 0:
		return nil
	case m != nil && m.control != controlDamaged:
		if err = json.Unmarshal(m.item.Record.Body, &t); err == nil && t.Number >= known {
			if l.tail.owner == nil || l.tail.owner.Number < t.Number {
				l.tail.ledger = m.ledger
			}
			l.tail.owner = &t
			l.voids.Store(&t.Diverged)
			return nil
		}
	}
	if l.f.cfg.Cluster != nil { // the other nodes may have it whole
		err = errors.Join(err, l.f.noteSpoilt(l.stream))
	}
	return l.f.damagedLog(l.cfg.ID.String(), "the log's last ownership marker is damaged or gone, and without it nobody may append: restore the data directory from a backup", err)
}

// settleKind takes the log's role from its markers, for those who read a log that is not
// opened.
func (l *store) settleKind(ctx context.Context) error {
	info, err := l.state(ctx)
	if err != nil {
		return fmt.Errorf("read state of %s: %w", l.cfg.ID, err)
	}
	if err := l.readTenure(ctx, info); err != nil {
		return err
	}
	if l.tail.owner != nil {
		l.kind = l.tail.owner.Role
	}
	return nil
}

// lineage is the incarnation of the log itself: a copy that became a home has it from the
// log's first home, while the stream keeps its own.
func (l *store) lineage() string {
	switch t := l.tail.owner; {
	case t != nil && t.Incarnation != "":
		return t.Incarnation
	case l.made == kindHome:
		return l.incarnation
	}
	return l.cfg.Incarnation
}

// startingEnd is where a log ends as long as none of its records was read: where its last
// marker says.
func (l *store) startingEnd() position {
	p := position{Incarnation: l.named, Term: 1}
	switch {
	case l.tail.owner != nil:
		p.Epoch = l.tail.owner.Epoch
	case l.kind == kindHome:
		p.Epoch = l.cfg.Epoch
	default:
		return position{}
	}
	return p
}

// assume opens the epoch that a home was asked to be opened under, and gives a copy the
// history that it came with.
func (l *store) assume(ctx context.Context) error {
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	at := l.durableEnd()
	if l.kind == kindCopy {
		if len(l.cfg.History) > 0 {
			return l.learn(ctx, l.cfg.History)
		}
		if at.owner != nil && at.owner.State == stateFrozen {
			l.refuse(l.frozen())
		}
		return nil
	}
	if l.cfg.Sealed {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refusal, l.ceiling = l.fenced(), at.owner.Cut.Closed // the next home goes by it
		return nil
	}
	if at.owner != nil { // also if the log was closed before its first record of the epoch
		l.mu.Lock()
		if at.owner.NotBefore.After(l.lastStamp) {
			l.lastStamp = at.owner.NotBefore
		}
		l.mu.Unlock()
	}
	known := at.Sequence > 0 || at.owner != nil
	switch {
	case known && at.Epoch == l.cfg.Epoch && (at.owner == nil || at.owner.Role == kindHome):
		return nil
	case !known && l.cfg.Epoch.Term <= 1 && l.cfg.Epoch.Counter <= 1 && (l.cfg.Incarnation == "" || l.cfg.Incarnation == l.named):
		return nil // the first epoch there is
	}
	return l.openEpoch(ctx, at)
}

// openEpoch appends the marker under which all that follows is of a new epoch.
func (l *store) openEpoch(ctx context.Context, at end) error {
	if want := l.cfg.Incarnation; l.named == "" || want != "" && want != l.named {
		return refuse("incarnation", want, fmt.Sprintf("the log's incarnation is %q here: an empty copy needs the one that the authority knows, any other log has its own", l.named), nil)
	}
	l.term++
	t := l.nextTenure(at)
	t.State, t.Incarnation, t.Epoch, t.History = "", l.named, l.cfg.Epoch, nil
	l.mu.Lock()
	if l.cfg.NotBefore.After(l.lastStamp) {
		l.lastStamp = l.cfg.NotBefore.Round(0).UTC()
	}
	t.NotBefore = l.stamp()
	l.mu.Unlock()
	at.position = position{Incarnation: l.named, Epoch: l.cfg.Epoch, Term: l.term, Sequence: at.Sequence}
	at.ledger = at.accounted()
	if err := l.mark(ctx, controlEpoch, t, at); err != nil {
		return err
	}
	l.f.step("epoch opened")
	return nil
}

// tenureNumber orders ownership markers; 0: it is none.
func (m *message) tenureNumber() uint64 {
	var t Tenure
	if !m.ownership() || json.Unmarshal(m.item.Record.Body, &t) != nil {
		return 0
	}
	return t.Number
}

// ownership: the message carries a tenure.
func (m *message) ownership() bool {
	switch m.control {
	case controlFence, controlFreeze, controlEpoch, controlRewind, controlSettle:
		return true
	case controlSweep:
		return len(m.item.Record.Body) > 0
	}
	return false
}
