package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"domicile/api"
)

// Limits of a bundle. A longer validity than MaxValidity would let a forgotten policy
// decide for years.
const (
	MaxSize       = 6 << 20 // bytes of a whole bundle
	MaxFiles      = 500
	MaxName       = 200 // bytes of a file's name
	MaxSignatures = 32
	MaxValidity   = 90 * 24 * time.Hour
)

// whole is the only kind of bundle: one that says what changed against another could be
// laid over any.
const whole = "whole"

// Manifest says what a bundle is. It is signed with the files.
type Manifest struct {
	Kind       string    `json:"kind"` // "whole"
	Federation string    `json:"federation"`
	Serial     int64     `json:"serial"` // above that of every policy before it; it stands over the catalog's
	ValidFrom  time.Time `json:"valid_from"`
	ValidUntil time.Time `json:"valid_until"` // from then on cross-border flows stop
	MinEngine  string    `json:"min_engine"`  // version of the rules' engine, as 1.22.3: an older one may decide otherwise
	// RollsBackTo is the serial whose files these are; 0: they are new.
	RollsBackTo int64 `json:"rolls_back_to,omitempty"`
	// Revokes names exceptions and mechanisms of the files that last no more, sorted. Only
	// the files of the active policy may be there with more of them.
	Revokes []string `json:"revokes,omitempty"`
}

// Bundle is one bundle. What was read or built is not changed, but for Sign.
type Bundle struct {
	Manifest   Manifest
	Files      map[string][]byte // path within the policy directory, with slashes → bytes
	Signatures []Signature       // in the order in which they were made
}

// Signature is one person's over the bundle's digest.
type Signature struct {
	KeyID string
	Value []byte // ES256: r and s, 32 bytes each
}

func refused(field, value, hint string, why error) error {
	return &api.Error{Code: api.PolicyError, Op: "read policy bundle", Field: field, Value: value, Hint: hint, Err: why}
}

// Build makes a bundle without signatures. Times are cut to seconds. It refuses what no
// region would take.
func Build(m Manifest, files map[string][]byte) (*Bundle, error) {
	m.Kind, m.ValidFrom, m.ValidUntil = whole, m.ValidFrom.UTC().Truncate(time.Second), m.ValidUntil.UTC().Truncate(time.Second)
	b := &Bundle{Manifest: m, Files: maps.Clone(files)}
	if err := b.check(); err != nil {
		return nil, err
	}
	if n := len(b.Bytes()); n > MaxSize {
		return nil, refused("size", fmt.Sprint(n), fmt.Sprintf("at most %d bytes", MaxSize), nil)
	}
	return b, nil
}

// check is what holds for every bundle, whoever reads it and when.
func (b *Bundle) check() error {
	m := b.Manifest
	switch {
	case m.Kind != whole:
		return refused("kind", m.Kind, "a bundle holds a whole policy: one that changes another is not taken", ErrDelta)
	case m.Federation == "":
		return refused("federation", "", "name the federation that the policy is for", nil)
	case m.Serial < 1:
		return refused("serial", fmt.Sprint(m.Serial), "a whole number from 1, higher with every bundle", nil)
	case m.RollsBackTo < 0 || m.RollsBackTo >= m.Serial:
		return refused("rolls_back_to", fmt.Sprint(m.RollsBackTo), "it goes back to a lower serial", nil)
	case m.RollsBackTo > 0 && len(m.Revokes) > 0 || !plainSet(m.Revokes):
		return refused("revokes", fmt.Sprint(len(m.Revokes)), "names of exceptions and mechanisms, each once, and in no rollback", nil)
	case !plainTime(m.ValidFrom) || !plainTime(m.ValidUntil):
		return refused("valid_until", "", "times are whole seconds in UTC, after 1970", nil)
	case !m.ValidUntil.After(m.ValidFrom):
		return refused("valid_until", m.ValidUntil.Format(time.RFC3339), "it comes after valid_from", nil)
	case m.ValidUntil.Sub(m.ValidFrom) > MaxValidity:
		return refused("valid_until", m.ValidUntil.Format(time.RFC3339), "at most 90 days after valid_from: a policy is looked at again by then", nil)
	case len(b.Files) == 0 || len(b.Files) > MaxFiles:
		return refused("files", fmt.Sprint(len(b.Files)), fmt.Sprintf("from 1 to %d files", MaxFiles), nil)
	case len(b.Signatures) > MaxSignatures:
		return refused("signatures", fmt.Sprint(len(b.Signatures)), fmt.Sprintf("at most %d", MaxSignatures), nil)
	}
	if _, err := version(m.MinEngine); err != nil {
		return refused("min_engine", m.MinEngine, "a version as 1.22.3", err)
	}
	for name := range b.Files {
		if err := checkName(name); err != nil {
			return refused("files", fmt.Sprintf("%.*q", MaxName, name), err.Error(), nil)
		}
	}
	return b.checkSignatures()
}

