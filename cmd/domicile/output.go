package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"domicile/api"
)

func (a *app) json() bool { return a.output == "json" }

// screen is where people read. Whatever a node or a file said, it can do nothing to a terminal
// there; JSON means the same behind it.
type screen struct{ io.Writer }

// Write writes it with all that does not print escaped.
func (s screen) Write(b []byte) (int, error) {
	if _, err := io.WriteString(s.Writer, api.PrintableLines(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// raw is what lies under a screen, for what this program itself draws there, and for pages.
func raw(w io.Writer) io.Writer {
	if s, ok := w.(screen); ok {
		return s.Writer
	}
	return w
}

// printJSON writes one object on one line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table aligns rows of cells in columns, two spaces apart, each line with prefix.
// The last cell of a row widens no column: a remark under a table does not tear it.
func table(w io.Writer, prefix string, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(row)-1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	for _, row := range rows {
		line := prefix
		for i, cell := range row {
			line += cell
			if i < len(row)-1 {
				line += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// terminal reports whether w is a terminal: only there a line may be redrawn.
func terminal(w io.Writer) bool {
	f, ok := raw(w).(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func nanoTime(n int64) time.Time { return time.Unix(0, n).UTC() }

// clockTime is a time of day beside now: the date is left out while it is today's.
func clockTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// count writes a number with a comma between thousands.
func count[T uint64 | int64 | int | uint32](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
