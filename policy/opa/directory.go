package opa

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/version"

	"domicile/api"
	"domicile/policy/review"
)

// Limits of a policy directory. Policy is rules over a closed vocabulary, never data.
const (
	MaxBytes = 4 << 20 // all files together
	MaxFiles = 500
)

const catalogFile = "catalog.yaml"

// source is one reading of a directory: what is judged is exactly what was digested.
type source struct {
	raw     map[string][]byte // every file that was read
	serial  int64             // stands over the catalog's; 0: does not
	catalog []byte
	rules   map[string][]byte // path within the directory → text
	tests   map[string][]byte
	cases   map[string][]byte // fixtures/*.json
	matrix  []byte            // nil: none
	terms   []byte            // nil: none
	bytes   int64
	files   int
}

// Digest is the digest a directory would be loaded under: of its files, the kernel
// and the version of the engine, since all of them decide. It compiles nothing, so
// it is cheap enough to notice a changed directory. It fails as Load does when the
// directory cannot be read, is too large, or holds what is no policy.
func Digest(dir string) (string, error) {
	s, err := readDirectory(dir)
	if err != nil {
		return "", err
	}
	return s.digest(), nil
}

func refuseDirectory(field, value, hint string, err error) error {
	return &api.Error{Code: api.PolicyError, Op: "read policy directory", Field: field, Value: value, Hint: hint, Err: err}
}

// readDirectory reads a whole directory once. Symbolic links are followed as long as
// they stay inside it; names that begin with a dot and *.md are passed over.
func readDirectory(dir string) (*source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, refuseDirectory("policy", dir, "set policy: in node.yaml to a directory with catalog.yaml and rules/", err)
	}
	defer root.Close()
	return readTree(root.FS(), dir)
}

// readTree reads a policy directory; dir is for people.
func readTree(root fs.FS, dir string) (*source, error) {
	s := &source{raw: map[string][]byte{}, rules: map[string][]byte{}, tests: map[string][]byte{}, cases: map[string][]byte{}}
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, refuseDirectory("policy", dir, "", err)
	}
	for _, e := range entries {
		if err := s.readEntry(root, e.Name()); err != nil {
			return nil, err
		}
	}
	if s.catalog == nil {
		return nil, refuseDirectory(catalogFile, dir, "the directory has no catalog.yaml: without a catalog nothing may be judged", nil)
	}
	return s, nil
}

func ignored(name string) bool { return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".md") }

func (s *source) readEntry(root fs.FS, name string) (err error) {
	switch {
	case ignored(name):
	case name == catalogFile:
		s.catalog, err = s.read(root, name)
	case name == review.MatrixFile:
		s.matrix, err = s.read(root, name)
	case name == "fixtures":
		err = s.readFolder(root, name, ".json", s.cases)
	case name == termsFile:
		s.terms, err = s.read(root, name)
	case name == "rules":
		err = s.readFolder(root, name, ".rego", s.rules)
	case name == "tests":
		err = s.readFolder(root, name, "_test.rego", s.tests)
	default:
		err = refuseDirectory(name, "", "a policy directory holds catalog.yaml, terms.yaml, rules/*.rego, tests/*_test.rego, fixtures/*.json and matrix.csv; move anything else away, it would not be read", nil)
	}
	return err
}

func (s *source) readFolder(root fs.FS, folder, suffix string, into map[string][]byte) error {
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return refuseDirectory(folder, "", "it must be a folder", err)
	}
	for _, e := range entries {
		file := path.Join(folder, e.Name())
		if ignored(e.Name()) {
			continue
		}
		if !strings.HasSuffix(file, suffix) || suffix == ".rego" && strings.HasSuffix(file, "_test.rego") {
			return refuseDirectory(file, "", folder+"/ holds files named *"+suffix+" only; move it away, it would not be read", nil)
		}
		if into[file], err = s.read(root, file); err != nil {
			return err
		}
	}
	return nil
}

// read reads one regular file, within the bounds of the whole directory.
func (s *source) read(root fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(root, name)
	if err != nil {
		return nil, refuseDirectory(name, "", "links must stay inside the directory", err)
	}
	if !info.Mode().IsRegular() {
		return nil, refuseDirectory(name, info.Mode().Type().String(), "only regular files are read", nil)
	}
	if s.files++; s.files > MaxFiles {
		return nil, refuseDirectory(name, fmt.Sprint(s.files), fmt.Sprintf("at most %d files", MaxFiles), nil)
	}
	if total := s.bytes + info.Size(); total > MaxBytes {
		return nil, tooLarge(name, total)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, refuseDirectory(name, "", "", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes-s.bytes+1))
	if err != nil {
		return nil, refuseDirectory(name, "", "", err)
	}
	if s.bytes += int64(len(data)); s.bytes > MaxBytes {
		return nil, tooLarge(name, s.bytes)
	}
	s.raw[name] = data
	return data, nil
}

func tooLarge(name string, total int64) error {
	return refuseDirectory(name, fmt.Sprintf("%d bytes", total),
		fmt.Sprintf("a policy directory holds at most %d bytes: rules over the catalog's words, no data", MaxBytes),
		errors.New("too much policy data"))
}

func (s *source) digest() string {
	h := sha256.New()
	put := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	put([]byte(version.Version))
	put([]byte(kernelText))
	put(s.catalog)
	if s.terms != nil {
		put([]byte(termsFile))
		put(s.terms)
	}
	if s.matrix != nil {
		put([]byte(review.MatrixFile))
		put(s.matrix)
	}
	for _, files := range []map[string][]byte{s.rules, s.tests, s.cases} {
		for _, name := range sortedKeys(files) {
			put([]byte(name))
			put(files[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
