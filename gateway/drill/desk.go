package drill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/link"
)

// Gates are the fault gates under the links of the region. *link.Gates is one.
type Gates interface {
	Hold(what link.Cut, lease time.Duration) (uint64, error)
	RenewFor(id uint64, most time.Duration) bool
	Heal(id uint64) bool
	Active() []link.Cut
}

// Filter is the packet filter of the node's kernel, which holds the cuts of one drill at a
// time. *nft.Filter is one.
type Filter interface {
	Check(cuts []link.Cut) error
	Hold(cuts []link.Cut, lease time.Duration) error
	RenewFor(most time.Duration) bool
	Heal()
	Active() []link.Cut
}

// Config is what a Desk works with. All of it is required but Used, Proof
// and Measured.
type Config struct {
	Self       string
	Federation *regions.Federation
	// Gates are those under the region's links. They are this node's for as long as it runs:
	// in a region of three the links come here with the seat, and begin under what is held.
	Gates  Gates
	Filter Filter
	// Verifier checks approvals and roles by this node's own trust.
	Verifier *approval.Verifier
	// Audit notes that a drill was armed, before anything is cut.
	Audit func(ctx context.Context, id, reason string) error
	// Proven notes that a drill has passed, before it is shown.
	Proven   func(ctx context.Context, id, chain string, moves []Measured) error
	Proof    Proof               // of before this run
	Measured map[string]Measured // likewise, by topic
	// Used are the ids that were armed here before this run, and when.
	Used map[string]time.Time
	// Files looks for texts in the files of this node that were changed since an instant.
	Files  func(ctx context.Context, texts []string, since time.Time) (Found, error)
	Clock  regions.Clock
	Boot   regions.BootClock
	Logger *slog.Logger
}

// Phase is where a node stands with a drill.
type Phase string

// The phases.
const (
	Armed Phase = "armed" // agreed to, nothing is cut
	Cut   Phase = "cut"
)

// How a drill ended at a node.
const (
	Healed = "healed" // by word
	Lapsed = "lapsed" // nobody renewed it
	Capped = "capped" // it had lasted as long as it may
	Lost   = "lost"   // a gate of it ended by itself, or the node stopped
)

// End is how a drill ended.
type End struct {
	ID, How string
	At      time.Time
}

// State is what a desk holds. ID "" is no drill.
type State struct {
	ID       string
	Spec     Spec
	Phase    Phase
	By       string
	Since    time.Time     // of the phase
	Left     time.Duration // of the lease
	CapLeft  time.Duration // of the whole, once it is cut
	Cuts     []link.Cut    // all that the gates in the process hold, of a drill or not
	Filtered []link.Cut    // all that the packet filter holds
	Last     End           // zero: none in this run
	Consent  string        // what approvals sign
	Proof    Proof         // the last drill that has passed here
	// Measured are the last moves that drills which have passed here have carried out, by topic.
	Measured []Measured
	// Of a dry run: the people whose approvals count here.
	Approved []string
}

// Desk is a node's part in drills. One is held at a time. It is safe for concurrent use.
type Desk struct {
	Config
	shown     atomic.Pointer[string] // id of the drill that is cut here; nil: none
	searching sync.Mutex             // held by the one search

	mu    sync.Mutex
	held  *held
	last  End
	proof Proof
	// by topic
	measured map[string]Measured
	used     map[string]time.Time // ids, and when they were armed here: a consent is to one drill
}

type held struct {
	id, by  string
	spec    Spec
	phase   Phase
	since   time.Time
	ends    time.Duration // of the lease, on the boot clock
	cap     time.Duration // of the phase, on the boot clock: no renewal goes beyond it
	texts   []string      // approvals
	cuts    []uint64
	timer   *time.Timer
	consent string
}

