package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

func (a *app) configReload() *cobra.Command {
	var q pb.ReloadManifestRequest
	cmd := &cobra.Command{
		Use: "reload", Short: "Have a node carry out its changed federation.yaml",
		Long: `The node reads federation.yaml and its policy again and carries out what changed of
topics: new ones are opened, changed ones get their new bounds and mirrors, removed ones
are served no more and keep their data. All of it or nothing is done. Regions,
boundaries and links change with a restart. Until every region has read the same file, a
topic that two regions declare differently is neither forwarded nor mirrored between
them.`,
		Example: "  domicile config reload --check --context eu-west",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r *pb.ReloadManifestResponse
			err := a.change(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				r, err = c.ReloadManifest(ctx, &q)
				return err
			})
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(viewManifest(r))
			}
			_, err = io.WriteString(a.out, renderManifest(r, q.Check))
			return err
		},
	}
	cmd.Flags().BoolVar(&q.Check, "check", false, "say what would be done, and do nothing")
	forced(cmd, &q.Force, &q.Reason)
	return cmd
}

// forced are the flags of what may lose records.
func forced(cmd *cobra.Command, force *bool, reason *string) {
	cmd.Flags().BoolVar(force, "force", false, "also if records would be lost that are not copied yet")
	cmd.Flags().StringVar(reason, "reason", "", "why, with --force; kept in the region's audit")
}

// change runs something that changes a node. What came of it when the answer is lost
// nobody knows; any other error refused it.
func (a *app) change(ctx context.Context, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	switch err := do(ctx, c); api.CodeOf(err) {
	case "", api.OutcomeUnknown, api.NotCopied, api.NotReady, api.PermissionDenied:
		return err
	default:
		return checkFailed{err}
	}
}

var didWords = map[string]string{regions.Declare: "new", regions.Alter: "changed", regions.Remove: "removed"}

func renderManifest(r *pb.ReloadManifestResponse, check bool) string {
	var b strings.Builder
	switch {
	case !r.GetChanged():
		return "federation.yaml " + r.GetDigest() + " was in force already\n"
	case check:
		fmt.Fprintf(&b, "federation.yaml %s would be accepted, in force is %s\n", r.GetDigest(), r.GetPrevious())
	default:
		fmt.Fprintf(&b, "federation.yaml %s is in force now, before it %s; policy %s\n", r.GetDigest(), r.GetPrevious(), firstOf(r.GetPolicyRevision(), "none"))
	}
	for _, t := range r.GetTopics() {
		fmt.Fprintf(&b, "topic %s: %s\n", t.GetTopic(), firstOf(didWords[t.GetWhat()], t.GetWhat()))
		for _, f := range t.GetFields() {
			fmt.Fprintln(&b, "  "+f)
		}
	}
	for _, l := range r.GetLogs() {
		fmt.Fprintf(&b, "%s here: %s %s\n", firstOf(didWords[l.GetWhat()], l.GetWhat()), l.GetRole(), logName(l.GetLog()))
	}
	for _, n := range r.GetNotes() {
		fmt.Fprintln(&b, "note:", n)
	}
	return b.String()
}

type manifestView struct {
	Changed  bool              `json:"changed"`
	Digest   string            `json:"manifest_digest"`
	Previous string            `json:"previous"`
	Policy   string            `json:"policy_revision"`
	Topics   []topicChangeView `json:"topics"`
	Logs     []logStepView     `json:"logs"`
	Notes    []string          `json:"notes,omitempty"`
}

type topicChangeView struct {
	Topic  string   `json:"topic"`
	What   string   `json:"what"`
	Fields []string `json:"fields,omitempty"`
}

type logStepView struct {
	Log  string `json:"log"`
	What string `json:"what"`
	Role string `json:"role"`
}

func viewManifest(r *pb.ReloadManifestResponse) manifestView {
	v := manifestView{Changed: r.GetChanged(), Digest: r.GetDigest(), Previous: r.GetPrevious(), Policy: r.GetPolicyRevision(),
		Topics: []topicChangeView{}, Logs: []logStepView{}, Notes: r.GetNotes()}
	for _, t := range r.GetTopics() {
		v.Topics = append(v.Topics, topicChangeView{t.GetTopic(), t.GetWhat(), t.GetFields()})
	}
	for _, l := range r.GetLogs() {
		v.Logs = append(v.Logs, logStepView{logName(l.GetLog()), l.GetWhat(), l.GetRole()})
	}
	return v
}

