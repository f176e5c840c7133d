package canary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// maxFindings bounds what a Report lists; Hits goes on counting.
const maxFindings = 1000

// chunk is how much of a file is searched at once.
const chunk = 1 << 20

// Finding is one occurrence of a token.
type Finding struct {
	File   string // relative to the directory that was scanned
	Offset int64  // in bytes; of a name: within the relative path
	InName bool   // the file's name or a link's target holds it, not its content
	Form   Form
	Token  int // index in the Set
}

// String names place and form, never the token itself.
func (f Finding) String() string {
	where := "offset"
	if f.InName {
		where = "name, offset"
	}
	return fmt.Sprintf("%s: %s %d: token %d as %s", f.File, where, f.Offset, f.Token, f.Form)
}

// Report is the result of a scan.
type Report struct {
	Files    int       // regular files that were read to their end
	Bytes    int64     // read
	Hits     int       // occurrences of any token in any form
	Findings []Finding // the first 1,000 of them
	Older    int       // files that ScanSince did not read
	Vanished int       // files that were removed between being listed and being read
	found    []uint32  // occurrences per token
}

// Found is how often the token of this index was seen.
func (r *Report) Found(token int) int { return int(r.found[token]) }

// Missing lists those of the given tokens that were not seen at all: the positive
// control wants it empty at home.
func (r *Report) Missing(tokens []int) []int {
	var missing []int
	for _, t := range tokens {
		if r.found[t] == 0 {
			missing = append(missing, t)
		}
	}
	return missing
}

// Among is how often any of the given tokens was seen.
func (r *Report) Among(tokens []int) int {
	n := 0
	for _, t := range tokens {
		n += int(r.found[t])
	}
	return n
}

func (r *Report) add(f Finding) {
	r.Hits++
	r.found[f.Token]++
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// Scan searches every file under dir, its name included, for every token that the
// set holds now. A file that cannot be read is an error, not a clean file; one that
// disappears meanwhile is counted. Links are not followed, their text is searched.
func Scan(ctx context.Context, dir string, set *Set) (*Report, error) {
	return ScanSince(ctx, dir, set, time.Time{})
}

// ScanSince is Scan, but for files that were last changed before since: tokens that were
// minted after it cannot be in them. Of those only the names are searched.
func ScanSince(ctx context.Context, dir string, set *Set, since time.Time) (*Report, error) {
	tokens := set.snapshot()
	s := newScanner(dir, tokens, chunk)
	s.since = since
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist) && path != dir:
			s.report.Vanished++
			return nil
		case err != nil:
			return err
		}
		return s.entry(path, d)
	})
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", dir, err)
	}
	return s.report, nil
}

type scanner struct {
	root    string
	since   time.Time
	matcher *matcher
	report  *Report
	chunk   int
	buffer  []byte // a chunk, and what a pattern that starts in it may reach into
	zeros   []byte // as many
}

func newScanner(root string, tokens []string, chunk int) *scanner {
	m := newMatcher(tokens)
	size := chunk + m.longest
	return &scanner{root: root, matcher: m, chunk: chunk, buffer: make([]byte, size), zeros: make([]byte, size), report: &Report{found: make([]uint32, len(tokens))}}
}

func (s *scanner) entry(path string, d fs.DirEntry) error {
	name, err := filepath.Rel(s.root, path)
	if err != nil {
		return err
	}
	s.name(name, name)
	if d.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err == nil {
			s.name(name, target)
		}
		return ignoreVanished(err, s.report)
	}
	if !d.Type().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return ignoreVanished(err, s.report)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.ModTime().Before(s.since) {
		s.report.Older++
		return err
	}
	return s.stream(name, f)
}

func ignoreVanished(err error, r *Report) error {
	if errors.Is(err, fs.ErrNotExist) {
		r.Vanished++
		return nil
	}
	return err
}

func (s *scanner) name(file, text string) {
	s.matcher.find([]byte(text), len(text), func(at int, p pattern) {
		s.report.add(Finding{File: file, Offset: int64(at), InName: true, Form: p.form, Token: p.token})
	})
}

// stream searches in chunks that overlap by the longest pattern: each start is
// looked at once, with everything that may follow it.
func (s *scanner) stream(file string, r io.Reader) error {
	var base int64
	kept := 0
	for {
		n, err := io.ReadFull(r, s.buffer[kept:])
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fmt.Errorf("read %s: %w", file, err)
		}
		s.report.Bytes += int64(n)
		b := s.buffer[:kept+n]
		starts := len(b)
		if !end {
			starts = s.chunk
		}
		if !bytes.Equal(b, s.zeros[:len(b)]) { // most of a disk's image is holes
			s.matcher.find(b, starts, func(at int, p pattern) {
				s.report.add(Finding{File: file, Offset: base + int64(at), Form: p.form, Token: p.token})
			})
		}
		if end {
			s.report.Files++
			return nil
		}
		kept = copy(s.buffer, b[starts:])
		base += int64(starts)
	}
}
