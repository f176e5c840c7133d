package failover

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// Authority names the check that the authority answers; it is no rule that could be set
// aside.
const Authority = "authority"

// making is a plan that is being made.
type making struct {
	*Plan
	facts *Facts
}

// asked is what a rule says: nothing to say against it, or why it refuses.
type asked struct {
	against string
	code    api.Code // "": PLACEMENT_REFUSED
	firm    bool     // nobody may set that aside
	fine    string
}

func (m *making) ask(rule string, ask func(*making) asked) {
	a := ask(m)
	c := Check{Rule: rule, State: OK, Text: a.fine}
	if a.against != "" {
		c.State, c.Text, c.Code = Refused, a.against, a.code
		if c.Code == "" {
			c.Code = api.PlacementRefused
		}
		if !a.firm && placement.Overridable(rule) && m.Kind == placement.Forced && slices.Contains(m.Overrides, rule) {
			c.State = Waived
		}
	}
	m.Checks = append(m.Checks, c)
}

type rule struct {
	rule string
	ask  func(*making) asked
}

// rules lists what is asked, in order. The first that refuses is what people are told, so
// that what no override can heal comes first.
func rules() []rule {
	return []rule{
		{placement.RulePinned, (*making).movable},
		{placement.RuleBoundary, (*making).boundary},
		{placement.RuleOverride, (*making).overrides},
		{placement.RuleOneOp, (*making).alone},
		{placement.RuleDigest, (*making).declared},
		{Authority, (*making).reachable},
		{placement.RuleOneHome, (*making).stops},
		{placement.RuleTail, (*making).tail},
		{placement.RuleUnknown, (*making).known},
		{placement.RuleCutFirst, (*making).bounded},
		{placement.RuleApprovals, (*making).people},
	}
}

func (m *making) movable() asked {
	if m.Log.Terms.Mode != placement.Manual {
		return asked{against: "the log is declared never to move"}
	}
	return asked{fine: "the topic says failover: manual"}
}

// boundary says nothing of where else the log could go: people are offered what is legal
// only by the list of targets.
func (m *making) boundary() asked {
	t := m.Log.Terms
	switch {
	case m.Target == m.Log.Home:
		return asked{against: m.Target + " is its home already", code: api.BadRequest}
	case !slices.Contains(t.Allowed, m.Target):
		return asked{against: "the log's records may not all rest there; it stays where it is", code: api.HomeOutsideBoundary}
	case !slices.Contains(t.Targets, m.Target):
		return asked{against: "the topic's failover.targets do not name it", code: api.HomeOutsideBoundary}
	case m.facts.Denied != nil:
		return asked{against: reason(m.facts.Denied), code: api.HomeOutsideBoundary}
	case m.Kind == placement.Planned && m.facts.Self == m.Target && m.target().Withheld > 0:
		return asked{against: fmt.Sprintf("%d records of the log were withheld from the copy here by policy; plan it in %s, which can tell whether they are still stored", m.target().Withheld, m.Log.Home), code: api.HomeOutsideBoundary}
	}
	return asked{fine: "every record of the log may rest in " + m.Target}
}

func reason(err error) string {
	if e, ok := err.(*api.Error); ok {
		if e.Value != "" {
			return e.Value + ": " + e.Hint
		}
		return e.Hint
	}
	return err.Error()
}

func (m *making) overrides() asked {
	for i, o := range m.Overrides {
		switch {
		case !placement.Overridable(o):
			return asked{against: fmt.Sprintf("%.20q cannot be set aside", o)}
		case slices.Contains(m.Overrides[:i], o):
			return asked{against: o + " is set aside twice"}
		case m.Kind == placement.Planned:
			return asked{against: "a planned move loses nothing, so there is nothing to set aside"}
		}
	}
	if len(m.Overrides) > 0 {
		return asked{fine: "set aside by name: " + strings.Join(m.Overrides, ", ")}
	}
	return asked{fine: "no rule is set aside"}
}

func (m *making) alone() asked {
	switch l := m.Log; {
	case l.Status == placement.Contested:
		return asked{against: "two regions claim the log: domicile failover resolve", code: api.Contested}
	case l.Status == placement.Moving:
		return asked{against: "another move is under way (to " + l.Op.Target + ", at " + string(l.Op.Step) + "): let it end, or domicile failover abort"}
	case l.Status == placement.Opening && m.Kind == placement.Planned:
		return asked{against: "its home " + l.Home + " has not opened it yet; only a forced move can take it from there"}
	}
	return asked{fine: "no other move is under way"}
}

