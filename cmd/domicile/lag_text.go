package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

func logName(l *pb.LogId) string {
	return api.LogID{Tenant: l.GetTenant(), Topic: l.GetTopic(), Slot: l.GetSlot()}.String()
}

// stateWords put a flow's state into words.
var stateWords = map[regions.LagState]string{
	regions.LagHome:            "home",
	regions.LagCaughtUp:        "caught up",
	regions.LagCatchingUp:      "catching up",
	regions.LagStalled:         "stalled",
	regions.LagLinkDown:        "link down",
	regions.LagTargetFull:      "copy is full",
	regions.LagPolicySkew:      "waits for the newer policy there",
	regions.LagManifestDiffers: "declared differently there",
	regions.LagIncarnation:     "origin is another log now",
	regions.LagCursorAhead:     "copy is ahead of its origin",
	regions.LagUnknown:         unknown,
}

func stateText(state string) string {
	if words, ok := stateWords[regions.LagState(state)]; ok {
		return words
	}
	return firstOf(strings.ToLower(strings.ReplaceAll(state, "_", " ")), unknown)
}

func stalenessText(l *pb.LogLag) string {
	if !l.GetStalenessKnown() {
		return unknown
	}
	text := regions.Span(seconds(l.GetStalenessSeconds())) + " ± " + regions.Span(seconds(l.GetStalenessErrorSeconds()))
	if !l.GetSecondsTrusted() {
		text += " (clocks not trusted)"
	}
	return text
}

func exposureText(l *pb.LogLag) string {
	if !l.GetExposureKnown() {
		return unknown
	}
	return regions.Span(seconds(l.GetExposureSeconds()))
}

func knowledgeText(l *pb.LogLag) string {
	if !l.GetKnowledgeKnown() {
		return "never heard in this run"
	}
	return regions.Span(seconds(l.GetKnowledgeAgeSeconds())) + " ago"
}

func recordsText(l *pb.LogLag) string {
	if !l.GetRecordsKnown() {
		return unknown
	}
	return count(l.GetRecords())
}

func pendingBytesText(l *pb.LogLag) string {
	if !l.GetBytesKnown() {
		return unknown
	}
	return regions.Bytes(l.GetBytes())
}

// lossTexts say what retention will do, or did, to records that a copy does not have.
func lossTexts(l *pb.LogLag) []string {
	var out []string
	who := logName(l.GetLog()) + " to " + l.GetTarget() + ": "
	switch regions.LossState(l.GetLossState()) {
	case regions.LossAhead:
		out = append(out, who+"at the present rates retention takes records the copy does not have in "+regions.Span(seconds(l.GetLossSeconds())))
	case regions.LossRefusal:
		out = append(out, who+"the topic holds records for it; at the present rates appends are refused in "+regions.Span(seconds(l.GetLossSeconds())))
	}
	for _, lost := range l.GetLost() {
		out = append(out, who+lost)
	}
	return out
}

// renderLag is the table of one answer. A log's own home is behind nothing and has
// no figures.
func renderLag(r *pb.LagResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s UTC%s\n", r.GetRegion(), nanoTime(r.GetNowUnixNano()).Format(time.DateTime), saidBy(r.GetFrom()))
	var losses []string
	var causes []string // below the table: they are long, and often the same
	rows := [][]string{{"LOG", "FROM", "TO", "STATE", "LAG", "EXPOSURE", "RECORDS", "BYTES", "KNOWN AS OF"}}
	for _, l := range r.GetLogs() {
		if regions.LagState(l.GetState()) == regions.LagHome {
			rows = append(rows, []string{logName(l.GetLog()), l.GetHome(), l.GetTarget(), "home"})
			continue
		}
		if c := l.GetCause(); c != "" && !slices.Contains(causes, c) {
			causes = append(causes, c)
		}
		losses = append(losses, lossTexts(l)...)
		rows = append(rows, []string{logName(l.GetLog()), l.GetHome(), l.GetTarget(), stateText(l.GetState()),
			stalenessText(l), exposureText(l), recordsText(l), pendingBytesText(l), knowledgeText(l)})
	}
	if len(rows) == 1 {
		return b.String() + "no logs here\n"
	}
	table(&b, "", rows)
	for _, c := range causes {
		b.WriteString("because: " + c + "\n")
	}
	for _, l := range losses {
		b.WriteString("note: " + l + "\n")
	}
	return b.String()
}
