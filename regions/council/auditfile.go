package council

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"domicile/regions"
	"domicile/regions/placement"
)

const (
	auditName   = "audit.jsonl"
	exportEvery = 256 // entries; a quarter of what the state keeps
)

// auditFile is this region's copy of the audit, a line per entry. It only grows. Its user
// guards it.
type auditFile struct {
	file   *os.File
	size   int64  // up to the last whole line
	number uint64 // of the last entry in it
}

// auditGap stands where entries are missing: they reached this voter inside a snapshot.
type auditGap struct {
	Missing struct{ From, To uint64 }
}

func openAudit(dir string) (*auditFile, error) {
	file, err := os.OpenFile(filepath.Join(dir, auditName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	a := &auditFile{file: file}
	if err := errors.Join(regions.SyncFolder(dir), a.find()); err != nil {
		return nil, errors.Join(fmt.Errorf("read the audit: %w", err), file.Close())
	}
	return a, nil
}

// find reads the file to its last whole line. A half one is what a kill left, one with zeros in
// it what a power cut left of an append: it goes, with what lies behind it, and is written again.
func (a *auditFile) find() error {
	r, whole := bufio.NewReader(a.file), int64(0)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var e struct {
			Number  uint64
			Missing struct{ To uint64 }
		}
		if bytes.IndexByte(line, 0) >= 0 {
			break
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		a.number, whole = max(e.Number, e.Missing.To), whole+int64(len(line))
	}
	a.size = whole
	return a.file.Truncate(whole)
}

func (a *auditFile) append(entries []placement.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	lines := make([]any, len(entries))
	for i, e := range entries {
		lines[i] = e
	}
	if err := a.write(lines); err != nil {
		return err
	}
	a.number = entries[len(entries)-1].Number
	return nil
}

func (a *auditFile) gap(upTo uint64) error {
	var g auditGap
	g.Missing.From, g.Missing.To = a.number+1, upTo
	if err := a.write([]any{g}); err != nil {
		return err
	}
	a.number = upTo
	return nil
}

func (a *auditFile) write(lines []any) error {
	var text []byte
	for _, l := range lines {
		line, err := json.Marshal(l)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	// Written where the last whole line ended, so that a failed try is written over.
	if _, err := a.file.WriteAt(text, a.size); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	a.size += int64(len(text))
	return nil
}

func (a *auditFile) close() error { return a.file.Close() }
