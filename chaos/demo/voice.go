package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
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

// width is how long a told line may get.
const width = 96

// tell tells a text of any length, broken between words; every line but the first is
// indented once more.
func (v *voice) tell(indent, text string) {
	line := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			v.say("%s", line)
			line = indent + indent + word
		default:
			line += " " + word
		}
	}
	v.say("%s", line)
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
