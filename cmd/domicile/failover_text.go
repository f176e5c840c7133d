package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/placement"
)

func sameEpoch(a, b *pb.Epoch) bool { return wire.EpochFromProto(a) == wire.EpochFromProto(b) }

func renderPlan(p *pb.MovePlan) string {
	var b bytes.Buffer
	word := map[string]string{string(placement.Planned): "switchover", string(placement.Forced): "force"}[p.GetKind()]
	fmt.Fprintf(&b, "%s: %s from %s to %s (epoch %s, %s)\n\n", word, logName(p.GetLog()), p.GetHome(), p.GetTarget(), epochText(p.GetEpoch()), p.GetStatus())
	rows := [][]string{{"RULE", "SAYS", "BECAUSE"}}
	for _, c := range p.GetChecks() {
		rows = append(rows, []string{c.GetRule(), checkWord(p, c), c.GetText()})
	}
	table(&b, "", rows)
	fmt.Fprintln(&b)
	rows = [][]string{{"REGION", "IS", "UP TO", "BEHIND", "MISSING", "WITHHELD", "MAY TAKE IT", "BECAUSE"}}
	for _, c := range p.GetCopies() {
		rows = append(rows, []string{c.GetRegion(), c.GetRole(), orUnknown(c.GetKnown(), count(c.GetSequence())), behind(c),
			missingText(c), count(c.GetWithheld()), mayTake(c), c.GetWhy()})
	}
	table(&b, "", rows)
	fmt.Fprintln(&b)
	b.WriteString(renderPrice(p))
	for _, n := range p.GetNotes() {
		fmt.Fprintln(&b, "Note:", n)
	}
	if p.GetId() == "" {
		i := slices.IndexFunc(p.GetChecks(), func(c *pb.MoveCheck) bool { return c.GetState() == "refused" })
		fmt.Fprintf(&b, "Refused by %s.\n", p.GetChecks()[i].GetRule())
		return b.String()
	}
	fmt.Fprintf(&b, "plan %s\nuntil %s\n", p.GetId(), nanoTime(p.GetExpiresUnixNano()).Format(time.RFC3339))
	return b.String()
}

// renderPrice says what a plan costs. One that is refused promises nothing.
func renderPrice(p *pb.MovePlan) string {
	var b strings.Builder
	if p.GetKind() == string(placement.Forced) {
		loss := p.GetLoss()
		fmt.Fprintf(&b, "Left behind at most, as of now: time %s, records %s; the topic accepts %s.\n", orUnknown(loss.GetSpanKnown(), regions.Span(time.Duration(loss.GetSpanNano()))),
			orUnknown(loss.GetRecordsKnown(), count(loss.GetRecords())), regions.Span(time.Duration(p.GetRpoNano())))
		if p.GetWaitNano() > 0 {
			fmt.Fprintf(&b, "The old home's lease is waited for: at most %s.\n", regions.Span(time.Duration(p.GetWaitNano())))
		}
	} else if p.GetId() != "" {
		fmt.Fprintln(&b, "Nothing is lost: the target has all up to the home's marker before it takes over.")
	}
	if n := p.GetApprovals(); n > 0 {
		fmt.Fprintf(&b, "Approvals: %d, as %s, other than from whoever begins it.\n", n, strings.Join(p.GetApprovalRoles(), " or "))
	}
	return b.String()
}

// checkWord is what a rule says. The people whom a plan needs are counted when it is begun,
// so that here nothing is fine yet.
func checkWord(p *pb.MovePlan, c *pb.MoveCheck) string {
	if c.GetRule() == placement.RuleApprovals && c.GetState() == "ok" && p.GetApprovals() > 0 {
		return "asks"
	}
	return c.GetState()
}

func orUnknown(known bool, text string) string {
	if !known {
		return unknown
	}
	return text
}

func behind(c *pb.CopyMark) string {
	if c.GetRole() == "home" {
		return "-"
	}
	return orUnknown(c.GetLagKnown(), regions.Span(time.Duration(c.GetLagNano())))
}

func missingText(c *pb.CopyMark) string {
	if c.GetRole() == "home" {
		return "-"
	}
	return orUnknown(c.GetPendingKnown(), count(c.GetPending()))
}

func mayTake(c *pb.CopyMark) string {
	switch {
	case c.GetRole() == "home":
		return "-"
	case c.GetEligible():
		return "yes"
	}
	return "no"
}

func renderMoves(m *pb.MoveStates) string {
	var b strings.Builder
	if !m.GetAuthorityKnown() {
		fmt.Fprintf(&b, "%s: this is what this node knew last\n", firstOf(m.GetAuthority(), "the authority is not known to answer this node"))
	}
	if len(m.GetLogs()) == 0 {
		b.WriteString("no log is known here to be placed by the authority; those that never move are not (domicile topic show)\n")
	}
	for _, l := range m.GetLogs() {
		b.WriteString(renderMove(l))
	}
	return b.String()
}

func renderMove(l *pb.MoveState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s in %s, epoch %s", logName(l.GetLog()), l.GetStatus(), l.GetHome(), epochText(l.GetEpoch()))
	if len(l.GetTargets()) > 0 {
		fmt.Fprintf(&b, "; may move to %s", strings.Join(l.GetTargets(), ", "))
	}
	fmt.Fprintln(&b)
	if l.GetOp() != "" {
		fmt.Fprintln(&b, "  "+stepLine(l))
		fmt.Fprintln(&b, "  plan "+l.GetPlan())
	}
	if l.GetRefused() != "" {
		fmt.Fprintf(&b, "  %s refuses to open it: %s\n", l.GetHome(), l.GetRefused())
	}
	if l.GetRivalHome() != "" {
		fmt.Fprintf(&b, "  contested: %s claims it by epoch %s as well; domicile failover resolve\n", l.GetRivalHome(), epochText(l.GetRivalEpoch()))
	}
	for _, t := range l.GetTails() {
		fmt.Fprintf(&b, "  %s holds %s void records of epoch %s, sequences %d to %d: %s; a reader that was given them gets at most those again\n", t.GetRegion(), count(t.GetCount()), epochText(t.GetEpoch()), t.GetFrom(), t.GetTo(), t.GetFate())
	}
	if l.GetReason() != "" {
		fmt.Fprintf(&b, "  last: %s (%s)\n", l.GetReason(), l.GetActor())
	}
	return b.String()
}

var stepWords = map[string]string{
	string(placement.Begun):   "begun; the old home is to stop",
	string(placement.Proven):  "the old home has stopped",
	string(placement.Cut):     "it is fixed where the old epoch ends",
	string(placement.Ready):   "the target has all up to there",
	string(placement.Flipped): "the new home is decided, and opens the log",
}

func stepLine(l *pb.MoveState) string {
	text := fmt.Sprintf("%s to %s: %s", l.GetKind(), l.GetTarget(), firstOf(stepWords[l.GetStep()], l.GetStep()))
	if l.GetProof() != "" {
		text += " (proof: " + l.GetProof() + ")"
	}
	if l.GetCompared() == placement.NotCompared {
		text += ", by count; not compared with its home's records"
	}
	if l.GetLost().GetSpanKnown() && l.GetKind() == string(placement.Forced) {
		text += ", at most " + regions.Span(time.Duration(l.GetLost().GetSpanNano())) + " left behind"
		if l.GetProof() == string(placement.Diverges) {
			text += " when the cut was fixed; the old home may have gone on"
		}
	}
	if n := l.GetApprovals(); n > 0 {
		text += fmt.Sprintf(", %d of %d approvals", len(l.GetApproved()), n)
	}
	return text
}
