package canary

import (
	"crypto/rand"
	"encoding/base32"
	"slices"
	"strings"
	"sync"
)

// MinToken is the shortest token a Set accepts, in bytes. A shorter one could occur
// by chance, and its encoded forms would be too short to search for.
const MinToken = 16

var alphabet = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// Plain mints a token of 24 letters and digits, 120 random bits: fit for ids and
// keys.
func Plain() string { return random(15) }

// Awkward mints a token that JSON and Go's quoting have to escape, for places that
// take any text. It never looks the same raw and escaped.
func Awkward() string { return random(10) + `"&<` + random(5) }

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: the runtime ends the process instead
	return alphabet.EncodeToString(b)
}

// Set is the tokens of one run. It is safe for concurrent use.
type Set struct {
	mu     sync.Mutex
	tokens []string
	places []string
}

// Add registers a token and where it was put, in the caller's words, and returns
// its index. It panics on a token shorter than MinToken: the scan could not vouch
// for it.
func (s *Set) Add(token, place string) int {
	if len(token) < MinToken {
		panic("canary: token shorter than MinToken")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, token)
	s.places = append(s.places, place)
	return len(s.tokens) - 1
}

// Len is the number of tokens.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}

// Place says where the token of this index was put.
func (s *Set) Place(index int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[index]
}

// Size is the length of the token of this index, in bytes.
func (s *Set) Size(index int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens[index])
}

// Where lists the indexes of the tokens whose place starts with prefix.
func (s *Set) Where(prefix string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []int
	for i, p := range s.places {
		if strings.HasPrefix(p, prefix) {
			found = append(found, i)
		}
	}
	return found
}

// since lists the tokens from an index on.
func (s *Set) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens[n:])
}

func (s *Set) snapshot() []string { return s.since(0) }
