package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"domicile/api"
)

// ackView is the JSON of an acknowledgement.
type ackView struct {
	ID         string    `json:"id"`
	IDMade     bool      `json:"id_made,omitempty"`
	Region     string    `json:"region"`
	Log        string    `json:"log"`
	Epoch      string    `json:"epoch"`
	Sequence   uint64    `json:"sequence"`
	IngestTime time.Time `json:"ingest_time"`
	Durability string    `json:"durability"`
	Duplicate  bool      `json:"duplicate"`
	Forwarded  bool      `json:"forwarded"`
	TimeOdd    bool      `json:"event_time_odd,omitempty"`
	Revision   string    `json:"policy_revision"`
	Position   string    `json:"position"`
	Copies     []string  `json:"copies,omitempty"`
	Authority  string    `json:"authority,omitempty"` // "unconfirmed": a forced failover would make it void
}

func viewAck(a api.Ack) ackView {
	authority := ""
	if a.Unconfirmed {
		authority = "unconfirmed"
	}
	return ackView{
		ID: a.ID, IDMade: a.IDMade, Region: a.Region, Log: a.Log.String(), Epoch: a.Epoch.String(), Sequence: a.Sequence,
		IngestTime: a.IngestTime.UTC(), Durability: string(a.Durability), Duplicate: a.Duplicate, Forwarded: a.Forwarded,
		TimeOdd: a.EventTimeOdd, Revision: a.PolicyRevision, Position: string(a.Position), Copies: a.Copies, Authority: authority,
	}
}

// lineResult is the outcome of one line: acked, duplicate, refused or unknown.
type lineResult struct {
	Line    uint64 `json:"line"`
	Outcome string `json:"outcome"`
	*ackView
	ID      string   `json:"id,omitempty"`
	Code    api.Code `json:"code,omitempty"`
	Field   string   `json:"field,omitempty"`
	Hint    string   `json:"hint,omitempty"`
	Reason  string   `json:"reason,omitempty"` // of a refusal by policy, with the rule that decided
	Rule    string   `json:"rule,omitempty"`
	MayBeIn string   `json:"may_be_in,omitempty"` // of an unknown outcome: the log that may hold it
}

// tally counts outcomes as they come in, from any goroutine, and writes each one.
type tally struct {
	mu      sync.Mutex
	results *bufio.Writer
	writing error
	bar     *progress
	read    int64 // bytes of input handed over

	Lines      uint64              `json:"lines"`
	Acked      uint64              `json:"acked"`
	Duplicates uint64              `json:"duplicates"`
	Refused    map[api.Code]uint64 `json:"refused"`
	Unknown    uint64              `json:"unknown"`
	Stored     map[string]uint64   `json:"stored"` // log → records, duplicates included
}

func newTally(results io.Writer, bar *progress) *tally {
	return &tally{results: bufio.NewWriterSize(results, 1<<16), bar: bar, Refused: map[api.Code]uint64{}, Stored: map[string]uint64{}}
}

// sent notes how far into the input the lines handed over so far reach.
func (t *tally) sent(read int64) {
	t.mu.Lock()
	t.read = read
	t.mu.Unlock()
}

// done counts the one outcome of a line.
func (t *tally) done(line uint64, id string, ack api.Ack, err error) {
	r := lineResult{Line: line, ID: id}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Lines++
	switch code := api.CodeOf(err); {
	case err == nil:
		view := viewAck(ack)
		r.ackView, r.ID = &view, ack.ID
		r.Outcome = "acked"
		if ack.Duplicate {
			r.Outcome = "duplicate"
			t.Duplicates++
		} else {
			t.Acked++
		}
		t.Stored[ack.Log.String()]++
	case code.Stored() == api.StoredUnknown:
		r.Outcome, r.Code = "unknown", code
		t.Unknown++
	default:
		r.Outcome, r.Code = "refused", code
		t.Refused[code]++
	}
	var e *api.Error
	if errors.As(err, &e) {
		r.Field, r.Hint, r.Reason, r.Rule = e.Field, e.Hint, e.Reason, e.Rule
		if e.Log != (api.LogID{}) {
			r.MayBeIn = e.Log.String()
		}
	}
	if b, err := json.Marshal(r); err != nil {
		t.writing = err
	} else if _, err := t.results.Write(append(b, '\n')); err != nil {
		t.writing = err
	}
	t.bar.draw(t)
}

// finish writes out what is buffered and ends the bar's line.
func (t *tally) finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bar.end()
	if err := errors.Join(t.writing, t.results.Flush()); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// code is the worst of what happened: unknown, then refused by a rule, then refused.
func (t *tally) code() exitCode {
	if t.Unknown > 0 {
		return exitUnknown
	}
	worst := exitOK
	for code := range t.Refused {
		if code.Refusal() {
			return exitRefused
		}
		worst = exitFailure
	}
	return worst
}

func (a *app) printSummary(t *tally) error {
	if a.json() {
		return a.printJSON(t)
	}
	var refused uint64
	for _, n := range t.Refused {
		refused += n
	}
	lines := " lines"
	if t.Lines == 1 {
		lines = " line"
	}
	fmt.Fprintf(a.out, "%s: %s acked, %s duplicates, %s refused, %s unknown\n",
		count(t.Lines)+lines, count(t.Acked), count(t.Duplicates), count(refused), count(t.Unknown))
	var rows [][]string
	for _, log := range slices.Sorted(maps.Keys(t.Stored)) {
		rows = append(rows, []string{"rests in", log, count(t.Stored[log])})
	}
	for _, code := range slices.Sorted(maps.Keys(t.Refused)) {
		rows = append(rows, []string{"refused", string(code), count(t.Refused[code])})
	}
	if t.Unknown > 0 {
		rows = append(rows, []string{"unknown", "publish the same file again: stored lines are not repeated", count(t.Unknown)})
	}
	table(a.out, "  ", rows)
	return nil
}
