package review

import (
	"cmp"
	"slices"
	"strings"

	"domicile/policy"
	"domicile/regions"
)

// Kind is how the answer to a question changed.
type Kind string

// The kinds, in the order in which a person is told.
const (
	NewlyAllowed Kind = "newly allowed"
	Moved        Kind = "rests elsewhere" // allowed before and after, but in other regions or with another destination
	NewlyObliged Kind = "newly obliged"   // a rule asks for an obligation; this version performs none and denies
	NewlyDenied  Kind = "newly denied"
)

var kinds = []Kind{NewlyAllowed, Moved, NewlyObliged, NewlyDenied}

// noQuestion is the answer of a policy that does not know a question's words.
const noQuestion = "not in the vocabulary, so refused"

// Change is a set of questions whose answer changed in the same way.
type Change struct {
	Kind   Kind    `json:"kind"`
	Before string  `json:"before"`
	After  string  `json:"after"`
	Where  []Box   `json:"where"` // exactly the questions
	Cells  int     `json:"cells"`
	Asked  *uint64 `json:"asked"` // how often they were asked, as far as it was counted; null: not weighed

	questions []string
}

// Diff is what changes from one policy to another, over every question of either.
type Diff struct {
	Old      string   `json:"old"` // revisions
	New      string   `json:"new"`
	OldCells int      `json:"old_cells"`
	NewCells int      `json:"new_cells"`
	Changes  []Change `json:"changes"`
	Cells    int      `json:"changed_cells"`
	Reworded int      `json:"reworded_cells"` // same decision for other reasons
	Touched  []Touch  `json:"touched"`
	Targets  []Target `json:"failover_targets"` // that are gained or lost

	words words
}

// pair is one question's answers; nil: the policy does not know its words.
type pair struct {
	question policy.Question
	old, now *Answer
}

// Compare lists what changes. f is the federation of the new policy.
func Compare(old, now *Table, f *regions.Federation) *Diff {
	d := &Diff{Old: old.Revision, New: now.Revision, OldCells: len(old.Answers), NewCells: len(now.Answers), Changes: []Change{}, words: now.words}
	var pairs []pair
	for i := range now.Answers {
		p := pair{question: now.Answers[i].Question, now: &now.Answers[i]}
		if a, ok := old.find(p.question.String()); ok {
			p.old = &a
		}
		pairs = append(pairs, p)
	}
	for i := range old.Answers {
		if _, ok := now.find(old.Answers[i].Question.String()); !ok {
			pairs = append(pairs, pair{question: old.Answers[i].Question, old: &old.Answers[i]})
		}
	}
	d.group(pairs)
	d.Touched = touched(pairs, f)
	d.Targets = targets(old, now, f)
	return d
}

// group sorts the pairs that differ by what they say before and after.
func (d *Diff) group(pairs []pair) {
	type key struct {
		kind          Kind
		before, after string
	}
	at := map[key]int{}
	gathered := [][]policy.Question{}
	for _, p := range pairs {
		kind := p.kind()
		if kind == "" {
			if p.old != nil && p.now != nil && !slices.Equal(p.old.Reasons, p.now.Reasons) {
				d.Reworded++
			}
			continue
		}
		k := key{kind, says(p.old), says(p.now)}
		i, ok := at[k]
		if !ok {
			i = len(d.Changes)
			at[k] = i
			d.Changes = append(d.Changes, Change{Kind: kind, Before: k.before, After: k.after})
			gathered = append(gathered, nil)
		}
		gathered[i] = append(gathered[i], p.question)
		d.Changes[i].questions = append(d.Changes[i].questions, p.question.String())
		d.Changes[i].Cells++
		d.Cells++
	}
	for i := range d.Changes {
		d.Changes[i].Where = boxes(gathered[i])
	}
	slices.SortStableFunc(d.Changes, func(a, b Change) int {
		return cmp.Or(slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind), b.Cells-a.Cells, cmp.Compare(a.After, b.After), cmp.Compare(a.Before, b.Before))
	})
}

func says(a *Answer) string {
	if a == nil {
		return noQuestion
	}
	return a.Says()
}