func (m *making) declared() asked {
	want := m.Log.Terms.Digest
	for _, region := range []string{m.facts.Self, m.Target, m.Log.Home} {
		digest, known := m.facts.Digests[region]
		switch {
		case !known && region == m.Log.Home && !m.Heard: // S1 speaks of it
		case !known:
			return asked{against: "it is not known here how " + region + " declares the topic: its link is not up", code: api.HomeUnreachable}
		case digest != want:
			return asked{against: region + " declares the topic otherwise than the authority has it: give every region the same federation.yaml, then domicile config reload", code: api.ManifestMismatch}
		}
	}
	if _, known := m.facts.Digests[m.Log.Home]; !known {
		return asked{fine: "target and authority have the same declaration; the home could not be asked"}
	}
	return asked{fine: "home, target and authority have the same declaration"}
}

func (m *making) reachable() asked {
	if !m.facts.Reachable {
		return asked{against: "no majority of the voters has answered this region lately, so nothing can be decided from here and what is shown may be old", code: api.AuthorityUnreachable}
	}
	return asked{fine: "the authority answers"}
}

// stops asks how the old home will be known to have stopped.
func (m *making) stops() asked {
	held := m.Log.Tenure()
	switch {
	case m.Kind == placement.Planned && (m.Divergent || m.Attest):
		return asked{against: "a planned move ends with the home's own marker; nothing is attested or accepted", code: api.BadRequest}
	case m.Kind == placement.Planned && !m.Heard:
		return asked{against: m.Log.Home + " is not heard, and only its own marker ends its epoch without loss: wait for it, or domicile failover force", code: api.HomeUnreachable}
	case m.Kind == placement.Planned:
		return asked{fine: m.Log.Home + " is heard, and ends its epoch with a marker"}
	case m.Attest:
		return asked{fine: "two people sign that " + m.Log.Home + " is stopped"}
	case m.Divergent && held.Isolation != placement.Accept:
		return asked{against: "the log's home fences itself after " + regions.Span(held.FenceAfter) + ": wait for that instead of accepting two histories"}
	case held.Isolation == placement.FenceAfter:
		return asked{fine: fmt.Sprintf("the home's lease has run out at most %s after its last renewal", regions.Span(m.Wait))}
	case m.Divergent && m.Heard:
		return asked{fine: m.Log.Home + " is heard and ends its epoch with a marker, or goes on writing what will be void"}
	case m.Divergent:
		return asked{fine: m.Log.Home + " may go on writing; what it writes beyond the cut is void"}
	case m.Heard:
		return asked{fine: m.Log.Home + " is heard, and ends its epoch with a marker"}
	}
	return asked{against: m.Log.Home + " is not heard and goes on by the topic's rule (accept): say --accept-divergence, or attest that it is stopped with --attest-stopped"}
}

func (m *making) tail() asked {
	for _, d := range m.Log.Divergences {
		if d.Fate == placement.Kept {
			return asked{against: fmt.Sprintf("%s keeps %d records of epoch %s that are void: republish or discard them first", d.Region, d.Count, d.Epoch)}
		}
	}
	return asked{fine: "no void records wait for a decision"}
}

// known asks whether it is known how far the target is.
func (m *making) known() asked {
	t := m.target()
	switch {
	case m.Target == m.Log.Home:
		return asked{fine: "it is where the log is"}
	case m.Kind == placement.Planned && !t.LagKnown:
		return asked{against: "it is not known here how far " + m.Target + " is behind" + because(t.Cause) + ": ask a node of " + m.Log.Home + " or " + m.Target}
	case m.Kind == placement.Planned:
		return asked{fine: m.Target + " is " + regions.Span(t.Lag) + " behind"}
	case m.Loss.Span == nil && m.Target != m.facts.Self:
		return asked{against: "how much would be lost is known in " + m.Target + " only: ask a node there"}
	case t.Damaged > 0:
		return asked{against: fmt.Sprintf("%d records of the copy in %s are damaged, and nobody knows how old they are: see domicile topic verify", t.Damaged, m.Target)}
	case m.Loss.Span == nil:
		return asked{against: "nobody knows how much would be lost" + because(t.Cause)}
	case m.Accept.Span == nil:
		return asked{against: "up to " + regions.Span(*m.Loss.Span) + " may be lost: say how much is accepted, with --accept-loss"}
	case m.Accept.Records != nil && m.Loss.Records == nil:
		return asked{against: "how many records would be lost is not known, while its home is not heard; accept a time only"}
	}
	return asked{fine: "up to " + regions.Span(*m.Loss.Span) + " may be lost"}
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return " (" + cause + ")"
}

