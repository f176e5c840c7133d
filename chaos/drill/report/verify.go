package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"domicile/chaos/drill/history"
)

// maxReport bounds a report that is read, in bytes.
const maxReport = 256 << 20

// JSON writes the report. The same history makes the same text.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Verified is what Verify found.
type Verified struct {
	Drill   string  `json:"drill"`
	Chain   string  `json:"chain"` // of the history
	Events  int     `json:"events"`
	Verdict Verdict `json:"verdict"` // as recomputed
	// Simulated: the history is of a drill in virtual time, and evidence of nothing.
	Simulated bool   `json:"simulated,omitempty"`
	Holds     bool   `json:"holds"` // the report is, to the letter, what the history makes
	Text      string `json:"text"`
}

// Verify makes the report anew from the history, whose chain was checked when it was read,
// and compares it with the report that is on trial. An error says that the report can't be
// read at all.
func Verify(report io.Reader, h *history.History) (*Verified, error) {
	text, err := io.ReadAll(io.LimitReader(report, maxReport))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var said Report
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if said.Version != Version {
		return nil, fmt.Errorf("a report of version %d; this program reads %d", said.Version, Version)
	}
	now := Judge(h)
	v := &Verified{Drill: now.Drill, Chain: h.Chain, Events: len(h.Events), Verdict: now.Verdict, Simulated: now.Simulated != nil}
	var again bytes.Buffer
	if err := now.JSON(&again); err != nil {
		return nil, err
	}
	switch {
	case said.Drill != now.Drill:
		v.Text = "the report is of another drill than the history"
	case said.Source.Chain != h.Chain:
		v.Text = "the history is not the one that the report was made from: its last hash is another one"
	case said.Verdict != now.Verdict:
		v.Text = fmt.Sprintf("the report says %s, the history makes it %s", said.Verdict, now.Verdict)
	case !bytes.Equal(again.Bytes(), text):
		v.Text = "the verdict is the same, and something else in the report was changed"
	default:
		v.Holds, v.Text = true, "the history is unbroken, and the report is what it makes, to the letter"
	}
	return v, nil
}
