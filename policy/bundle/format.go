package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The form of a bundle, lines of text around exact bytes:
//
//	domicile policy bundle 1
//	manifest <bytes>\n<JSON>
//	file <bytes> <name>\n<bytes>        sorted by name
//	end <number of files>
//	signatures <number>
//	signature <key id> <base64>
//
// The digest is over all up to and with the line "end". There is one way to write a
// bundle: what Read takes is what Bytes gives.
const (
	magic   = "domicile policy bundle 1"
	endLine = "end"
)

var errCutOff = errors.New("the bundle is cut off or damaged")

// body is what is digested.
func (b *Bundle) body() []byte {
	manifest, err := json.Marshal(b.Manifest)
	if err != nil {
		panic(err) // only a year that check refuses could fail
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\nmanifest %d\n%s\n", magic, len(manifest), manifest)
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		fmt.Fprintf(&out, "file %d %s\n%s\n", len(b.Files[name]), name, b.Files[name])
	}
	fmt.Fprintf(&out, "%s %d\n", endLine, len(b.Files))
	return out.Bytes()
}

// Bytes is the whole bundle as it is written to a file.
func (b *Bundle) Bytes() []byte {
	out := bytes.NewBuffer(b.body())
	fmt.Fprintf(out, "signatures %d\n", len(b.Signatures))
	for _, s := range b.Signatures {
		fmt.Fprintf(out, "signature %s %s\n", s.KeyID, base64.StdEncoding.EncodeToString(s.Value))
	}
	return out.Bytes()
}

// Read reads a bundle of at most MaxSize bytes. It verifies its form and nothing else: see
// Valid, Approvals and Follows. What is cut off at any byte, or was changed in form, is
// refused.
func Read(data []byte) (*Bundle, error) {
	if len(data) > MaxSize {
		return nil, refused("size", fmt.Sprint(len(data)), fmt.Sprintf("at most %d bytes", MaxSize), nil)
	}
	r := &reader{rest: data}
	b, err := r.bundle()
	if err != nil {
		return nil, refused("form", "", "build it anew with `domicile policy build`, or copy it again", err)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(b.Bytes(), data) {
		return nil, refused("form", "", "it is not written as `domicile policy build` writes it", errCutOff)
	}
	return b, nil
}

type reader struct{ rest []byte }

// line takes the next line, which begins with word, and gives what follows, in n fields.
func (r *reader) line(word string, n int) ([]string, error) {
	end := bytes.IndexByte(r.rest, '\n')
	if end < 0 || end > 1024 {
		return nil, errCutOff
	}
	text := string(r.rest[:end])
	fields := strings.Split(text, " ")
	if fields[0] != word || len(fields) != n+1 {
		return nil, fmt.Errorf("a line %q is missing: %w", word, errCutOff)
	}
	r.rest = r.rest[end+1:]
	return fields[1:], nil
}

// block takes size bytes and the end of the line.
func (r *reader) block(size string) ([]byte, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n >= len(r.rest) || r.rest[n] != '\n' {
		return nil, errCutOff
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n+1:]
	return out, nil
}

func (r *reader) next(word string) bool { return bytes.HasPrefix(r.rest, []byte(word+" ")) }

func (r *reader) bundle() (*Bundle, error) {
	head, ok := bytes.CutPrefix(r.rest, []byte(magic+"\n"))
	if !ok {
		return nil, errors.New("it is no policy bundle of this version")
	}
	r.rest = head
	b := &Bundle{Files: map[string][]byte{}}
	if err := r.manifest(&b.Manifest); err != nil {
		return nil, err
	}
	for r.next("file") {
		if err := r.file(b); err != nil {
			return nil, err
		}
	}
	if _, err := r.line(endLine, 1); err != nil {
		return nil, err
	}
	return b, r.signatures(b)
}

func (r *reader) manifest(m *Manifest) error {
	size, err := r.line("manifest", 1)
	if err != nil {
		return err
	}
	text, err := r.block(size[0])
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return fmt.Errorf("its manifest: %w", err)
	}
	return nil
}

func (r *reader) file(b *Bundle) error {
	fields, err := r.line("file", 2)
	if err != nil {
		return err
	}
	if _, twice := b.Files[fields[1]]; twice || len(b.Files) == MaxFiles {
		return errors.New("a file is there twice, or there are too many")
	}
	b.Files[fields[1]], err = r.block(fields[0])
	return err
}

func (r *reader) signatures(b *Bundle) error {
	count, err := r.line("signatures", 1)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(count[0])
	if err != nil || n < 0 || n > MaxSignatures {
		return errCutOff
	}
	for range n {
		fields, err := r.line("signature", 2)
		if err != nil {
			return err
		}
		value, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil {
			return errCutOff
		}
		b.Signatures = append(b.Signatures, Signature{fields[0], value})
	}
	if len(r.rest) > 0 {
		return errors.New("something follows the last signature")
	}
	return nil
}