// New is a desk that holds nothing.
func New(c Config) *Desk {
	d := &Desk{Config: c, used: map[string]time.Time{}, measured: map[string]Measured{}}
	maps.Copy(d.used, c.Used)
	maps.Copy(d.measured, c.Measured)
	d.proof = c.Proof
	return d
}

// Active is the id of the drill that holds links of this region; "": none.
func (d *Desk) Active() string {
	if id := d.shown.Load(); id != nil {
		return *id
	}
	return ""
}

// Arm keeps the node for a drill until its lease ends, if the manifest, the roles, the
// approvals and the present state allow it. who is the operator's name. A dry run only
// checks; one without a reason checks no approvals and tells what they have to sign. Sent again by the same person it is the same drill, with its lease begun anew.
func (d *Desk) Arm(ctx context.Context, who, id string, s Spec, reason string, approvals []string, dryRun bool) (State, error) {
	people, err := d.permitted(who, id, &s, reason, approvals, dryRun)
	if err != nil {
		return State{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.held; h != nil && !dryRun && h.id == id && h.by == who && h.phase == Armed && h.consent == s.Consent(d.Federation.Name(), id) {
		d.extend(h)
		return d.state(), nil
	}
	if err := errors.Join(d.free(), d.able(&s, id)); err != nil {
		return State{}, err
	}
	if dryRun {
		if err := d.unused(id); err != nil && reason != "" {
			return State{}, err
		}
		out := d.state()
		out.Spec, out.Consent, out.By, out.Approved = s, s.Consent(d.Federation.Name(), id), who, people
		return out, nil
	}
	if err := d.unused(id); err != nil {
		return State{}, err
	}
	d.used[id] = d.Clock.Now()
	if err := d.Audit(ctx, id, reason); err != nil {
		return State{}, err
	}
	h := &held{id: id, by: who, spec: s, phase: Armed, cap: d.Boot() + armedFor, texts: approvals, since: d.Clock.Now(), consent: s.Consent(d.Federation.Name(), id)}
	h.timer = time.AfterFunc(s.Lease, func() { d.expire(h) })
	d.held = h
	d.extend(h)
	d.Logger.Warn("a drill is armed", "drill", id, "by", who, "isolate", s.Isolate)
	return d.state(), nil
}

// armedFor is the longest that a node is kept for a drill that cuts nothing.
const armedFor = 5 * time.Minute

// maxUsed bounds the ids that are remembered; beyond it none is taken.
const maxUsed = 10_000

// unused refuses an id that was used while an approval of it could still count.
func (d *Desk) unused(id string) error {
	now := d.Clock.Now()
	maps.DeleteFunc(d.used, func(_ string, at time.Time) bool { return now.Sub(at) > approval.MaxLife })
	if _, again := d.used[id]; again || len(d.used) >= maxUsed {
		return &api.Error{Code: api.Conflict, Op: "arm drill", Region: d.Self, Field: "drill", Value: id, Hint: "a drill of that id was held here already: each takes an id, and approvals, of its own"}
	}
	return nil
}

// permitted asks everything that does not depend on what is held. It answers the people who
// have approved.
func (d *Desk) permitted(who, id string, s *Spec, reason string, approvals []string, dryRun bool) ([]string, error) {
	if len(id) > maxID || regions.CheckName(id) != nil {
		return nil, &api.Error{Code: api.BadRequest, Op: "arm drill", Field: "id", Value: id, Hint: fmt.Sprintf("at most %d letters, digits and dashes", maxID)}
	}
	if err := s.Check(d.Federation, d.Clock.Now()); err != nil {
		return nil, err
	}
	if s.cuts(d.Self, id) == nil {
		return nil, &api.Error{Code: api.BadRequest, Op: "arm drill", Field: "peers", Value: strings.Join(s.Peers, ","), Hint: d.Self + " is neither isolated nor one of the peers"}
	}
	if err := d.Verifier.Rules.Has(who, approval.Operator, approval.Incident); err != nil {
		return nil, err
	}
	if dryRun && reason == "" && len(approvals) == 0 {
		return nil, nil // asked for what an approval has to sign
	}
	if strings.TrimSpace(reason) == "" || len(reason) > 500 {
		return nil, &api.Error{Code: api.BadRequest, Op: "arm drill", Field: "reason", Hint: "say why, in at most 500 bytes: it is kept in the audits"}
	}
	return d.approved(approvals, s.Consent(d.Federation.Name(), id), who)
}

// approved answers the people who have approved, if they are enough.
func (d *Desk) approved(texts []string, consent, who string) ([]string, error) {
	need := d.Federation.Drills().Approvals
	var signed []approval.Signed
	var why []string
	for _, text := range texts {
		one, err := approval.Parse(text)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		signed = append(signed, one)
	}
	people, refused := d.Verifier.People(signed, consent, who, approval.Operator, approval.Incident)
	for _, err := range refused {
		why = append(why, err.Error())
	}
	if len(people) >= need {
		var names []string
		for _, p := range people {
			names = append(names, p.Name)
		}
		return names, nil
	}
	hint := fmt.Sprintf("%d of %d people have approved %s, other than the one who asks: domicile drill approve", len(people), need, consent)
	return nil, &api.Error{Code: api.PermissionDenied, Op: "arm drill", Region: d.Self, Field: "approvals", Hint: strings.Join(append([]string{hint}, why...), "; ")}
}

// free refuses while a drill or another fault holds a link of the region.
func (d *Desk) free() error {
	if h := d.held; h != nil {
		return &api.Error{Code: api.Conflict, Op: "arm drill", Region: d.Self, Field: "drill", Value: h.id,
			Hint: fmt.Sprintf("it is held here by %s; it ends by itself, or with domicile drill heal", h.by)}
	}
	if cuts := append(d.Gates.Active(), d.Filter.Active()...); len(cuts) > 0 {
		return &api.Error{Code: api.Conflict, Op: "arm drill", Region: d.Self, Field: "fault", Value: cuts[0].String(),
			Hint: "a fault gate holds the link with " + cuts[0].Peer + " already: what a drill measures would not be its own"}
	}
	return nil
}

// able refuses what the packet filter could not hold here.
func (d *Desk) able(s *Spec, id string) error {
	if s.Gate != GateFilter {
		return nil
	}
	return d.Filter.Check(s.all(d.Self, id, d.Federation))
}

// Cut cuts the links of the armed drill, all or none.
func (d *Desk) Cut(who, id string) (State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.mine(who, id)
	if err != nil || h.phase == Cut {
		return d.state(), err
	}
	// What was true when it was armed may not be any more.
	_, err = d.approved(h.texts, h.consent, who)
	if err = errors.Join(h.spec.Check(d.Federation, d.Clock.Now()), err); err != nil {
		d.drop(h, Healed)
		return State{}, err
	}
	if err = d.hold(h); err != nil {
		d.drop(h, Lost)
		return State{}, err
	}
	h.phase, h.since, h.cap = Cut, d.Clock.Now(), d.Boot()+h.spec.For
	d.shown.Store(&h.id)
	d.extend(h)
	d.Logger.Warn("a drill cuts links", "drill", id, "isolate", h.spec.Isolate, "planes", h.spec.Planes, "direction", h.spec.Direction, "fault", h.spec.Fault)
	return d.state(), nil
}

// hold cuts what the drill says, by its gate.
func (d *Desk) hold(h *held) error {
	cuts := h.spec.all(d.Self, h.id, d.Federation)
	if h.spec.Gate == GateFilter {
		return d.Filter.Hold(cuts, h.spec.Lease)
	}
	for _, c := range cuts {
		n, err := d.Gates.Hold(c, h.spec.Lease)
		if err != nil {
			return err
		}
		h.cuts = append(h.cuts, n)
	}
	return nil
}

// renew begins the lease of everything that is cut anew; false: some of it has ended.
func (d *Desk) renew(h *held, left time.Duration) bool {
	if h.spec.Gate == GateFilter {
		return d.Filter.RenewFor(left)
	}
	return !slices.ContainsFunc(h.cuts, func(n uint64) bool { return !d.Gates.RenewFor(n, left) })
}

// Renew begins the lease anew. A drill of which a cut has ended by itself is ended whole.
func (d *Desk) Renew(who, id string) (State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.mine(who, id)
	if err != nil {
		return State{}, err
	}
	if h.phase == Cut {
		left := h.cap - d.Boot()
		if left <= 0 || !d.renew(h, left) {
			how := Lost
			if left <= 0 {
				how = Capped
			}
			d.drop(h, how)
			return State{}, d.gone(id)
		}
	}
	d.extend(h)
	return d.state(), nil
}

// Heal ends the drill. Of one that has ended it says how.
func (d *Desk) Heal(id string) (State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.held; h != nil && h.id == id {
		d.drop(h, Healed)
	} else if d.last.ID != id {
		return State{}, d.gone(id)
	}
	return d.state(), nil
}

// State is what is held now.
func (d *Desk) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state()
}

// Release ends what is held, as its gates do when the node stops.
func (d *Desk) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.held; h != nil {
		d.drop(h, Lost)
	}
}

