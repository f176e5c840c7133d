package invariant

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions/loss"
)

// Redrive is what became of the records that the forced end of an epoch left void in a
// region, as that region says it.
type Redrive struct {
	Log, Region string
	Hash        string // of what people looked at
	// How it is settled, by whom and why; "": it is not.
	How, Who, Reason string
	// Revision is what was in force where the log is now when people decided.
	Revision string
	Void     []Voided
	Acts     []Act // of the region's audit
}

// Voided is a void record and its fate.
type Voided struct {
	ledger.Item
	Fate  loss.Fate
	Code  api.Code // of a refusal
	Where string   // epoch/sequence of the record that stands for it now
}

// Act is a line of an audit.
type Act struct {
	Act, Who, Reason, Outcome string
	Changes                   []string
	ApprovedBy                []string
}

// Redrives judges 32: what was published anew is the record that was void, by id, key and
// body, stored once and admitted under the policy in force then or a newer one; what policy
// refused, and what people gave up, is stored nowhere; and of each decision the audit says,
// before it and after it, who made it and why, and of one to give records up who agreed.
// home is each log at its last home.
func Redrives(all []Redrive, home []ledger.Shelf) []Violation {
	j := &redrives{items: map[string][]*ledger.Item{}}
	for i := range home {
		for n := range home[i].Items {
			id := ledger.Mark(home[i].Items[n].ID)
			j.items[id] = append(j.items[id], &home[i].Items[n])
		}
	}
	for i := range all {
		j.now = &all[i]
		for n := range j.now.Void {
			j.record(&j.now.Void[n])
		}
		j.people()
	}
	return j.found
}

type redrives struct {
	items map[string][]*ledger.Item // at home, by the mark of the id
	now   *Redrive
	found []Violation
}

func (j *redrives) broken(sequence uint64, format string, args ...any) {
	j.found = append(j.found, Violation{Number: Redriven, Log: j.now.Log, Region: j.now.Region, Sequence: sequence, Text: fmt.Sprintf(format, args...)})
}

func (j *redrives) record(v *Voided) {
	there := j.items[ledger.Mark(v.ID)]
	if v.Fate != loss.Republished && v.Fate != loss.Present {
		if j.now.How == string(loss.Republished) {
			j.broken(v.Sequence, "it is settled as republished, and this record is %s", v.Fate)
		}
		if len(there) > 0 && v.Code != api.IDReused {
			j.broken(v.Sequence, "a record that is %s is stored at home, at %d", v.Fate, there[0].Sequence)
		}
		return
	}
	if len(there) != 1 {
		j.broken(v.Sequence, "a record that is %s is stored at home %d times under its id", v.Fate, len(there))
		return
	}
	it := there[0]
	switch now, known := serial(it.Revision); {
	case fmt.Sprintf("%s/%d", it.Epoch, it.Sequence) != v.Where:
		j.broken(v.Sequence, "it is said to be at %s, and is at %s/%d", v.Where, it.Epoch, it.Sequence)
	case it.Hash != v.Item.Hash || ledger.Mark(it.Key) != ledger.Mark(v.Key):
		j.broken(v.Sequence, "published anew with another body or key")
	case v.Fate == loss.Republished && !known:
		j.broken(v.Sequence, "published anew under no policy")
	case v.Fate == loss.Republished:
		if then, ok := serial(j.now.Revision); ok && now < then {
			j.broken(v.Sequence, "published anew under %s, while %s was in force", it.Revision, j.now.Revision)
		}
	}
}

// people: who decided stands in the audit.
func (j *redrives) people() {
	anew := slices.ContainsFunc(j.now.Void, func(v Voided) bool { return v.Fate == loss.Republished })
	if anew || j.now.How == string(loss.Republished) {
		j.audited("republish", j.now.How == string(loss.Republished))
	}
	if j.now.How != string(loss.Discarded) {
		return
	}
	agreed := false
	for _, a := range j.audited("discard", true) {
		agreed = agreed || slices.ContainsFunc(a.ApprovedBy, func(who string) bool { return who != "" && who != a.Who })
	}
	if !agreed {
		j.broken(0, "given up, and the audit names nobody who agreed")
	}
}

// audited is every line about one kind of decision on these records. One was written before
// it and one after it, and if it settled them, by whom and why as they say themselves.
func (j *redrives) audited(act string, settled bool) (lines []Act) {
	begun, done := false, false
	for _, a := range j.now.Acts {
		if a.Act != act || !slices.ContainsFunc(a.Changes, func(c string) bool { return strings.Contains(c, j.now.Hash) }) {
			continue
		}
		lines = append(lines, a)
		begun = begun || a.Outcome == "begun"
		done = done || a.Outcome == "done" && (!settled || a.Who == j.now.Who && a.Reason == j.now.Reason)
		if a.Who == "" || strings.TrimSpace(a.Reason) == "" {
			j.broken(0, "the audit of a %s names nobody, or no reason", act)
		}
	}
	if !begun || !done {
		j.broken(0, "the audit does not say who decided on a %s, and why", act)
	}
	return lines
}
