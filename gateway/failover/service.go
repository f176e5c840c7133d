package failover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// Placements is this node's view of the placement authority. Implementations are safe for
// concurrent use.
type Placements interface {
	// Log is what the authority was last heard to say of a log.
	Log(id api.LogID) (placement.Log, bool)
	// Placements is that of all logs that this node can name, and a channel that is closed
	// when it is another. The map is read only.
	Placements() (map[api.LogID]placement.Log, <-chan struct{})
	// Submit brings a command to the authority and waits for what it came to.
	Submit(ctx context.Context, c placement.Command) (placement.Result, error)
}

// Act is what is kept of what an operator did, in the region's own audit.
type Act struct {
	Name, Reason string
	Log          api.LogID
	Plan         string
	Forced       bool
}

// Config is what a Service works with. All of it is required.
type Config struct {
	Self       string
	Federation *regions.Federation
	Placements Placements
	// Facts is what this node knows of a log's copies, links and policy. It may read the log,
	// until ctx ends.
	Facts func(ctx context.Context, l placement.Log, r Request) (Facts, error)
	// Verifier checks approvals and roles by this node's own trust.
	Verifier *approval.Verifier
	// Audit notes an act before it is done; done is called with what came of it.
	Audit  func(ctx context.Context, a Act) (done func(error), err error)
	Clock  regions.Clock
	Pace   regions.Pace
	Logger *slog.Logger
}

// submitWithin bounds one command to the authority, at pace 1.
const submitWithin = 30 * time.Second

// Service carries out what operators ask. It is safe for concurrent use.
type Service struct{ Config }

// New is a service that is ready.
func New(c Config) *Service { return &Service{c} }

// rolesFor lists who may begin a move of a kind, and approve it.
func rolesFor(kind placement.Kind) []string {
	if kind == placement.Forced {
		return []string{approval.Incident}
	}
	return []string{approval.Operator, approval.Incident}
}

// Roles lists who may begin and approve the planned move.
func (p *Plan) Roles() []string { return rolesFor(p.Kind) }

// find is the placement of a log that may move.
func (s *Service) find(id api.LogID) (placement.Log, error) {
	t, ok := s.Federation.Topic(id.Topic)
	if _, known := s.Federation.FirstHome(id); !ok || !known {
		return placement.Log{}, &api.Error{Code: api.UnknownTopic, Op: "find log", Topic: id.Topic, Field: "log", Value: id.String(), Hint: "the federation has no such log; domicile topic ls lists them"}
	}
	if !t.Movable() {
		return placement.Log{}, &api.Error{Code: api.PlacementRefused, Op: "find log", Topic: id.Topic, Field: "rule", Value: placement.RulePinned,
			Hint: "the topic says failover: never; what people get while its home is lost is in its contract: domicile topic show " + id.Topic}
	}
	l, ok := s.Placements.Log(id)
	if !ok {
		return placement.Log{}, &api.Error{Code: api.NotReady, Op: "find log", Topic: id.Topic, Region: s.Self,
			Hint: "this node knows of no placement of the log: it has to be opened at its home first, and the authority has to be heard"}
	}
	return l, nil
}

// Plan says what a move would do, and changes nothing. A plan that a rule refuses is no
// error: it says which.
func (s *Service) Plan(ctx context.Context, r Request) (Plan, error) {
	return s.plan(ctx, r, s.Clock.Now().Add(Life))
}

func (s *Service) plan(ctx context.Context, r Request, until time.Time) (Plan, error) {
	if r.Kind != placement.Planned && r.Kind != placement.Forced {
		return Plan{}, &api.Error{Code: api.BadRequest, Op: "plan move", Field: "kind", Value: string(r.Kind), Hint: "planned or forced"}
	}
	l, err := s.find(r.Log)
	if err != nil {
		return Plan{}, err
	}
	if r.Target == "" {
		r.Target, _ = s.Federation.FirstHome(r.Log)
	}
	if _, ok := s.Federation.Region(r.Target); !ok {
		return Plan{}, &api.Error{Code: api.UnknownRegion, Op: "plan move", Topic: r.Log.Topic, Field: "target", Value: r.Target, Hint: "no region of federation.yaml"}
	}
	facts, err := s.Facts(ctx, l, r)
	if err != nil {
		return Plan{}, err
	}
	facts.Self, facts.Log = s.Self, l
	facts.First, _ = s.Federation.FirstHome(r.Log)
	if t, ok := s.Federation.Topic(r.Log.Topic); ok {
		facts.RTO = t.Failover.RTO
	}
	facts.Sync = s.Federation.SyncSet(r.Log)
	return Make(r, facts, until), nil
}

// Start begins the move of exactly the plan with the id, after the same checks. A dry run
// says what it would do. approvals are signed statements for that id. Sent again it is the
// same move, with what approvals it lacked.
func (s *Service) Start(ctx context.Context, who string, r Request, plan, reason string, dryRun bool, approvals []string) (Plan, error) {
	if err := errors.Join(checkReason(reason), s.Verifier.Rules.Has(who, rolesFor(r.Kind)...)); err != nil && !dryRun {
		return Plan{}, first(err)
	}
	if dryRun && plan == "" {
		p, err := s.Plan(ctx, r)
		if err == nil {
			err = p.Refusal()
		}
		return p, err
	}
	until, err := ends(plan)
	if err != nil {
		return Plan{}, err
	}
	if l, ok := s.Placements.Log(r.Log); ok && l.Op != nil && l.Op.ID == opOf(plan) {
		return s.resume(ctx, l, r, plan, approvals)
	}
	p, err := s.plan(ctx, r, until)
	if err != nil {
		return Plan{}, err
	}
	now := s.Clock.Now()
	switch err := p.Refusal(); {
	case err != nil:
		return p, err
	case !now.Before(until) || until.Sub(now) > Life+time.Minute:
		return p, conflict("plan", plan, "the plan has ended: make a new one and look at it")
	case p.ID != plan:
		return p, conflict("plan", plan, "what the plan rests on has changed, or it was made for something else: make a new one and look at it")
	}
	signed, err := s.verified(approvals, &p, who)
	if err != nil || dryRun {
		return p, err
	}
	done, err := s.Audit(ctx, Act{Name: "move", Reason: reason, Log: r.Log, Plan: plan, Forced: r.Kind == placement.Forced})
	if err != nil {
		return p, err
	}
	err = s.begin(ctx, &p, who, reason, signed)
	done(err)
	return p, err
}

