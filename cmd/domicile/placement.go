package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/placement"
)

func (a *app) placementCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "placement", Short: "Show where the logs that may move are, and why; let one go further",
		Example: "  domicile placement ls",
	}
	group.AddCommand(
		a.placementView("ls", "List the logs that may move, and their homes", 0, func(b *strings.Builder, m *pb.PlacementsResponse) {
			rows := [][]string{{"LOG", "HOME", "EPOCH", "STATUS", "CUT OFF", "LEASE"}}
			for _, l := range m.GetLogs() {
				rows = append(rows, placedRow(l))
			}
			table(b, "", rows)
		}),
		a.placementView("show", "Show one topic's logs with the terms of moving them", 1, func(b *strings.Builder, m *pb.PlacementsResponse) {
			for _, l := range m.GetLogs() {
				section(b, logName(l.GetLog()), placedRows(l), unknown)
			}
		}),
		a.placementView("history", "List the epochs of one topic's logs, and how each ended", 1, func(b *strings.Builder, m *pb.PlacementsResponse) {
			for _, l := range m.GetLogs() {
				section(b, logName(l.GetLog()), epochRows(l), unknown)
			}
		}),
		a.placementView("explain", "Say in words why one topic's logs are where they are", 1, func(b *strings.Builder, m *pb.PlacementsResponse) {
			for _, l := range m.GetLogs() {
				section(b, logName(l.GetLog()), paragraphs(l.GetExplain()), unknown)
			}
		}),
		a.placementWiden(),
	)
	return group
}

// placementView is a command that asks for placements and prints them in its own way.
func (a *app) placementView(name, says string, topics int, render func(*strings.Builder, *pb.PlacementsResponse)) *cobra.Command {
	use, example, names := name, "  domicile placement "+name, ""
	if topics > 0 {
		use, example, names = name+" TOPIC", example+" orders", "a TOPIC"
	}
	return &cobra.Command{
		Use: use, Short: says, Example: example, Args: arguments(topics, topics, names),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.placements(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(viewPlacements(m))
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%s at %s UTC, %s\n", m.GetRegion(), nanoTime(m.GetNowUnixNano()).Format(time.DateTime), authorityText(m.GetAuthority()))
			render(&b, m)
			_, err = io.WriteString(a.out, b.String())
			return err
		},
	}
}

func (a *app) placements(ctx context.Context, topic string) (*pb.PlacementsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m, err := c.Placements(ctx, topic, "")
	return m, asked(err)
}

func epochText(e *pb.Epoch) string { return wire.EpochFromProto(e).String() }

// authorityText says how far what is shown can be counted on.
func authorityText(s *pb.AuthorityState) string {
	switch {
	case len(s.GetVoters()) == 0:
		return "no authority: no log of this federation moves"
	case s.GetName() == "":
		return "nothing was ever heard of the authority here"
	case s.GetReached():
		return fmt.Sprintf("as the authority has it (generation %d, version %d)", s.GetGeneration(), s.GetVersion())
	case s.GetHeard():
		return fmt.Sprintf("AUTHORITY OUT OF REACH, last answer %s ago (generation %d, version %d)", regions.Span(time.Duration(s.GetAnsweredNanoAgo())), s.GetGeneration(), s.GetVersion())
	}
	return fmt.Sprintf("as of this node's copy (generation %d, version %d); it has not asked the authority itself", s.GetGeneration(), s.GetVersion())
}

func placedRow(l *pb.PlacedLog) []string {
	if !l.GetKnown() {
		return []string{logName(l.GetLog()), unknown, unknown, unknown, "the authority is not known to have it"}
	}
	return []string{logName(l.GetLog()), l.GetHome(), epochText(l.GetEpoch()), placedStatus(l), isolationText(l), leaseText(l)}
}

func placedStatus(l *pb.PlacedLog) string {
	text := l.GetStatus()
	if m := l.GetMove(); m != nil {
		text += fmt.Sprintf(" (%s to %s, %s)", m.GetKind(), m.GetTarget(), m.GetStep())
	}
	if l.GetRefused() != "" {
		text += " " + l.GetRefused()
	}
	return text
}

func isolationText(l *pb.PlacedLog) string {
	if l.GetFenceAfterNano() > 0 {
		return "stops after " + time.Duration(l.GetFenceAfterNano()).String()
	}
	return "goes on, acks unconfirmed"
}