// kind is how a pair's decision changed, "" if it did not.
func (p *pair) kind() Kind {
	var none Answer
	old, now := p.old, p.now
	if old == nil {
		old = &none
	}
	if now == nil {
		now = &none
	}
	if o := now.obliged(); len(o) > 0 && !slices.Equal(o, old.obliged()) {
		return NewlyObliged
	}
	switch {
	case !old.Allow && now.Allow:
		return NewlyAllowed
	case old.Allow && !now.Allow:
		return NewlyDenied
	case old.Allow && !old.same(now):
		return Moved
	}
	return ""
}

// Weigh notes how often each change's questions were asked; asked is by question in words.
func (d *Diff) Weigh(asked map[string]uint64) {
	for i := range d.Changes {
		var sum uint64
		for _, q := range d.Changes[i].questions {
			sum += asked[q]
		}
		d.Changes[i].Asked = &sum
	}
}

// Describe puts a box of the difference into one line.
func (d *Diff) Describe(b Box) string { return b.text(&d.words) }

// Touch is a log, or a copy of one, that holds records which the new policy no longer
// lets it have. They are not moved or deleted by it: somebody has to see to them.
type Touch struct {
	Log    string   `json:"log"`
	Role   string   `json:"role"` // home or copy
	Region string   `json:"region"`
	Tags   []string `json:"tags"` // of the records
	What   string   `json:"what"`
}

const (
	noRest = "may not rest there any more"
	noMore = "gets no more of them; what is there may stay"
)

// touched finds the logs and copies that a narrower policy concerns.
func touched(pairs []pair, f *regions.Federation) []Touch {
	found := map[holder][]string{}
	for _, p := range pairs {
		if p.old == nil || !p.old.Allow {
			continue
		}
		for _, t := range p.loses(f) {
			if tags := tagsOf(p.question); !slices.Contains(found[t], tags) {
				found[t] = append(found[t], tags)
			}
		}
	}
	out := []Touch{}
	for t, tags := range found {
		if t.what == noMore { // said of what may stay there only
			may := holder{t.log, t.role, t.region, noRest}
			tags = slices.DeleteFunc(tags, func(one string) bool { return slices.Contains(found[may], one) })
		}
		if len(tags) == 0 {
			continue
		}
		slices.Sort(tags)
		out = append(out, Touch{t.log, t.role, t.region, tags, t.what})
	}
	slices.SortFunc(out, func(a, b Touch) int {
		return cmp.Compare(a.Log+"\x00"+a.Role+"\x00"+a.Region+"\x00"+a.What, b.Log+"\x00"+b.Role+"\x00"+b.Region+"\x00"+b.What)
	})
	return out
}

// holder is a touch without its tags.
type holder struct{ log, role, region, what string }

// loses lists what may hold less by one pair.
func (p *pair) loses(f *regions.Federation) (out []holder) {
	topic, ok := f.Topic(p.question.Topic)
	if !ok {
		return nil
	}
	denied := p.now == nil || !p.now.Allow
	for _, log := range f.Logs(topic) {
		home, _, ok := f.Home(log)
		if !ok || !f.MayRest(residencyOf(p.question), home) {
			continue // the log has no such records
		}
		switch p.question.Point {
		case policy.Admit:
			if slices.Contains(p.old.Regions, home) && (denied || !slices.Contains(p.now.Regions, home)) {
				out = append(out, holder{log.String(), "home", home, noRest})
			}
		case policy.MirrorEgress, policy.MirrorIngress:
			if denied && home == p.question.Origin && slices.Contains(f.Targets(log), p.question.Target) {
				what := noMore
				if p.question.Point == policy.MirrorIngress {
					what = noRest
				}
				out = append(out, holder{log.String(), "copy", p.question.Target, what})
			}
		}
	}
	return out
}

func residencyOf(q policy.Question) string {
	for _, t := range q.Tags {
		if t.Name == regions.ResidencyTag {
			return t.Value
		}
	}
	return ""
}

// Narrower reports whether some log or copy holds what it may not hold any more.
func (d *Diff) Narrower() bool {
	return slices.ContainsFunc(d.Touched, func(t Touch) bool { return strings.HasPrefix(t.What, noRest) })
}
