package review

import (
	"slices"
	"strings"

	"domicile/api"
	"domicile/policy"
)

// Answer is what a policy says to one question.
type Answer struct {
	Question    policy.Question
	Allow       bool
	Code        api.Code // "" for an allow
	Regions     []string // as policy.Decision
	Destination string
	Reasons     []policy.Reason
}

// Table is every answer of one policy, in the order of its domain. It is immutable and
// safe for concurrent use.
type Table struct {
	Revision string
	Answers  []Answer
	at       map[string]int // question in words → its answer
	words    words
}

// words are the closed sets of a table's questions.
type words struct{ points, topics, tags, classes, places, regions []string }

// NewTable takes over the answers.
func NewTable(revision string, answers []Answer) *Table {
	t := &Table{Revision: revision, Answers: answers, at: make(map[string]int, len(answers))}
	sets := [6]map[string]bool{}
	for i := range sets {
		sets[i] = map[string]bool{}
	}
	for i := range answers {
		q := &answers[i].Question
		t.at[q.String()] = i
		sets[0][q.Point.String()], sets[1][q.Topic], sets[2][tagsOf(*q)] = true, true, true
		sets[3][q.Class], sets[4][q.Place] = true, true
		sets[5][q.Origin], sets[5][q.Target] = true, true
	}
	delete(sets[3], policy.None)
	delete(sets[5], policy.None)
	sorted := [6][]string{}
	for i, set := range sets {
		for w := range set {
			sorted[i] = append(sorted[i], w)
		}
		slices.Sort(sorted[i])
	}
	t.words = words{sorted[0], sorted[1], sorted[2], sorted[3], sorted[4], sorted[5]}
	return t
}

// TableOf is the table of a generation.
func TableOf(g *policy.Generation) *Table {
	answers := make([]Answer, 0, g.Cells())
	for q, d := range g.All() {
		answers = append(answers, Answer{Question: q, Allow: d.Allow, Code: d.Code, Regions: d.Regions, Destination: d.Destination, Reasons: d.Reasons})
	}
	return NewTable(g.Revision, answers)
}

// find is the answer to a question in words; false for one that the policy does not
// know, which it refuses.
func (t *Table) find(question string) (Answer, bool) {
	i, ok := t.at[question]
	if !ok {
		return Answer{}, false
	}
	return t.Answers[i], true
}

// tagsOf is the canonical text of a question's tags, without those that do not apply.
func tagsOf(q policy.Question) string {
	return api.TagString(slices.DeleteFunc(slices.Clone(q.Tags), func(t api.Tag) bool { return t.Value == policy.None }))
}

// obliged lists the rules that ask for an obligation.
func (a *Answer) obliged() (rules []string) {
	for _, r := range a.Reasons {
		if r.Code == policy.ReasonObligation {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// strongest is the reason that a person is told first: of an allow what permits it, of
// a denial the first that speaks against it.
func (a *Answer) strongest() policy.Reason {
	for _, r := range a.Reasons {
		if (r.Code == policy.ReasonPermitted) == a.Allow {
			return r
		}
	}
	if len(a.Reasons) > 0 {
		return a.Reasons[0]
	}
	return policy.Reason{}
}

// Says puts the answer into one line, without the question.
func (a *Answer) Says() string {
	r := a.strongest()
	why := r.Code
	if r.Rule != "" {
		why += " " + r.Rule
	}
	if !a.Allow {
		return "denied, " + why
	}
	said := "allowed, " + why
	if a.Question.Point == policy.Admit {
		said += ", rests in " + strings.Join(a.Regions, " or ")
		if a.Destination != "" {
			said += ", from elsewhere it goes to " + a.Destination
		}
	}
	return said
}

// same reports whether two answers decide the same, whatever their reasons.
func (a *Answer) same(b *Answer) bool {
	return a.Allow == b.Allow && a.Destination == b.Destination && slices.Equal(a.obliged(), b.obliged()) &&
		(a.Question.Point != policy.Admit || slices.Equal(a.Regions, b.Regions))
}

// Same reports whether two policies decide the same over the same domain.
func (t *Table) Same(other *Table) bool {
	if len(t.Answers) != len(other.Answers) {
		return false
	}
	for i := range t.Answers {
		b, ok := other.find(t.Answers[i].Question.String())
		if !ok || !t.Answers[i].same(&b) {
			return false
		}
	}
	return true
}