// leaseText is about this region's own lease; nothing for a log that needs none here.
func leaseText(l *pb.PlacedLog) string {
	switch {
	case !l.GetLeaseKnown():
		return ""
	case l.GetLeaseLeftNano() == 0:
		return "RUN OUT"
	}
	return regions.Span(time.Duration(l.GetLeaseLeftNano())) + " left"
}

func placedRows(l *pb.PlacedLog) [][]string {
	if !l.GetKnown() {
		return [][]string{{"home", "by the manifest " + l.GetFirstHome()}, {"", strings.Join(l.GetExplain(), "; ")}}
	}
	rows := [][]string{
		{"home", l.GetHome() + ", by the manifest " + l.GetFirstHome()}, {"epoch", epochText(l.GetEpoch())}, {"status", placedStatus(l)},
		{"may rest in", strings.Join(l.GetAllowed(), ", ")}, {"may move to", firstOf(strings.Join(without(l.GetTargets(), l.GetHome()), ", "), "nowhere")},
		{"cut off", isolationText(l)}, {"rpo", time.Duration(l.GetRpoNano()).String()}, {"approvals", fmt.Sprint(l.GetApprovals())},
	}
	if l.GetFenceAfterNano() > 0 {
		rows = append(rows, []string{"", "fence_after gives up publishing while this region is cut off"})
	}
	if text := leaseText(l); text != "" {
		rows = append(rows, []string{"lease", text})
	}
	if !l.GetDeclaredAlike() {
		rows = append(rows, []string{"declared", "otherwise here than the authority has it: it does not move"})
	}
	for _, t := range l.GetTails() {
		rows = append(rows, []string{"beyond an end", fmt.Sprintf("%s holds %d to %d of epoch %s (%s records or gaps): %s", t.GetRegion(), t.GetFrom(), t.GetTo(), epochText(t.GetEpoch()), count(t.GetCount()), t.GetFate())})
	}
	return append(rows, []string{"incarnation", l.GetIncarnation()}, []string{"last change", firstOf(l.GetReason(), unknown) + ", by " + firstOf(l.GetActor(), unknown)})
}

func without(list []string, out string) []string {
	var left []string
	for _, s := range list {
		if s != out {
			left = append(left, s)
		}
	}
	return left
}

func epochRows(l *pb.PlacedLog) [][]string {
	if !l.GetKnown() {
		return [][]string{{strings.Join(l.GetExplain(), "; ")}}
	}
	rows := [][]string{{"EPOCH", "HOME", "ENDED", "AT", "MAY BE LOST"}}
	for _, e := range l.GetHistory() {
		end := "not settled: its successor has not opened"
		if e.GetEndKnown() {
			end = fmt.Sprint(e.GetEnd())
		}
		rows = append(rows, []string{epochText(e.GetEpoch()), e.GetHome(), firstOf(strings.Trim(e.GetHow()+", "+e.GetProof(), ", "), unknown), end, lossOf(e)})
	}
	return append(rows, []string{epochText(l.GetEpoch()), l.GetHome(), "goes on"})
}

// openEnded: the old home was allowed to go on, so that what was behind when the cut was fixed
// bounds nothing. Where no record is behind, it could acknowledge none without the new home.
func openEnded(e *pb.PastEpoch) bool {
	return e.GetProof() == string(placement.Diverges) && !(e.GetRecordsKnown() && e.GetRecords() == 0)
}

// lossOf is the bound of what a forced move left behind. What is not known is not nothing.
func lossOf(e *pb.PastEpoch) string {
	switch e.GetCompared() {
	case placement.ComparedSame:
		return "nothing: its copy was compared with it"
	case placement.NotCompared:
		return "nothing, by its own count: the copy was not compared"
	}
	if e.GetHow() != "forced" {
		return ""
	}
	span, records := unknown, unknown
	if e.GetSpanKnown() {
		if span = time.Duration(e.GetSpanNano()).String(); openEnded(e) {
			span += " when the cut was fixed, and it may have gone on"
		}
	}
	if e.GetRecordsKnown() {
		records = count(e.GetRecords())
	}
	return "time " + span + ", records " + records
}
