package opa

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/version"

	"domicile/regions"
)

// Engine is the version of the engine that judges here, as 1.22.3.
func Engine() string { return version.Version }

// Files are the exact bytes of a policy directory, each file by its path with slashes:
// those that are judged, no other. It fails as Load does when the directory cannot be
// read, is too large, or holds what is no policy.
func Files(dir string) (map[string][]byte, error) {
	s, err := readDirectory(dir)
	if err != nil {
		return nil, err
	}
	return s.raw, nil
}

// Moment is when kept files are loaded, and what stands over them.
type Moment struct {
	Serial  int64     // over the one in the catalog; 0: that one
	Now     time.Time // which of the terms last; zero: none
	Until   time.Time // the end of the policy's time: Later goes no further
	Revoked []string  // terms that last no more
	// Before is a policy that was loaded here, or nil. What it was asked is not asked again
	// where that can change no answer: its files are the same byte by byte, and so are the
	// federation, the engine and the terms that last.
	Before *Policy
}

// LoadFiles is Load for files that somebody else has kept and answers for. Tests, fixtures
// and matrix are held against the rules as if none of the terms lasted; the generation is
// that of the moment, and Later those that follow, all judged whole. From the generation
// on, judgements of older ones are not taken from other regions.
func LoadFiles(ctx context.Context, files map[string][]byte, m Moment, f *regions.Federation) (*Policy, error) {
	clock := regions.NewSteadyClock()
	start := clock.Now()
	s, err := readTree(tree(files), "bundle")
	if err != nil {
		return nil, err
	}
	s.serial = m.Serial
	f = f.Snapshot()
	var p *Policy
	if m.Before.answersFor(s, f) {
		p, err = m.Before.again(ctx, s, f)
	} else {
		p, err = load(ctx, s, f)
	}
	if err != nil {
		return nil, err
	}
	p.Generation = p.Generation.Fenced()
	if p, err = p.schedule(ctx, m, f); err != nil {
		return nil, err
	}
	p.Report.Took = clock.Now().Sub(start)
	return p, nil
}

// tree is files in memory as a file system: regular files in at most one folder.
type tree map[string][]byte

// Open opens a file, or a folder for its size alone: folders are read by ReadDir.
func (t tree) Open(name string) (fs.File, error) {
	data, ok := t[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &leaf{Reader: bytes.NewReader(data), leafInfo: leafInfo{name: path.Base(name), size: int64(len(data))}}, nil
}

// ReadDir lists a folder, sorted.
func (t tree) ReadDir(folder string) ([]fs.DirEntry, error) {
	found := map[string]leafInfo{}
	for name, data := range t {
		rest, in := strings.CutPrefix(name, folder+"/")
		if folder == "." {
			rest, in = name, true
		}
		if !in {
			continue
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper {
			found[first] = leafInfo{name: first, mode: fs.ModeDir}
		} else {
			found[first] = leafInfo{name: first, size: int64(len(data))}
		}
	}
	if len(found) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: folder, Err: fs.ErrNotExist}
	}
	var out []fs.DirEntry
	for _, name := range sortedKeys(found) {
		out = append(out, fs.FileInfoToDirEntry(found[name]))
	}
	return slices.Clip(out), nil
}

// leaf is an open file.
type leaf struct {
	io.Reader
	leafInfo
}

func (l *leaf) Stat() (fs.FileInfo, error) { return l.leafInfo, nil }
func (l *leaf) Close() error               { return nil }

// leafInfo describes a file or folder.
type leafInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i leafInfo) Name() string       { return i.name }
func (i leafInfo) Size() int64        { return i.size }
func (i leafInfo) Mode() fs.FileMode  { return i.mode }
func (i leafInfo) ModTime() time.Time { return time.Time{} }
func (i leafInfo) IsDir() bool        { return i.mode.IsDir() }
func (i leafInfo) Sys() any           { return nil }
