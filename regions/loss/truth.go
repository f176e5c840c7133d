package loss

import (
	"fmt"
	"slices"
	"time"
)

// Fate is what became of a record that the old home had beyond the cut.
type Fate string

// The fates.
const (
	Open        Fate = "open"            // kept in the old home; nobody has decided yet
	Republished Fate = "republished"     // published anew from there, under its id
	Present     Fate = "already present" // the new home had its id: its producer had sent it again
	Kept        Fate = "kept"            // policy lets it rest in the old home and not where the log is now
	Refused     Fate = "refused"         // the publish path refused it; it stays in the old home
	Discarded   Fate = "discarded"       // by decision; its payload stays until retention takes it
)

// Fates lists them in the order in which they are shown.
func Fates() []Fate { return []Fate{Open, Republished, Present, Kept, Refused, Discarded} }

// Found is one record that the old home has beyond the cut.
type Found struct {
	Record
	Fate  Fate   `json:"fate"`
	Code  string `json:"code,omitempty"`  // of a refusal
	Where string `json:"where,omitempty"` // where it is now: log, epoch and sequence
}

// Tail sums up what the old home has beyond the cut.
type Tail struct {
	From    uint64    `json:"from"`
	To      uint64    `json:"to"`
	Count   uint64    `json:"count"` // sequences
	Records uint64    `json:"records"`
	Bytes   int64     `json:"bytes"` // on disk
	First   time.Time `json:"first,omitzero"`
	Last    time.Time `json:"last,omitzero"`
	Hash    string    `json:"hash,omitempty"`
}

// Claim is one statement of the first report, held against the truth.
type Claim struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
	Why   string `json:"why"`
}

// Truth is what the old home has beyond the cut, and what became of it.
type Truth struct {
	Tail    Tail            `json:"tail"`
	Fates   map[Fate]uint64 `json:"fates"`
	Lost    uint64          `json:"lost"` // told of at the cut, and in the old home no more
	Gaps    uint64          `json:"gaps"` // sequences of the tail without a record there
	Claims  []Claim         `json:"claims"`
	Records []Found         `json:"records"`
}

// TruthInput is what the old home found when it came back.
type TruthInput struct {
	First   Report
	By      string
	Now     time.Time
	Tail    Tail
	Records []Found // in order
}

// Compare is the report after the old home's return: the first one, what it left open
// filled in, and each of its claims checked.
func Compare(in TruthInput) Report {
	r := in.First
	r.Version, r.By, r.Made = Rejoin, in.By, in.Now
	t := &Truth{Tail: in.Tail, Fates: map[Fate]uint64{}, Records: in.Records, Gaps: in.Tail.Count - min(in.Tail.Count, uint64(len(in.Records)))}
	for _, fate := range Fates() {
		t.Fates[fate] = 0
	}
	for _, f := range in.Records {
		t.Fates[f.Fate]++
	}
	for _, m := range in.First.Missing {
		if _, ok := find(in.Records, m.Sequence); !ok {
			t.Lost++
		}
	}
	t.Claims = claims(&in.First, t)
	r.Truth = t
	return r
}

func find(records []Found, sequence uint64) (Found, bool) {
	i, ok := slices.BinarySearchFunc(records, sequence, func(f Found, s uint64) int {
		switch {
		case f.Sequence < s:
			return -1
		case f.Sequence > s:
			return 1
		}
		return 0
	})
	if !ok {
		return Found{}, false
	}
	return records[i], true
}

// Holds reports whether every claim of the first report was true.
func (t *Truth) Holds() bool {
	return !slices.ContainsFunc(t.Claims, func(c Claim) bool { return !c.Holds })
}

func claims(first *Report, t *Truth) []Claim {
	return []Claim{beyond(first, t), named(first, t), counted(first, t), kept(first, t), timed(first, t)}
}

// beyond: all that was left behind lies behind the cut, but for what was said to be missing
// before it.
func beyond(first *Report, t *Truth) Claim {
	claim := "everything up to the cut is at the new home"
	switch h := first.Below; {
	case h == nil:
		claim = "nothing up to the cut is void"
	case *h != Holes{}:
		claim += ", but for " + h.String()
	}
	c := Claim{Claim: claim, Holds: true, Why: fmt.Sprintf("the old home has nothing void at or before %d", first.Move.Cut)}
	if len(t.Records) > 0 && t.Records[0].Sequence <= first.Move.Cut {
		c.Holds, c.Why = false, fmt.Sprintf("the old home holds sequence %d as void", t.Records[0].Sequence)
	}
	return c
}

// named: each record that was named missing is there, and is that record.
func named(first *Report, t *Truth) Claim {
	c := Claim{Claim: "each record that was named missing was", Holds: true, Why: fmt.Sprintf("%d named, all found", len(first.Missing))}
	for _, m := range first.Missing {
		f, ok := find(t.Records, m.Sequence)
		switch {
		case !ok:
			c.Holds, c.Why = false, fmt.Sprintf("the old home has no record at %d", m.Sequence)
		case f.Hash != m.Hash || !f.Time.Equal(m.Time) || f.Bytes != m.Bytes:
			c.Holds, c.Why = false, fmt.Sprintf("sequence %d is another record in the old home", m.Sequence)
		}
		if !c.Holds {
			return c
		}
	}
	return c
}

// counted: of what the old home had told of, no more was missing than the bound.
func counted(first *Report, t *Truth) Claim {
	c := Claim{Claim: "no more was missing than the bound by count", Holds: true}
	if first.AtMost == nil {
		c.Why = "no bound was given: the old home had not been heard"
		return c
	}
	missing, later := uint64(0), uint64(0)
	for _, f := range t.Records {
		switch {
		case f.Sequence > *first.Head:
			later++
		case !within(first.Kept, f.Sequence):
			missing++
		}
	}
	c.Why = fmt.Sprintf("%d up to sequence %d, the bound was %d; %d behind it, bounded by time alone", missing, *first.Head, *first.AtMost, later)
	c.Holds = missing <= *first.AtMost && (later == 0 || !first.Whole())
	return c
}

// kept: what was said to be kept by policy is in the old home.
func kept(first *Report, t *Truth) Claim {
	c := Claim{Claim: "what policy withheld is kept in the old home", Holds: true, Why: fmt.Sprintf("%d sequences", Count(first.Kept))}
	for _, r := range first.Kept {
		n := uint64(0)
		for _, f := range t.Records {
			if r.From <= f.Sequence && f.Sequence <= r.To {
				n++
			}
		}
		if n != r.count() {
			c.Holds, c.Why = false, fmt.Sprintf("of %d from %d to %d the old home has %d", r.count(), r.From, r.To, n)
			return c
		}
	}
	return c
}

// timed: all that was missing was stamped in the window.
func timed(first *Report, t *Truth) Claim {
	c := Claim{Claim: "all that was missing was stored in the time that was given", Holds: true, Why: "no time was given: it is not known from when on, nor until when"}
	if first.SafeTime != nil {
		c.Why = "from " + first.SafeTime.Format(time.RFC3339Nano) + " on"
	}
	if first.Stopped != nil {
		c.Why += ", until " + first.Stopped.Format(time.RFC3339Nano)
	}
	for _, f := range t.Records {
		early := first.SafeTime != nil && f.Time.Before(*first.SafeTime)
		late := first.Stopped != nil && f.Time.After(first.Stopped.Add(first.ClockError))
		if early || late {
			c.Holds, c.Why = false, fmt.Sprintf("sequence %d was stored at %s", f.Sequence, f.Time.Format(time.RFC3339Nano))
			return c
		}
	}
	return c
}
