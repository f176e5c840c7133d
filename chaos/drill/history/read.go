package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// History is what was read of a drill's history.
type History struct {
	Head   Head
	Events []Event // all of them, the one with the head first
	Chain  string  // of the last event
	Torn   bool    // the file ends in the middle of a line, which is left out
}

// Closed is the last event's word, nil without one: the controller did not live to
// write it, or the file was cut off.
func (h *History) Closed() *Close { return h.Events[len(h.Events)-1].Close }

// Plan is the plan, nil if the history ends before it.
func (h *History) Plan() *Plan {
	for i := range h.Events {
		if p := h.Events[i].Plan; p != nil {
			return p
		}
	}
	return nil
}

// BadLine is a line that the writer did not write there.
type BadLine struct {
	Line int // from 1
	Err  error
}

// Error names the line.
func (e *BadLine) Error() string { return fmt.Sprintf("history line %d: %v", e.Line, e.Err) }

// Unwrap is the cause.
func (e *BadLine) Unwrap() error { return e.Err }

// The ways in which a line is bad.
var (
	ErrChain = errors.New("its hash does not follow from the line before: a line was changed, left out or put in")
	ErrForm  = errors.New("not as it is written by this version")
	ErrOrder = errors.New("out of order")
	ErrSize  = errors.New("too long")
)

// Open reads a history's file.
func Open(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer f.Close()
	return Read(f)
}

// Read reads a history and checks its chain. Every line must be, to the letter, what the
// writer would have written. An end in the middle of a line is no error: see Torn.
func Read(from io.Reader) (*History, error) {
	in := bufio.NewReaderSize(io.LimitReader(from, MaxBytes), 1<<16)
	h := &History{Chain: noChain}
	for n := 1; ; n++ {
		line, err := readLine(in)
		switch {
		case err == io.EOF && len(line) == 0:
			return h.whole()
		case err == io.EOF:
			h.Torn = true
			return h.whole()
		case err != nil:
			return nil, &BadLine{n, err}
		}
		if err := h.take(line); err != nil {
			return nil, &BadLine{n, err}
		}
	}
}

func (h *History) whole() (*History, error) {
	if len(h.Events) == 0 {
		return nil, &BadLine{1, errors.New("no whole line: there is no history here")}
	}
	return h, nil
}

// readLine reads up to and with the end of a line. At the end of the file it answers what
// there is and io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, ErrSize
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (h *History) take(line []byte) error {
	if len(line) < bodyFrom || string(line[:len(chainOpen)]) != chainOpen || string(line[bodyFrom-len(chainEnd):bodyFrom]) != chainEnd {
		return ErrForm
	}
	chain, body := string(line[len(chainOpen):len(chainOpen)+chainLen]), line[bodyFrom:]
	if link(h.Chain, body) != chain {
		return ErrChain
	}
	var e Event
	if err := json.Unmarshal(append([]byte{'{'}, body...), &e); err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	again, err := encode(&e, h.Chain)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, line) {
		return ErrForm
	}
	if err := h.fits(&e); err != nil {
		return err
	}
	if e.Head != nil {
		h.Head = *e.Head
	}
	h.Events, h.Chain = append(h.Events, e), chain
	return nil
}

// fits checks an event against those before it.
func (h *History) fits(e *Event) error {
	if err := e.check(); err != nil {
		return err
	}
	n := len(h.Events)
	switch {
	case (e.Head != nil) != (n == 0):
		return fmt.Errorf("%w: the first event, and only it, is the head", ErrOrder)
	case e.Head != nil && e.Head.Version != version:
		return fmt.Errorf("a history of version %d; this program reads %d", e.Head.Version, version)
	case e.N != uint64(n)+1:
		return fmt.Errorf("%w: number %d", ErrOrder, e.N)
	case e.At < 0 || n > 0 && e.At < h.Events[n-1].At:
		return fmt.Errorf("%w: it is earlier than the one before", ErrOrder)
	case n > 0 && h.Events[n-1].Close != nil:
		return fmt.Errorf("%w: something follows the close", ErrOrder)
	}
	return nil
}
