package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// voice tells the story: lines, and a table that changes between them. It is safe for
// concurrent use.
type voice struct {
	mu    sync.Mutex
	out   io.Writer
	table table
}

func newVoice(out io.Writer) *voice {
	return &voice{out: out, table: table{out: out, terminal: terminal(out)}}
}

// say tells one line. A table that was drawn stays above it.
func (v *voice) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.table.release()
	fmt.Fprintf(v.out, format+"\n", args...)
}

// show draws the table.
func (v *voice) show(now time.Time, phase string, regions []string, lags view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.table.regions = regions
	v.table.show(now, phase, lags)
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