// bounded holds what may be lost against what is accepted, and that against the topic's
// rule.
func (m *making) bounded() asked {
	t, limit, lost := m.target(), m.Accept, m.Loss
	switch {
	case m.Kind == placement.Planned && limit != (placement.Loss{}):
		return asked{against: "a planned move loses nothing: leave --accept-loss out", code: api.BadRequest}
	case m.Kind == placement.Planned && t.LagKnown && t.Lag > Drain:
		return asked{against: fmt.Sprintf("%s is %s behind, and producers would wait for that: at most %s", m.Target, regions.Span(t.Lag), regions.Span(Drain))}
	case m.Kind == placement.Planned:
		return asked{fine: "nothing is lost: the target has all up to the home's marker before it takes over"}
	case limit.Span != nil && lost.Span != nil && *lost.Span > *limit.Span:
		return asked{against: fmt.Sprintf("up to %s may be lost, %s are accepted", regions.Span(*lost.Span), regions.Span(*limit.Span)), firm: true}
	case limit.Records != nil && lost.Records != nil && *lost.Records > *limit.Records:
		return asked{against: fmt.Sprintf("up to %d records may be lost, %d are accepted", *lost.Records, *limit.Records), firm: true}
	case limit.Span != nil && *limit.Span > m.Log.Terms.RPO:
		return asked{against: fmt.Sprintf("the topic accepts a loss of %s, the request one of %s", regions.Span(m.Log.Terms.RPO), regions.Span(*limit.Span))}
	}
	if lost.Span == nil || limit.Span == nil {
		return asked{fine: "what is accepted is within the topic's rule; what may be lost is asked on the frozen cut"}
	}
	return asked{fine: "what may be lost is within what is accepted; it is asked again on the frozen cut"}
}

func (m *making) people() asked {
	switch n := m.Needs(); n {
	case 0:
		return asked{fine: "nobody else has to approve"}
	case 1:
		return asked{fine: "one person besides the one who asks has to approve"}
	default:
		return asked{fine: fmt.Sprintf("%d people besides the one who asks have to approve", n)}
	}
}

// Needs is how many people besides the one who asks have to approve.
func (p *Plan) Needs() int {
	if p.Attest {
		return max(p.Log.Terms.Approvals, 2)
	}
	return p.Log.Terms.Approvals
}

// note says what people should know and no rule asks.
func (m *making) note() {
	if m.Kind == placement.Forced && m.Heard {
		m.Notes = append(m.Notes, m.Log.Home+" is heard: domicile failover switchover would lose nothing")
	}
	if t := m.target(); t.Withheld > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("%d records are kept from %s by policy; they stay where they are and are not lost; the new home has gaps in their places", t.Withheld, m.Target))
	}
	for _, c := range m.Copies {
		if c.Region == m.Target || c.Region == m.Log.Home || !c.Known {
			continue
		}
		if t := m.target(); !t.Known || c.Sequence > t.Sequence {
			m.Notes = append(m.Notes, fmt.Sprintf("%s is further than %s: what %s does not have when the cut is fixed is void there", c.Region, m.Target, m.Target))
		}
	}
	switch {
	case m.Kind != placement.Forced || !slices.Contains(m.facts.Sync, m.Target):
	case m.all():
		m.Notes = append(m.Notes, m.Target+" is in the topic's sync set, and its copy is whole: every acknowledged record is on its disk")
	default:
		m.Notes = append(m.Notes, m.Target+" is in the topic's sync set, and nobody here knows whether its copy is whole: since it was opened, its home has not said how far the set has the log, or the copy is not there or lacks something")
	}
	if m.Kind == placement.Planned {
		m.Notes = append(m.Notes, "the copy is compared with its home's records before it takes over; where retention has taken the beginning from one of them it is counted and not compared, and status says so")
	}
	if m.Kind == placement.Forced && m.facts.RTO > 0 {
		m.Notes = append(m.Notes, "the topic allows "+regions.Span(m.facts.RTO)+" for it")
	}
	m.Notes = append(m.Notes, m.again())
}

// again says what readers may be given a second time.
func (m *making) again() string {
	const goOn = "readers go on from their positions, in whatever region"
	lost := m.Loss.Records
	switch {
	case m.Kind == placement.Planned, lost != nil && *lost == 0:
		return goOn + ": no record that a reader took comes again"
	case lost == nil:
		return goOn + "; those that were given records beyond the cut get them again if they are published again, at most as many as are left behind: how many is not known"
	}
	return fmt.Sprintf("%s; those that were given records beyond the cut get them again if they are published again: at most %d by what is known now", goOn, *lost)
}
