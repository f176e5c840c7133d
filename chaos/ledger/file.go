package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// maxLine bounds one line of a history's file, in bytes.
const maxLine = 4 << 20

// heading is the first line of a history's file.
type heading struct {
	History int       `json:"history"` // version of the format
	Origin  time.Time `json:"origin"`
	Dropped int       `json:"dropped"`
}

const fileVersion = 1

// Write writes the history as JSON, one event a line after one line of heading. Ids
// and keys are written as their marks: the file holds nothing of a record.
func (h *History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	if err := e.Encode(heading{fileVersion, h.Origin, h.Dropped}); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	for i := range h.Events {
		event := h.Events[i]
		if event.Entry != nil {
			sealed := *event.Entry
			sealed.ID, sealed.Key = Mark(sealed.ID), Mark(sealed.Key)
			event.Entry = &sealed
		}
		if err := e.Encode(&event); err != nil {
			return fmt.Errorf("write event %d: %w", i+1, err)
		}
	}
	return out.Flush()
}

// Read reads what Write wrote. A line that is no event is an error with its number.
func Read(r io.Reader) (*History, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var first heading
	if !lines.Scan() {
		return nil, errors.Join(errors.New("history: no heading"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &first); err != nil || first.History != fileVersion {
		return nil, fmt.Errorf("history line 1: want a heading of version %d: %w", fileVersion, errors.Join(err, errors.New("not one")))
	}
	h := &History{Origin: first.Origin, Dropped: first.Dropped}
	for n := 2; lines.Scan(); n++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("history line %d: %w", n, err)
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("history line %d: %w", n, err)
		}
		h.Events = append(h.Events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("history line %d: %w", len(h.Events)+2, err)
	}
	return h, nil
}

func (e *Event) check() error {
	set := 0
	for _, there := range []bool{e.Entry != nil, e.Batch != nil, e.Lag != nil, e.Link != nil, e.Step != nil, e.Gauge != nil, e.Advice != nil,
		e.Crossing != nil, e.Line != nil, e.Placed != nil, e.Counts != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("%d things in one event, want 1", set)
	case e.Entry != nil && (e.Entry.ID == "" || !slices.Contains([]Outcome{Acked, Refused, Unknown}, e.Entry.Outcome)):
		return errors.New("no id or no outcome")
	case e.Step != nil && !slices.Contains([]Phase{Begin, End, Point}, e.Step.Phase):
		return errors.New("a step that neither begins nor ends")
	}
	return nil
}