// mine is the drill that is held, if it is that one and this person's.
func (d *Desk) mine(who, id string) (*held, error) {
	h := d.held
	if h == nil || h.id != id {
		return nil, d.gone(id)
	}
	if h.by != who {
		return nil, &api.Error{Code: api.PermissionDenied, Op: "hold drill", Region: d.Self, Field: "drill", Value: id, Hint: "it is " + h.by + "'s: anybody may heal it, nobody else go on with it"}
	}
	return h, nil
}

func (d *Desk) gone(id string) error {
	hint := "it is not held here: the node was restarted"
	if d.last.ID == id {
		hint = "it ended here at " + d.last.At.UTC().Format(time.RFC3339) + ": " + d.last.How
	}
	return &api.Error{Code: api.Conflict, Op: "hold drill", Region: d.Self, Field: "drill", Value: id, Hint: hint}
}

// extend begins the lease of a drill anew, to its cap at the latest.
func (d *Desk) extend(h *held) {
	h.ends = min(d.Boot()+h.spec.Lease, h.cap)
	h.timer.Reset(h.ends - d.Boot())
}

func (d *Desk) expire(h *held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != h {
		return
	}
	left := h.ends - d.Boot()
	switch {
	case left > 0: // renewed, or the timer was early on this clock
		h.timer.Reset(left)
	case h.ends == h.cap:
		d.drop(h, Capped)
	default:
		d.drop(h, Lapsed)
	}
}

// drop ends a drill.
func (d *Desk) drop(h *held, how string) {
	h.timer.Stop()
	for _, n := range h.cuts {
		d.Gates.Heal(n)
	}
	if h.spec.Gate == GateFilter && h.phase == Cut {
		d.Filter.Heal()
	}
	d.held, d.last = nil, End{h.id, how, d.Clock.Now()}
	d.shown.Store(nil)
	d.Logger.Warn("a drill has ended", "drill", h.id, "how", how)
}

func (d *Desk) state() State {
	s := State{Last: d.last, Proof: d.proof, Cuts: d.Gates.Active(), Filtered: d.Filter.Active()}
	for _, topic := range slices.Sorted(maps.Keys(d.measured)) {
		s.Measured = append(s.Measured, d.measured[topic])
	}
	h := d.held
	if h == nil {
		return s
	}
	s.ID, s.Spec, s.Phase, s.By, s.Since, s.Consent = h.id, h.spec, h.phase, h.by, h.since, h.consent
	s.Left = max(h.ends-d.Boot(), 0)
	if h.phase == Cut {
		s.CapLeft = max(h.cap-d.Boot(), 0)
	}
	return s
}
