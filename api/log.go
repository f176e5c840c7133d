package api

import (
	"fmt"
	"strconv"
	"strings"
)

// HomeSlot is the slot of the single log of a topic declared writes: home.
const HomeSlot = "home"

// LogID is the address of a log, the unit of storage, order, mirroring and
// ownership. Written topic@slot; the tenant is left out while it is the default.
type LogID struct{ Tenant, Topic, Slot string }

// String is the written form, "orders@eu-west".
func (l LogID) String() string {
	if l.Tenant == "" || l.Tenant == DefaultTenant {
		return l.Topic + "@" + l.Slot
	}
	return l.Tenant + "/" + l.Topic + "@" + l.Slot
}

// ParseLogID reads the written form.
func ParseLogID(s string) (LogID, error) {
	tenant := DefaultTenant
	rest := s
	if t, r, ok := strings.Cut(s, "/"); ok {
		tenant, rest = t, r
	}
	topic, slot, ok := strings.Cut(rest, "@")
	if !ok || topic == "" || slot == "" || tenant == "" {
		return LogID{}, &Error{Code: BadName, Op: "parse log", Field: "log", Value: s, Hint: "write a log as topic@region"}
	}
	return LogID{tenant, topic, slot}, nil
}

// Epoch is the ownership term of a log. Only the placement authority changes it;
// while ownership is static every log is in StaticEpoch of its home.
type Epoch struct {
	Term    uint32 // of the authority itself: +1 when it is founded anew
	Counter uint64 // +1 at every change of home
	Issuer  string // who gave it: the region, or "q" for the quorum
}

// StaticEpoch is the first epoch of a log whose home comes from the manifest.
func StaticEpoch(home string) Epoch { return Epoch{Term: 1, Counter: 1, Issuer: home} }

// Compare orders epochs by term, then counter. Epochs that differ only in their
// issuer are siblings, not ordered, and compare as equal: use == for identity.
func (e Epoch) Compare(o Epoch) int {
	switch {
	case e.Term != o.Term:
		if e.Term < o.Term {
			return -1
		}
		return 1
	case e.Counter < o.Counter:
		return -1
	case e.Counter > o.Counter:
		return 1
	}
	return 0
}

// String is the stored form, "1.1.eu-west".
func (e Epoch) String() string {
	return strconv.FormatUint(uint64(e.Term), 10) + "." + strconv.FormatUint(e.Counter, 10) + "." + e.Issuer
}

// ParseEpoch reads the stored form.
func ParseEpoch(s string) (Epoch, error) {
	term, rest, ok1 := strings.Cut(s, ".")
	counter, issuer, ok2 := strings.Cut(rest, ".")
	t, err1 := strconv.ParseUint(term, 10, 32)
	c, err2 := strconv.ParseUint(counter, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || issuer == "" {
		return Epoch{}, fmt.Errorf("epoch %q: want term.counter.issuer", s)
	}
	return Epoch{Term: uint32(t), Counter: c, Issuer: issuer}, nil
}
