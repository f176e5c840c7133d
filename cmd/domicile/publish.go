package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
)

// publishFlags is what publish was asked to do.
type publishFlags struct {
	topic         string
	tags, headers []string
	key, id, body string
	mayBeIn       string
	file, results string
	raw, hasBody  bool
	patience      time.Duration
}

func (a *app) publishCommand() *cobra.Command {
	var p publishFlags
	cmd := &cobra.Command{
		Use:   "publish TOPIC",
		Short: "Publish one record, or a file of them",
		Long: `Without --file the body is --body, or all of standard input. With --file each line is
a record: {"id", "key", "tags", "headers", "time", "body"}, all but body optional. A
body that is a JSON string is its text; other JSON is kept byte by byte. A line without
an id gets one from its number and bytes, so that publishing the same file again
repeats nothing. A bad line is refused by its number and the rest goes on.`,
		Example: `  domicile publish orders --tag residency=eu --tag class=order --body hello
  domicile publish orders --file orders.ndjson --results outcomes.ndjson`,
		Args: arguments(1, 1, "a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.topic, p.hasBody = args[0], cmd.Flags().Changed("body")
			return a.publish(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&p.tags, "tag", nil, "name=value, for every record that does not set it itself; repeat it")
	flags.StringArrayVar(&p.headers, "header", nil, "name=value, as --tag")
	flags.StringVar(&p.key, "key", "", "orders the records of one log")
	flags.StringVar(&p.id, "id", "", "stable id of the one record")
	flags.StringVar(&p.mayBeIn, "may-be-in", "", "with --id: the log that an OUTCOME_UNKNOWN named, topic@region, so that a retry stays there")
	flags.StringVar(&p.body, "body", "", "body of the one record")
	flags.StringVar(&p.file, "file", "", "NDJSON file to publish, - for standard input")
	flags.BoolVar(&p.raw, "raw", false, "with --file: each line is a body as it is")
	flags.DurationVar(&p.patience, "patience", 10*time.Second, "how long a record is tried again, with the same id, while its home cannot take it")
	flags.StringVar(&p.results, "results", "", "file for the outcome of each line, NDJSON, - for standard output")
	return cmd
}

func (p publishFlags) check() error {
	switch {
	case p.patience <= 0:
		return usage("--patience %s: more than zero", p.patience)
	case p.file == "" && p.raw:
		return usage("--raw goes with --file")
	case p.file == "" && p.results != "":
		return usage("--results goes with --file")
	case p.results != "" && sameFile(p.file, p.results):
		return usage("--results would overwrite --file %s", p.file)
	case p.mayBeIn != "" && p.id == "":
		return usage("--may-be-in is about a record that was sent before: give its --id")
	case p.file != "" && p.id != "":
		return usage("--id names one record; lines of a file carry their own")
	case p.file != "" && p.hasBody:
		return usage("--body and --file exclude each other")
	}
	return nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// defaults is a record with what the flags say of every record.
func (p publishFlags) defaults() (api.Record, error) {
	r := api.Record{ID: p.id, Topic: p.topic, Key: p.key}
	if p.mayBeIn != "" {
		log, err := api.ParseLogID(p.mayBeIn)
		if err != nil {
			return r, usage("--may-be-in: write a log as topic@region")
		}
		r.Retry = api.Retry{Again: true, Log: log}
	}
	for _, t := range p.tags {
		name, value, ok := strings.Cut(t, "=")
		if !ok || name == "" {
			return r, usage("--tag: write name=value")
		}
		r.Tags = append(r.Tags, api.Tag{Name: name, Value: value})
	}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return r, usage("--header: write name=value")
		}
		r.Headers = append(r.Headers, api.Header{Name: name, Value: value})
	}
	return r, nil
}

func (a *app) publish(ctx context.Context, p publishFlags) error {
	if err := p.check(); err != nil {
		return err
	}
	record, err := p.defaults()
	if err != nil {
		return err
	}
	if p.file != "" {
		return a.publishFile(ctx, p, record)
	}
	if record.Body, err = a.oneBody(ctx, p); err != nil {
		return err
	}
	c, err := a.dial(toDoor)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	ack, err := c.Publish(ctx, &record)
	if err != nil {
		return err
	}
	return a.printAck(ack)
}

// oneBody is the body of the one record, at most one byte above the limit: what is
// too large is refused at the door with its own code.
func (a *app) oneBody(ctx context.Context, p publishFlags) ([]byte, error) {
	if p.hasBody {
		return []byte(p.body), nil
	}
	if f, ok := a.in.(*os.File); ok && terminal(f) {
		fmt.Fprintln(a.err, "Type the body; end it with Ctrl-D.")
	}
	return io.ReadAll(io.LimitReader(a.interruptible(ctx), api.MaxBody+1))
}

func (a *app) printAck(ack api.Ack) error {
	if a.json() {
		return a.printJSON(viewAck(ack))
	}
	how := "stored"
	if ack.Duplicate {
		how = "already stored"
	}
	where := strings.Join(append([]string{ack.Region}, ack.Copies...), " and ")
	fmt.Fprintf(a.out, "%s in %s: %s, sequence %d, %s, policy %s\n", how, where, ack.Log, ack.Sequence, ack.Durability, ack.PolicyRevision)
	fmt.Fprintf(a.out, "id %s\n", ack.ID)
	if ack.Unconfirmed {
		fmt.Fprintln(a.err, "note: authority=unconfirmed: the home is cut off from the placement authority; a forced failover would make this record void")
	}
	if ack.EventTimeOdd {
		fmt.Fprintln(a.err, "note: the event time is more than a day away from now")
	}
	return nil
}

// publishFile publishes every line, prints the summary and ends with the worst of
// what happened.
func (a *app) publishFile(ctx context.Context, p publishFlags, defaults api.Record) error {
	in, size, err := a.openInput(ctx, p.file)
	if err != nil {
		return err
	}
	defer in.Close()
	results, err := a.openResults(p.results)
	if err != nil {
		return err
	}
	c, err := a.dial(toDoor)
	if err != nil {
		return errors.Join(err, results.Close())
	}
	defer c.Close()
	t := newTally(results, a.progressBar(size))
	readErr := p.sendAll(ctx, newLineReader(in), defaults, c, t)
	if err := errors.Join(t.finish(), results.Close()); err != nil {
		return err
	}
	if err := a.printSummary(t); err != nil {
		return err
	}
	if readErr == nil {
		return ended(t.code())
	}
	if t.Unknown > 0 { // weighs more than where the reading ended
		a.printError(readErr)
		return ended(exitUnknown)
	}
	return readErr
}

func (a *app) openInput(ctx context.Context, path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(a.interruptible(ctx)), 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, usage("--file: %v", err)
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return nil, 0, errors.Join(usage("--file %s: not a file that can be read", path), f.Close())
	}
	return f, info.Size(), nil
}

func (a *app) openResults(path string) (io.WriteCloser, error) {
	switch path {
	case "":
		return discard{}, nil
	case "-":
		return keepOpen{a.out}, nil
	}
	// Outcomes carry ids: for the owner's eyes, as the file they came from.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, usage("--results: %v", err)
	}
	return f, nil
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