func first(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return err
}

func opOf(plan string) string { return "move/" + plan }

// resume brings the approvals of a move that was begun already.
func (s *Service) resume(ctx context.Context, l placement.Log, r Request, plan string, approvals []string) (Plan, error) {
	p := Plan{ID: plan, Request: r, Log: l}
	p.Kind, p.Target = l.Op.Kind, l.Op.Target
	for _, text := range approvals {
		if _, err := s.Approve(ctx, r.Log, text, "handed in with the start", false); err != nil {
			return p, err
		}
	}
	return p, nil
}

// consent is an approval that was verified, and what was signed.
type consent struct {
	approval.Consent
	text string
}

// verified refuses with S12 unless enough people approve the plan.
func (s *Service) verified(texts []string, p *Plan, who string) ([]consent, error) {
	var out []consent
	var why []string
	for _, text := range texts {
		signed, err := approval.Parse(text)
		if err == nil {
			var people []approval.Consent
			var refused []error
			people, refused = s.Verifier.People([]approval.Signed{signed}, p.ID, who, p.Roles()...)
			err = errors.Join(refused...)
			for _, c := range people {
				out = append(out, consent{c, text})
			}
		}
		if err != nil {
			why = append(why, err.Error())
		}
	}
	people := map[string]bool{}
	for _, c := range out {
		people[c.Name] = true
	}
	if need := p.Needs(); len(people) < need {
		return nil, short(p.Request.Log, len(people), need, p.Roles(), why)
	}
	return out, nil
}

func short(id api.LogID, got, need int, roles, why []string) error {
	hint := fmt.Sprintf("%d of %d people have approved, other than the one who asks and as %s", got, need, strings.Join(roles, " or "))
	if len(why) > 0 {
		hint += "; " + strings.Join(why, "; ")
	}
	return &api.Error{Code: api.PlacementRefused, Op: "count approvals", Topic: id.Topic, Field: "rule", Value: placement.RuleApprovals, Hint: hint}
}

func conflict(field, value, hint string) error {
	return &api.Error{Code: api.Conflict, Op: "start move", Field: field, Value: value, Hint: hint}
}

// begin brings the move and its approvals to the authority.
func (s *Service) begin(ctx context.Context, p *Plan, who, reason string, signed []consent) error {
	ctx, cancel := context.WithTimeout(ctx, s.Pace.Of(submitWithin))
	defer cancel()
	move := p.move()
	op := opOf(p.ID)
	c := s.command(placement.Begin, op, &p.Log, who, reason)
	c.Plan, c.Move = p.ID, &move
	if _, err := s.Placements.Submit(ctx, c); err != nil {
		return err
	}
	for _, a := range signed {
		if _, err := s.approve(ctx, &p.Log, op, p.ID, a); err != nil {
			return err
		}
	}
	return nil
}

// move is what begin asks the authority for.
func (p *Plan) move() placement.Move {
	return placement.Move{Kind: p.Kind, Target: p.Target, HomeDigest: p.homeDigest(), TargetDigest: p.Log.Terms.Digest,
		Accepted: p.Accept, Divergent: p.Divergent, Attested: p.Attest, Overrides: p.Overrides}
}

// homeDigest is "" where the home could not be asked; the checks have compared it
// otherwise.
func (p *Plan) homeDigest() string {
	if p.Kind == placement.Forced && !p.Heard {
		return ""
	}
	return p.Log.Terms.Digest
}

func (s *Service) command(verb placement.Verb, id string, l *placement.Log, who, reason string) placement.Command {
	return placement.Command{Verb: verb, ID: id, Log: l.Incarnation, Expect: l.Epoch, Region: s.Self, Actor: who, Reason: reason}
}

func (s *Service) approve(ctx context.Context, l *placement.Log, op, plan string, a consent) (placement.Result, error) {
	c := s.command(placement.Approve, "approve/"+plan+"/"+a.Name, l, a.Name, "approves the plan as "+a.Role)
	c.Op, c.Plan, c.Approvals = op, plan, []placement.Approval{{Actor: a.Name, Role: a.Role, Signed: a.text}}
	return s.Placements.Submit(ctx, c)
}

const maxReason = 500 // bytes

func checkReason(reason string) error {
	bad := func(hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "move log", Field: "reason", Hint: hint}
	}
	switch {
	case strings.TrimSpace(reason) == "":
		return bad("say why, with --reason TEXT: it is kept in the audits")
	case len(reason) > maxReason:
		return bad(fmt.Sprintf("at most %d bytes", maxReason))
	case strings.ContainsFunc(reason, unicode.IsControl):
		return bad("one line of plain text")
	}
	return nil
}

// mark is a short hash of what an act that needs no checks rests on.
func mark(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:16])
}
