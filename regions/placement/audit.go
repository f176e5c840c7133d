package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"domicile/api"
)

// Entry is one line of the audit: a command that changed the state. Each carries the hash
// of the one before, so that none can be taken out or altered unseen.
type Entry struct {
	Number  uint64 // 1, 2, 3 … over all generations
	Index   uint64 // of the authority's log
	Verb    Verb
	ID      string
	Log     string    `json:",omitempty"`
	Op      string    `json:",omitempty"`
	Region  string    `json:",omitempty"`
	Actor   string    `json:",omitempty"`
	Reason  string    `json:",omitempty"`
	Plan    string    `json:",omitempty"`
	Was     api.Epoch `json:",omitzero"`
	Now     api.Epoch `json:",omitzero"`
	Status  Status    `json:",omitempty"`
	Content string    // hash of the whole command
	Before  string    // hash of the entry before, "" for the first
	Hash    string    // of this entry without this field
}

func entryOf(index uint64, c Command, said string, was api.Epoch, r Result) Entry {
	return Entry{
		Index: index, Verb: c.Verb, ID: c.ID, Log: c.Log, Op: c.Op, Region: c.Region, Actor: c.Actor, Reason: c.Reason,
		Plan: c.Plan, Was: was, Now: r.Epoch, Status: r.Status, Content: said,
	}
}

func (e Entry) sum() string {
	e.Hash = ""
	text, err := json.Marshal(e)
	if err != nil {
		// Strings and numbers always have a JSON form.
		panic("audit entry: " + err.Error())
	}
	return digest(text)
}

type audit struct {
	Number uint64
	Head   string
	Kept   []Entry
}

func (a *audit) append(e Entry) {
	a.Number++
	e.Number, e.Before = a.Number, a.Head
	e.Hash = e.sum()
	a.Head = e.Hash
	a.Kept = append(a.Kept, e)
	if n := len(a.Kept) - keptAudit; n > 0 {
		a.Kept = slices.Delete(a.Kept, 0, n)
	}
}

// AuditHead is the number and the hash of the last entry.
func (s *State) AuditHead() (number uint64, hash string) { return s.audit.Number, s.audit.Head }

// AuditFirst is the number of the first entry that the state still holds.
func (s *State) AuditFirst() uint64 { return s.audit.Number - uint64(len(s.audit.Kept)) + 1 }

// Audit lists the entries after a number. What the state no longer holds is an error:
// whoever exports the audit has to come by before.
func (s *State) Audit(after uint64) ([]Entry, error) {
	first := s.AuditFirst()
	if after+1 < first {
		return nil, fmt.Errorf("entries %d to %d of the audit are not kept here", after+1, first-1)
	}
	if after >= s.audit.Number {
		return nil, nil
	}
	return slices.Clone(s.audit.Kept[after+1-first:]), nil
}

// VerifyAudit checks that entries follow each other without a gap, and follow the entry
// with the number and hash that are given (0 and "" before the first).
func VerifyAudit(number uint64, hash string, entries []Entry) error {
	for _, e := range entries {
		if e.Number != number+1 || e.Before != hash || e.Hash != e.sum() {
			return errors.New("the audit was altered at entry " + fmt.Sprint(number+1))
		}
		number, hash = e.Number, e.Hash
	}
	return nil
}

// answer is what a command was answered with.
type answer struct {
	ID      string
	Content string
	Result  Result
}

// answers remembers the last commands, so that one that is sent again is not done again.
// An older one meets the check of the expected epoch.
type answers struct {
	list []answer
	byID map[string]answer
}

func (a *answers) find(id string) (answer, bool) {
	found, ok := a.byID[id]
	return found, ok
}

func (a *answers) keep(n answer) {
	if a.byID == nil {
		a.byID = map[string]answer{}
	}
	a.list = append(a.list, n)
	a.byID[n.ID] = n
	if len(a.list) > keptAnswers {
		delete(a.byID, a.list[0].ID)
		a.list = slices.Delete(a.list, 0, 1)
	}
}