func (a *app) topicDelete() *cobra.Command {
	var q pb.TopicActRequest
	cmd := &cobra.Command{
		Use: "delete TOPIC", Short: "Delete what a region holds of a topic",
		Long: `Deletes the logs and copies of a topic in one region. A log has to be out of
federation.yaml first (config reload); a copy that is still declared is copied anew
once its log gets another record.
Refused while a target does not have all records yet, unless forced; each act is in the
audit of the region, acts.jsonl in its data directory.`,
		Example: "  domicile topic delete orders --context eu-west",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Topic = args[0]
			return a.act(cmd.Context(), "deleted", func(ctx context.Context, c *client.Client) (*pb.TopicActResponse, error) {
				return c.DeleteTopic(ctx, &q)
			})
		},
	}
	cmd.Flags().StringVar(&q.Slot, "log", "", "one log of the topic: a region, or home; all that are here otherwise")
	forced(cmd, &q.Force, &q.Reason)
	return cmd
}

func (a *app) topicPurge() *cobra.Command {
	var q pb.TopicActRequest
	var before string
	cmd := &cobra.Command{
		Use: "purge TOPIC", Short: "Take records out of the front of a topic's logs in a region",
		Long: `Takes out what came before a time, up to a sequence, or all. Readers and copies get a
gap of kind purged with the exact range. Refused while a target does not have these
records yet, unless forced; each act is in the audit of the region, acts.jsonl in its
data directory. Records that other regions have copied stay there.`,
		Example: "  domicile topic purge orders --log eu-west --to-sequence 1200 --context eu-west",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Topic = args[0]
			if n := truths(q.All, before != "", q.ToSequence > 0); n != 1 {
				return usage("topic purge needs one of --before, --to-sequence and --all")
			}
			if before != "" {
				var err error
				if q.BeforeUnixNano, err = purgeBefore(before); err != nil {
					return err
				}
			}
			return a.act(cmd.Context(), "purged", func(ctx context.Context, c *client.Client) (*pb.TopicActResponse, error) {
				return c.PurgeTopic(ctx, &q)
			})
		},
	}
	cmd.Flags().StringVar(&q.Slot, "log", "", "one log of the topic: a region, or home; all that are here otherwise")
	cmd.Flags().StringVar(&before, "before", "", "what was ingested before this time, RFC 3339")
	cmd.Flags().Uint64Var(&q.ToSequence, "to-sequence", 0, "up to and with this sequence")
	cmd.Flags().BoolVar(&q.All, "all", false, "everything that is stored now")
	forced(cmd, &q.Force, &q.Reason)
	return cmd
}

// purgeBefore reads --before. What nanoseconds since 1970 cannot say is refused.
func purgeBefore(text string) (int64, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !at.After(time.Unix(0, 0)) || at.Year() > 2261 {
		return 0, usage("--before: write a time as 2026-11-29T12:00:00Z, after 1970")
	}
	return at.UnixNano(), nil
}

func truths(all ...bool) (n int) {
	for _, t := range all {
		if t {
			n++
		}
	}
	return n
}

type actView struct {
	Log         string `json:"log"`
	Role        string `json:"role"`
	Incarnation string `json:"incarnation"`
	From        uint64 `json:"from,omitempty"`
	To          uint64 `json:"to"`
	Records     uint64 `json:"records"`
}

func (a *app) act(ctx context.Context, did string, do func(context.Context, *client.Client) (*pb.TopicActResponse, error)) error {
	var r *pb.TopicActResponse
	err := a.change(ctx, func(ctx context.Context, c *client.Client) (err error) {
		r, err = do(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	views := []actView{}
	for _, l := range r.GetLogs() {
		views = append(views, actView{logName(l.GetLog()), l.GetRole(), l.GetIncarnation(), l.GetFrom(), l.GetTo(), l.GetRecords()})
	}
	if a.json() {
		return a.printJSON(map[string]any{"logs": views})
	}
	for _, v := range views {
		switch {
		case v.To == 0:
			fmt.Fprintf(a.out, "%s (%s): nothing was there\n", v.Log, v.Role)
		case v.From == 0:
			fmt.Fprintf(a.out, "%s (%s): %s, %s records, last sequence %d\n", v.Log, v.Role, did, count(v.Records), v.To)
		default:
			fmt.Fprintf(a.out, "%s (%s): %s %d to %d, %s records\n", v.Log, v.Role, did, v.From, v.To, count(v.Records))
		}
	}
	return nil
}
