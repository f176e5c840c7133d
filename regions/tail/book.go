package tail

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"domicile/api"
	"domicile/regions"
)

const (
	rewriteAbove = 256 << 10 // bytes a file may have before it is written anew, and twice its content
	longestLine  = 1 << 20
	fileEnd      = ".tail"
)

// Book keeps the tails of this region's copies in a folder. What a file can't take is kept
// in memory all the same: it is unknown after a restart, which is said in the log. Safe
// for concurrent use.
type Book struct {
	dir    string
	clock  regions.Clock
	logger *slog.Logger

	mu   sync.Mutex
	logs map[api.LogID]*page
	all  int // entries
}

type page struct {
	known  Known
	file   *os.File // nil: not written
	size   int      // of the file
	after  int      // its size after it was last written anew
	failed bool     // writing failed last time
}

// Open reads what the folder holds, and makes it if there is none.
func Open(dir string, clock regions.Clock, logger *slog.Logger) (*Book, error) {
	b := &Book{dir: dir, clock: clock, logger: logger, logs: map[api.LogID]*page{}}
	if err := regions.MakeFolder(dir); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+fileEnd))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		known, err := load(path)
		if err != nil {
			return nil, err
		}
		if known.Incarnation != "" {
			b.logs[known.Log] = &page{known: known}
			b.all += len(known.Entries)
		}
	}
	return b, nil
}

// load reads a file up to the first line that is not whole.
func load(path string) (known Known, err error) {
	f, err := os.Open(path)
	if err != nil {
		return known, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		l, ok := decode(lines.Bytes())
		if !ok {
			return known, nil
		}
		known.hear(&l.TailList, l.Cursor, l.Heard, MaxEntries)
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return known, err
	}
	return known, nil
}

// Hear takes in what a log's home said, of a log whose copy here ends at cursor.
func (b *Book) Hear(l regions.TailList, cursor uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.logs[l.Log]
	if p == nil {
		p = &page{}
		b.logs[l.Log] = p
	}
	k := &p.known
	entries, head, same := len(k.Entries), k.Head, k.Epoch == l.Epoch && k.Incarnation == l.Incarnation
	k.hear(&l, cursor, b.clock.Now().Round(0), MaxAllEntries-b.all)
	b.all += len(k.Entries) - entries
	if same && k.Head == head && len(l.Entries) == 0 {
		return // an idle log costs no write
	}
	err := b.write(p, &l, cursor)
	if err != nil && !p.failed {
		b.logger.Warn("what is known of a log's tail could not be written: it is unknown after a restart", "log", l.Log.String(), "err", err)
	}
	p.failed = err != nil
}

// write adds a line, or writes the file anew when it is long. b.mu is held.
func (b *Book) write(p *page, l *regions.TailList, cursor uint64) error {
	if p.file == nil || p.size > max(rewriteAbove, 2*p.after) {
		return b.rewrite(p)
	}
	text, err := encode(l, cursor, p.known.Heard)
	if err != nil {
		return err
	}
	n, err := p.file.Write(text)
	if p.size += n; err != nil {
		return errors.Join(err, p.shut()) // the next write makes the file anew
	}
	return nil
}

// rewrite puts all that is known of a log into its file.
func (b *Book) rewrite(p *page) error {
	if err := p.shut(); err != nil {
		return err
	}
	k := &p.known
	var text bytes.Buffer
	for first, rest := true, k.Entries; first || len(rest) > 0; first = false {
		n := min(len(rest), regions.MaxTailEntries)
		l := regions.TailList{Log: k.Log, Incarnation: k.Incarnation, Epoch: k.Epoch, Key: k.Key,
			Head: k.Head, HeadTime: k.HeadTime, Closed: k.Closed, Entries: rest[:n]}
		rest = rest[n:]
		one, err := encode(&l, 0, k.Heard)
		if err != nil {
			return err
		}
		text.Write(one)
	}
	path := b.path(k.Log)
	if err := regions.WriteWhole(path, text.Bytes()); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	p.file, p.size, p.after = f, text.Len(), text.Len()
	return nil
}

func (p *page) shut() error {
	if p.file == nil {
		return nil
	}
	f := p.file
	p.file = nil
	return f.Close()
}

// path is the file of a log. Its name says nothing of the log's.
func (b *Book) path(log api.LogID) string {
	sum := sha256.Sum256([]byte(log.String()))
	return filepath.Join(b.dir, hex.EncodeToString(sum[:16])+fileEnd)
}

// Beyond is what is known of a log after a sequence; Incarnation is "" when that is
// nothing.
func (b *Book) Beyond(log api.LogID, cut uint64) Known {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.logs[log]
	if p == nil {
		return Known{Log: log}
	}
	return p.known.Beyond(cut)
}

// Forget drops what is known of a log, its file included.
func (b *Book) Forget(log api.LogID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.logs[log]
	if p == nil {
		return nil
	}
	delete(b.logs, log)
	b.all -= len(p.known.Entries)
	err := os.Remove(b.path(log))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(p.shut(), err)
}

// Close closes the files. The book is not used afterwards.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, p := range b.logs {
		errs = append(errs, p.shut())
	}
	return errors.Join(errs...)
}
