package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

func (a *app) tailCommand() *cobra.Command {
	var from string
	var follow bool
	var limit uint64
	cmd := &cobra.Command{
		Use:   "tail TOPIC[@REGION]",
		Short: "Read a topic from the copies that this region holds",
		Long: `Reads all of a topic's logs that are here, or one of them. What the policy keeps from
this region or from you is counted on standard error, never shown.`,
		Example: "  domicile tail orders@eu-west --from start --follow=false",
		Args:    arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := readRequest(args[0], from, follow, a.now())
			if err != nil {
				return err
			}
			c, err := a.dial(toDoor)
			if err != nil {
				return err
			}
			defer c.Close()
			request.MaxRecords = uint32(min(limit, batchRecords)) // a batch that ends at the limit gives its position
			v := &viewer{app: a, limit: limit, notes: map[string]string{}}
			err = c.Read(cmd.Context(), request, v.batch)
			if errors.Is(err, errLimit) || interrupted(cmd.Context(), err) {
				return nil
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "now", "start, now, a time (2006-01-02T15:04:05Z), a length of time ago (10m), or a position")
	flags.BoolVarP(&follow, "follow", "f", true, "go on when the end is reached")
	flags.Uint64Var(&limit, "limit", 0, "stop after so many records; 0: no limit")
	return cmd
}

func readRequest(target, from string, follow bool, now time.Time) (*pb.ReadRequest, error) {
	topic, slot, given := strings.Cut(target, "@")
	if topic == "" || given && slot == "" {
		return nil, usage("%q: write TOPIC or TOPIC@REGION", target)
	}
	r := &pb.ReadRequest{Topic: topic, Slot: slot, Follow: follow}
	switch {
	case from == "start":
	case from == "now":
		r.From = &pb.ReadRequest_Latest{Latest: true}
	case strings.HasPrefix(from, "p1."):
		if _, err := api.DecodePosition(api.Position(from)); err != nil {
			return nil, err
		}
		r.From = &pb.ReadRequest_Position{Position: from}
	default:
		t, err := startTime(from, now)
		if err != nil {
			return nil, err
		}
		r.From = &pb.ReadRequest_TimeUnixNano{TimeUnixNano: t.UnixNano()}
	}
	return r, nil
}

func startTime(from string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, from); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(from); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usage("--from %q: write start, now, a time such as 2026-03-01T10:00:00Z, a length of time such as 10m, or a position", from)
}

// batchRecords is the most records that a read asks for at once.
const batchRecords = 500

// errLimit ends a read after the records that were asked for.
var errLimit = errors.New("limit reached")

// viewer prints the records of one read.
type viewer struct {
	app   *app
	limit uint64
	shown uint64
	notes map[string]string // log → what was last said of it
}

func (v *viewer) batch(b *pb.ReadResponse) error {
	for i, r := range b.GetRecords() {
		position := ""
		if i == len(b.GetRecords())-1 {
			position = b.GetPosition()
		}
		if err := v.record(r, position); err != nil {
			return err
		}
		if v.shown++; v.limit > 0 && v.shown == v.limit {
			return errLimit
		}
	}
	for _, l := range b.GetLogs() {
		v.note(l)
	}
	return nil
}

// note says on stderr, when it changes, what a reader of a log does not get.
func (v *viewer) note(l *pb.LogState) {
	text := stateText(l.GetState())
	if l.GetState() == "" {
		text = unknown
	}
	if n := l.GetWithheld(); n > 0 {
		text += fmt.Sprintf(", %s withheld from this region", count(n))
	}
	if n := l.GetWithheldFromReader(); n > 0 {
		text += fmt.Sprintf(", %s here that you may not read", count(n))
	}
	if n := l.GetExpired(); n > 0 {
		text += fmt.Sprintf(", %s expired", count(n))
	}
	name := logName(l.GetLog())
	if v.notes[name] == text {
		return
	}
	quiet := v.notes[name] == "" && (text == "home" || text == "caught up")
	v.notes[name] = text
	if !quiet {
		fmt.Fprintf(v.app.err, "-- %s: %s\n", name, text)
	}
}

// recordView is the JSON of a record that was read: what publish takes, and where it
// was found.
type recordView struct {
	ID         string            `json:"id"`
	Key        string            `json:"key,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Time       *time.Time        `json:"time,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBytes  []byte            `json:"body_base64,omitempty"` // a body that is not UTF-8
	Log        string            `json:"log"`
	Sequence   uint64            `json:"sequence"`
	IngestTime *time.Time        `json:"ingest_time"`
	Revision   string            `json:"policy_revision"`
	Position   string            `json:"position,omitempty"` // of the last record of a batch: --from goes on behind it
}

func viewRecord(r *pb.ReadRecord) recordView {
	rec := r.GetRecord()
	v := recordView{
		ID: rec.GetId(), Key: rec.GetKey(), Time: timeView(rec.GetEventTimeUnixNano()), Log: logName(r.GetLog()),
		Sequence: r.GetSequence(), IngestTime: timeView(r.GetIngestTimeUnixNano()), Revision: r.GetPolicyRevision(),
		Tags: map[string]string{}, Headers: map[string]string{},
	}
	for _, t := range rec.GetTags() {
		v.Tags[t.GetName()] = t.GetValue()
	}
	for _, h := range rec.GetHeaders() {
		v.Headers[h.GetName()] = h.GetValue()
	}
	if utf8.Valid(rec.GetBody()) {
		text := string(rec.GetBody())
		v.Body = &text
	} else {
		v.BodyBytes = rec.GetBody()
	}
	return v
}

func (v *viewer) record(r *pb.ReadRecord, position string) error {
	if v.app.json() {
		view := viewRecord(r)
		view.Position = position
		return v.app.printJSON(view)
	}
	rec := r.GetRecord()
	parts := []string{nanoTime(r.GetIngestTimeUnixNano()).Format("2006-01-02T15:04:05.000Z"), logName(r.GetLog()), strconv.FormatUint(r.GetSequence(), 10), printable(rec.GetId())}
	if rec.GetKey() != "" {
		parts = append(parts, "key="+printable(rec.GetKey()))
	}
	for _, t := range rec.GetTags() {
		parts = append(parts, printable(t.GetName()+"="+t.GetValue()))
	}
	_, err := fmt.Fprintln(v.app.out, strings.Join(append(parts, printable(string(rec.GetBody()))), "  "))
	return err
}

// printable is text that can do nothing to a terminal: it is quoted when it holds
// anything that does not print.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
