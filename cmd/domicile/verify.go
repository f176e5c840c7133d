package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
)

// shownRanges is how many ranges of damage a line of text names; JSON has them all.
const shownRanges = 10

func (a *app) topicVerify() *cobra.Command {
	var q pb.VerifyTopicRequest
	var within time.Duration
	cmd := &cobra.Command{
		Use: "verify [TOPIC]", Short: "Read a region's logs from the disk and hold every record against its checksum",
		Long: `The node that has the logs open reads them whole from its own disk, at most 64 MiB a
second, one audit at a time; it serves all the while. What is damaged or missing is named
by its sequences: readers and mirrors get a gap there, and status says so from then on. In
a region of three nodes each reads its own disk, and readers get what the others have: start
a node whose disk is damaged once with serve --rejoin, and the others fill it again.
Exit code 2: something is damaged. 4: a log could not be read to its end.`,
		Example: "  domicile topic verify orders --log eu-west --context eu-west",
		Args:    arguments(0, 1, "at most a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Topic = args[0]
			} else if q.Slot != "" {
				return usage("topic verify: --log needs a TOPIC")
			}
			if within <= 0 {
				return usage("--within %s: how long may it take?", within)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			return a.verify(ctx, &q)
		},
	}
	cmd.Flags().StringVar(&q.Slot, "log", "", "one log of the topic: a region, or home; all that are here otherwise")
	cmd.Flags().DurationVar(&within, "within", time.Hour, "give up after this long")
	return cmd
}

func (a *app) verify(ctx context.Context, q *pb.VerifyTopicRequest) error {
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	var logs []*pb.VerifyTopicResponse
	err = c.VerifyTopic(ctx, q, func(m *pb.VerifyTopicResponse) error {
		logs = append(logs, m)
		return nil
	})
	if err != nil && len(logs) == 0 {
		return asked(err)
	}
	if a.json() {
		if err := a.printJSON(viewAudit(logs, err)); err != nil {
			return err
		}
	} else if _, err := io.WriteString(a.out, renderAudit(logs, err)); err != nil {
		return err
	}
	return ended(auditCode(logs, err))
}

// auditCode: damage counts before what nobody could look at.
func auditCode(logs []*pb.VerifyTopicResponse, err error) exitCode {
	code := exitOK
	if err != nil {
		code = exitUnknown
	}
	for _, l := range logs {
		switch {
		case l.GetDamaged() > 0 || l.GetMarkersDamaged() > 0:
			return exitRefused
		case l.GetStopped() != "":
			code = exitUnknown
		}
	}
	return code
}

func renderAudit(logs []*pb.VerifyTopicResponse, err error) string {
	var b strings.Builder
	if len(logs) == 0 && err == nil {
		return "this region holds no log\n"
	}
	rows := [][]string{{"LOG", "KIND", "RECORDS", "VERIFIED", "WITHOUT CHECKSUM", "DAMAGED", "RESULT"}}
	for _, l := range logs {
		name := logName(l.GetLog())
		if l.GetNode() != "" {
			name += " on " + l.GetNode()
		}
		row := []string{name, l.GetRole()}
		for _, n := range []uint64{l.GetRecords(), l.GetChecked(), l.GetWithoutSum(), l.GetDamaged()} {
			switch {
			case l.GetStopped() == "":
				row = append(row, count(n))
			case n == 0:
				row = append(row, unknown)
			default:
				row = append(row, "at least "+count(n))
			}
		}
		row = append(row, auditResult(l))
		rows = append(rows, row)
	}
	table(&b, "", rows)
	if err != nil {
		fmt.Fprintln(&b, "the logs that are not named were not read to their end:", oneLine(err.Error()))
	}
	return b.String()
}

func auditResult(l *pb.VerifyTopicResponse) string {
	var out []string
	if l.GetDamaged() > 0 {
		out = append(out, "damaged: "+rangesText(l))
	}
	if n := l.GetMarkersDamaged(); n > 0 {
		out = append(out, "damaged markers of the store's own: "+count(n))
	}
	if s := l.GetStopped(); s != "" {
		out = append(out, "not read to its end: "+oneLine(s))
	}
	switch {
	case len(out) > 0:
	case l.GetRecords() == 0:
		out = append(out, "empty")
	case l.GetWithoutSum() > 0:
		out = append(out, "intact, as far as the old format can tell")
	default:
		out = append(out, "intact")
	}
	return strings.Join(out, "; ")
}

func rangesText(l *pb.VerifyTopicResponse) string {
	ranges := l.GetRanges()
	var out []string
	for _, r := range ranges[:min(len(ranges), shownRanges)] {
		if r.GetFrom() == r.GetTo() {
			out = append(out, fmt.Sprint(r.GetFrom()))
		} else {
			out = append(out, fmt.Sprintf("%d to %d", r.GetFrom(), r.GetTo()))
		}
	}
	text := strings.Join(out, ", ")
	if len(ranges) > shownRanges || !l.GetRangesWhole() {
		text += " and more"
	}
	return text
}

type auditView struct {
	Logs  []auditedView `json:"logs"`
	Error string        `json:"error,omitempty"` // why other logs are not there
}

type auditedView struct {
	Log         string      `json:"log"`
	Node        string      `json:"node,omitempty"` // of a region of three: whose disk was read
	Kind        string      `json:"kind"`
	From        uint64      `json:"from"`
	To          uint64      `json:"to"`
	Records     uint64      `json:"records"`
	Verified    uint64      `json:"verified"`
	WithoutSum  uint64      `json:"without_checksum"`
	Damaged     uint64      `json:"damaged"`
	Ranges      [][2]uint64 `json:"damaged_ranges"`
	RangesWhole bool        `json:"damaged_ranges_whole"`
	Markers     uint64      `json:"damaged_markers,omitempty"` // the store's own messages
	Whole       bool        `json:"whole"`                     // the log was read to its end
	Stopped     string      `json:"stopped,omitempty"`
}

func viewAudit(logs []*pb.VerifyTopicResponse, err error) auditView {
	v := auditView{Logs: []auditedView{}}
	for _, l := range logs {
		a := auditedView{Log: logName(l.GetLog()), Node: l.GetNode(), Kind: l.GetRole(), From: l.GetFrom(), To: l.GetTo(), Records: l.GetRecords(), Verified: l.GetChecked(),
			WithoutSum: l.GetWithoutSum(), Damaged: l.GetDamaged(), Ranges: [][2]uint64{}, RangesWhole: l.GetRangesWhole(), Markers: l.GetMarkersDamaged(), Whole: l.GetStopped() == "", Stopped: l.GetStopped()}
		for _, r := range l.GetRanges() {
			a.Ranges = append(a.Ranges, [2]uint64{r.GetFrom(), r.GetTo()})
		}
		v.Logs = append(v.Logs, a)
	}
	if err != nil {
		v.Error = oneLine(err.Error())
	}
	return v
}