func (b *Bundle) checkSignatures() error {
	seen := map[string]bool{}
	for _, s := range b.Signatures {
		switch {
		case s.KeyID == "":
			return refused("signatures", "", "a signature names its key", ErrNoKeyID)
		case !plainWord(s.KeyID):
			return refused("signatures", fmt.Sprintf("%.64q", s.KeyID), "an id of a key has lower-case letters, digits, '-', '_' and '.', at most 64", nil)
		case len(s.Value) != signatureSize:
			return refused("signatures", s.KeyID, "an ES256 signature has 64 bytes", ErrBadSignature)
		case seen[s.KeyID]:
			return refused("signatures", s.KeyID, "one person signs once: somebody else has to", ErrSignedTwice)
		}
		seen[s.KeyID] = true
	}
	return nil
}

// checkName takes a path of plain words, at most two deep, that means the same file on
// every system.
func checkName(name string) error {
	parts := strings.Split(name, "/")
	if len(name) > MaxName || len(parts) > 2 {
		return fmt.Errorf("a name has at most %d bytes and one folder", MaxName)
	}
	for _, p := range parts {
		if p == "" || p[0] == '.' || !plainName(p) {
			return fmt.Errorf("a name has letters, digits, '-', '_' and '.', and begins with no '.'")
		}
	}
	return nil
}

// plainSet takes up to 64 plain words, sorted, each once.
func plainSet(words []string) bool {
	for i, w := range words {
		if !plainWord(w) || i > 0 && words[i-1] >= w {
			return false
		}
	}
	return len(words) <= 64
}

func plainTime(t time.Time) bool {
	return t.Location() == time.UTC && t.Nanosecond() == 0 && t.Unix() > 0 && t.Year() <= 9999
}

func plainName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

func plainWord(s string) bool {
	return s != "" && len(s) <= 64 && plainName(s) && s == strings.ToLower(s)
}

// Digest is the SHA-256, in hex, of manifest and files: what is signed. Signatures do not
// change it.
func (b *Bundle) Digest() string {
	sum := sha256.Sum256(b.body())
	return hex.EncodeToString(sum[:])
}

// SameFiles reports whether two bundles hold the same files, byte by byte.
func (b *Bundle) SameFiles(other *Bundle) bool {
	return maps.EqualFunc(b.Files, other.Files, slices.Equal)
}

// With is the bundle with those signatures of more whose keys have not signed it yet; nil
// when there are none, or no room for them.
func (b *Bundle) With(more []Signature) *Bundle {
	next := *b
	next.Signatures = slices.Clone(b.Signatures)
	for _, s := range more {
		if !slices.ContainsFunc(next.Signatures, func(have Signature) bool { return have.KeyID == s.KeyID }) {
			next.Signatures = append(next.Signatures, s)
		}
	}
	if n := len(next.Signatures); n == len(b.Signatures) || n > MaxSignatures || len(next.Bytes()) > MaxSize {
		return nil
	}
	return &next
}

// Signers names the set of keys that have signed, whatever their order.
func (b *Bundle) Signers() string {
	var ids []string
	for _, s := range b.Signatures {
		ids = append(ids, s.KeyID)
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	return hex.EncodeToString(sum[:8])
}
