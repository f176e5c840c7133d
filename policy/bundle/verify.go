package bundle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Why a bundle is refused. Each is the cause of an *api.Error that says the way out.
var (
	ErrDelta        = errors.New("a delta bundle")
	ErrNoKeyID      = errors.New("a signature without the id of a key")
	ErrBadSignature = errors.New("a signature does not fit")
	ErrSignedTwice  = errors.New("one signer signed twice")
	ErrWrongKey     = errors.New("signed with a key that is not trusted here")
	ErrTooFewRoles  = errors.New("too few signatures of the roles that are needed")
	ErrOldSerial    = errors.New("an old serial")
	ErrExpired      = errors.New("expired")
	ErrNotYetValid  = errors.New("not yet valid")
	ErrOldEngine    = errors.New("this engine is too old")
	ErrElsewhere    = errors.New("made for another federation")
)

// Fits refuses a bundle that this federation, or an engine of this version, may not use
// at all, at any time.
func (b *Bundle) Fits(federation, engine string) error {
	m := b.Manifest
	if m.Federation != federation {
		return refused("federation", m.Federation, "this is federation "+federation, ErrElsewhere)
	}
	ours, err := version(engine)
	if err != nil {
		return refused("min_engine", m.MinEngine, "the version of the engine here is not known: "+engine, ErrOldEngine)
	}
	needed, err := version(m.MinEngine)
	if err != nil || older(ours, needed) {
		return refused("min_engine", m.MinEngine, "the engine here is "+engine+": upgrade this region first", ErrOldEngine)
	}
	return nil
}

// Valid refuses a bundle outside its time.
func (b *Bundle) Valid(now time.Time) error {
	m := b.Manifest
	switch {
	case now.Before(m.ValidFrom):
		return refused("valid_from", m.ValidFrom.Format(time.RFC3339), "activate it from then on; here it is "+now.UTC().Format(time.RFC3339), ErrNotYetValid)
	case !now.Before(m.ValidUntil):
		return refused("valid_until", m.ValidUntil.Format(time.RFC3339), "build and sign it anew; here it is "+now.UTC().Format(time.RFC3339), ErrExpired)
	}
	return nil
}

// Follows refuses a bundle that does not come after what has been active, by serial and
// digest. The very same bundle may come again.
func (b *Bundle) Follows(serial int64, digest string) error {
	m := b.Manifest
	switch {
	case m.Serial < serial:
		return refused("serial", fmt.Sprint(m.Serial), fmt.Sprintf("serial %d has been active: a policy of earlier content gets a new, higher serial with `domicile policy rollback`", serial), ErrOldSerial)
	case m.Serial == serial && b.Digest() != digest:
		return refused("serial", fmt.Sprint(m.Serial), "another policy with this serial has been active: build it with a higher one", ErrOldSerial)
	}
	return nil
}

func version(text string) ([3]int, error) {
	var out [3]int
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return out, errors.New("it has three numbers")
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || strconv.Itoa(n) != p {
			return out, errors.New("it has three numbers")
		}
		out[i] = n
	}
	return out, nil
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
