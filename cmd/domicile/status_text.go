package main

import (
	"fmt"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

const unknown = "unknown"

// renderStatus is what a person reads at three in the morning, in the order in which
// the questions come: what is wrong, which link, which log and what that means for
// producers and consumers, which rules are in force where, what runs out, what heals
// by itself and what may be done. now is the reader's time.
func renderStatus(s *pb.StatusResponse, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", firstOf(s.GetVerdict(), unknown))
	fmt.Fprintf(&b, "%s of %s, up %s, %s UTC\n", s.GetRegion(), s.GetFederation(), sinceText(s.GetStartedUnixNano(), now), now.UTC().Format(time.DateTime))
	b.WriteString(seatText(s.GetSeat(), now))
	section(&b, "Links"+saidBy(s.GetFrom()), linkRows(s.GetLinks(), now), "none in the manifest")
	b.WriteString("\nLogs in trouble" + saidBy(s.GetFrom()) + "\n")
	if len(s.GetTroubles()) == 0 {
		b.WriteString(noTrouble(s))
	}
	for _, t := range s.GetTroubles() {
		writeTrouble(&b, t, s.GetRegion())
	}
	section(&b, "Policy and manifest", policyRows(s, now), unknown)
	section(&b, "Certificates", certificateRows(s.GetCertificates(), now), unknown)
	section(&b, "This node", nodeRows(s), unknown)
	if len(s.GetEvidence()) > 0 {
		section(&b, "Proven by drills", evidenceRows(s.GetEvidence(), now), "")
	}
	section(&b, "Heals by itself", lines(s.GetHeals()), "nothing to heal")
	section(&b, "What you can do", lines(s.GetAdvice()), nothingToDo(s))
	return b.String()
}

// evidenceRows say how old each proof is. What was never measured is never said to be good.
func evidenceRows(list []*pb.EvidenceState, now time.Time) (rows [][]string) {
	for _, e := range list {
		what, figures := "isolation", "of this region, or of another from it"
		if e.GetTopic() != "" {
			what = "RTO of " + e.GetTopic()
			figures = fmt.Sprintf("%s, the oldest record left behind was %s old", regions.Span(time.Duration(e.GetRtoNano())), regions.Span(time.Duration(e.GetRpoNano())))
		}
		if e.GetDrill() == "" {
			rows = append(rows, []string{what, "never"})
			continue
		}
		rows = append(rows, []string{what, "proven " + sinceText(e.GetAtUnixNano(), now) + " ago", figures + " (drill " + e.GetDrill() + ")"})
	}
	return rows
}

// nothingToDo stands for an empty list of advice. It says that all is well only where
// nothing else says otherwise.
func nothingToDo(s *pb.StatusResponse) string {
	if s.GetLevel() == "ok" && len(s.GetWarnings()) == 0 {
		return "nothing: all is well"
	}
	return "nothing here"
}

func section(b *strings.Builder, title string, rows [][]string, empty string) {
	fmt.Fprintf(b, "\n%s\n", title)
	if len(rows) == 0 {
		rows = [][]string{{empty}}
	}
	table(b, "  ", rows)
}

func lines(texts []string) [][]string {
	rows := make([][]string, 0, len(texts))
	for _, t := range texts {
		rows = append(rows, []string{t})
	}
	return rows
}

// sinceText is how long ago an instant was; 0 is unknown.
func sinceText(nano int64, now time.Time) string {
	if nano == 0 {
		return unknown
	}
	return regions.Span(max(now.Sub(nanoTime(nano)), 0))
}

func linkRows(links []*pb.LinkState, now time.Time) [][]string {
	var rows [][]string
	for _, l := range links {
		since := "since " + unknown
		if l.GetSinceUnixNano() != 0 {
			since = fmt.Sprintf("since %s (%s)", clockTime(nanoTime(l.GetSinceUnixNano()), now), sinceText(l.GetSinceUnixNano(), now))
		}
		rows = append(rows, []string{l.GetPeer(), firstOf(l.GetState(), unknown), since, directionText(l), linkDetail(l, now)})
		if l.GetState() != "up" && l.GetReason() != "" {
			rows = append(rows, []string{"", "because: " + l.GetReason()})
		}
	}
	return rows
}

func directionText(l *pb.LinkState) string {
	if l.GetState() == "up" {
		return "both directions"
	}
	switch l.GetDirection() {
	case "out":
		return "we do not reach it"
	case "in":
		return "it does not reach us"
	case "both":
		return "neither direction"
	}
	return ""
}

func linkDetail(l *pb.LinkState, now time.Time) string {
	var parts []string
	if l.GetState() == "up" {
		parts = append(parts, "clock "+offsetText(l))
	} else {
		heard := "not heard in this run"
		if l.GetLastHeardUnixNano() != 0 {
			heard = "last heard " + sinceText(l.GetLastHeardUnixNano(), now) + " ago"
		}
		parts = append(parts, heard)
	}
	if l.GetFault() != "" {
		parts = append(parts, "held by a fault on purpose: "+l.GetFault())
	}
	return strings.Join(parts, ", ")
}

func offsetText(l *pb.LinkState) string {
	if !l.GetOffsetKnown() {
		return unknown
	}
	text := fmt.Sprintf("%+.3fs ± %.3fs", l.GetOffsetSeconds(), l.GetOffsetErrorSeconds())
	if !l.GetSecondsTrusted() {
		text += ", seconds not to be trusted"
	}
	return text
}

func writeTrouble(b *strings.Builder, t *pb.LogTrouble, self string) {
	lag := t.GetLag()
	name := logName(t.GetLog())
	if lag != nil {
		name += ", copy in " + lag.GetTarget()
	}
	fmt.Fprintf(b, "  %s: %s\n", name, stateText(t.GetState()))
	rows := [][]string{
		{"producers", firstOf(t.GetProducers(), unknown)},
		{"consumers", firstOf(t.GetConsumers(), unknown)},
	}
	if lag != nil {
		rows = append(rows, []string{"staleness", stalenessText(lag)}, []string{"exposure", exposureText(lag)},
			[]string{"last heard", knowledgeText(lag)})
	}
	if t.GetRoom() != "" {
		rows = append(rows, []string{"room", t.GetRoom()})
	}
	// What was agreed for the loss of a home concerns those who lost it.
	if t.GetHome() != self && (t.GetOwner() != "" || t.GetText() != "") {
		rows = append(rows, []string{"agreed", t.GetText()}, []string{"owner", t.GetOwner()})
	}
	table(b, "    ", rows)
}

func policyRows(s *pb.StatusResponse, now time.Time) [][]string {
	var rows [][]string
	for _, p := range s.GetPolicies() {
		if p.GetManifestDigest() == "" {
			rows = append(rows, []string{p.GetRegion(), "policy " + unknown, "manifest " + unknown})
			continue
		}
		policy, manifest := unknown, "same manifest as here"
		if p.GetKnown() {
			policy = firstOf(p.GetRevision(), "none active")
		}
		switch {
		case p.GetRegion() == s.GetRegion():
			manifest = "this region"
		case !p.GetManifestEqual():
			manifest = "DIFFERENT MANIFEST"
		}
		heard := ""
		if p.GetHeardUnixNano() != 0 {
			heard = "heard " + sinceText(p.GetHeardUnixNano(), now) + " ago"
		}
		rows = append(rows, []string{p.GetRegion(), "policy " + policy, "manifest " + p.GetManifestDigest(), manifest, heard})
		for _, d := range p.GetDifferences() {
			rows = append(rows, []string{"", "differs: " + d})
		}
	}
	if c := s.GetCandidate(); c != "" {
		rows = append(rows, []string{"", "a changed policy directory waits: " + c[:min(len(c), 8)] + " (domicile policy reload)"})
	}
	return rows
}

func certificateRows(certs []*pb.CertificateState, now time.Time) [][]string {
	var rows [][]string
	for _, c := range certs {
		left, ends := unknown, ""
		if c.GetEndsUnixNano() != 0 {
			end := nanoTime(c.GetEndsUnixNano())
			ends = "until " + end.Format(time.DateOnly)
			left = "ENDED"
			if end.After(now) {
				left = fmt.Sprintf("%d days left", int(end.Sub(now).Hours()/24))
			}
		}
		rows = append(rows, []string{c.GetName(), c.GetKind(), left, ends})
	}
	return rows
}

func nodeRows(s *pb.StatusResponse) [][]string {
	var rows [][]string
	if st := s.GetStorage(); st != nil {
		state := "disk healthy"
		switch {
		case st.GetHealthy() && st.GetReason() != "":
			state = "DISK FULL: " + st.GetReason()
		case !st.GetHealthy():
			state = "DISK FAILED: " + firstOf(st.GetReason(), unknown)
		}
		rows = append(rows, []string{"storage", fmt.Sprintf("%s, %s of %s used, acks prove %s", state, regions.Bytes(st.GetUsedBytes()), regions.Bytes(st.GetLimitBytes()), firstOf(st.GetDurability(), unknown))})
	}
	if c := s.GetClock(); c != nil {
		step := "no step since start"
		if d := seconds(c.GetStepSeconds()); d.Abs() >= 10*time.Millisecond {
			step = fmt.Sprintf("the wall clock stepped by %+.3fs since start; own time did not", d.Seconds())
		}
		rows = append(rows, []string{"clock", step})
	}
	rows = append(rows, []string{"version", firstOf(s.GetVersion(), unknown)})
	for _, w := range s.GetWarnings() {
		rows = append(rows, []string{"warning", w})
	}
	return rows
}
