package review

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"domicile/policy"
	"domicile/regions"
)

// Problem is one thing that a policy and what people wrote about it do not agree on.
type Problem struct {
	Where string `json:"where"` // file:line
	What  string `json:"what"`
	Cells int    `json:"cells,omitempty"` // questions it concerns
	Fix   string `json:"fix"`
}

// String is the problem on one line.
func (p Problem) String() string { return p.Where + ": " + p.What + "; " + p.Fix }

// verdicts gathers, while the domain is walked, what is wrong with each row.
type verdicts struct {
	used    []bool
	wrong   map[wrong][]policy.Question
	clash   map[[2]int][]policy.Question
	nowhere []policy.Question
}

// wrong is a row, what it wants and what the policy says instead.
type wrong struct {
	row        int
	want, says string
}

// Check holds every answer of a table against the matrix: an answer that a row speaks
// of differently, a question that two rows speak of differently, one that no row speaks
// of, and a row that speaks of none are problems. They are ordered by line; questions
// without a row come last.
func (m *Matrix) Check(t *Table, f *regions.Federation) []Problem {
	v := verdicts{used: make([]bool, len(m.rows)), wrong: map[wrong][]policy.Question{}, clash: map[[2]int][]policy.Question{}}
	byPlace := m.index(t)
	for i := range t.Answers {
		a := &t.Answers[i]
		m.hold(a, byPlace[a.Question.Point.String()+" "+a.Question.Topic], f, &v)
	}
	return m.problems(&v, t)
}

// index lists the rows that may speak of each point and topic.
func (m *Matrix) index(t *Table) map[string][]int {
	out := map[string][]int{}
	for _, p := range t.words.points {
		for _, topic := range t.words.topics {
			for i := range m.rows {
				if holds(m.rows[i].points, p) && holds(m.rows[i].topics, topic) {
					out[p+" "+topic] = append(out[p+" "+topic], i)
				}
			}
		}
	}
	return out
}

func (m *Matrix) hold(a *Answer, rows []int, f *regions.Federation, v *verdicts) {
	floor, rests := areaOf(f, &a.Question)
	first := -1
	for _, i := range rows {
		r := &m.rows[i]
		if !r.speaksOf(&a.Question, rests) {
			continue
		}
		v.used[i] = true
		if first >= 0 && m.rows[first].allow != r.allow {
			v.clash[[2]int{first, i}] = append(v.clash[[2]int{first, i}], a.Question)
		}
		if want := r.agrees(a, floor); want != "" {
			k := wrong{i, want, a.Says()}
			v.wrong[k] = append(v.wrong[k], a.Question)
		}
		if first < 0 {
			first = i
		}
	}
	if first < 0 {
		v.nowhere = append(v.nowhere, a.Question)
	}
}

func (m *Matrix) problems(v *verdicts, t *Table) []Problem {
	var out []Problem
	at := func(i int) string { return fmt.Sprintf("%s:%d", MatrixFile, m.rows[i].line) }
	for i, used := range v.used {
		if !used {
			out = append(out, Problem{Where: at(i), What: "the row speaks of no question of the domain", Fix: "mend its words, or take it out"})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(v.clash), func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) }) {
		for _, b := range boxes(v.clash[k]) {
			out = append(out, Problem{Where: at(k[1]), Cells: b.Cells, What: fmt.Sprintf("contradicts line %d (%s against %s) for %s",
				m.rows[k[0]].line, m.rows[k[1]].answer(), m.rows[k[0]].answer(), b.text(&t.words)), Fix: "narrow one of the two rows"})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(v.wrong), func(a, b wrong) int {
		return cmp.Or(a.row-b.row, cmp.Compare(a.want, b.want), cmp.Compare(a.says, b.says))
	}) {
		for _, b := range boxes(v.wrong[k]) {
			out = append(out, Problem{Where: at(k.row), Cells: b.Cells, What: k.want + "; the policy: " + k.says + ", for " + b.text(&t.words),
				Fix: "mend the rule, or have the row changed by whoever answers for it"})
		}
	}
	slices.SortStableFunc(out, func(a, b Problem) int { return cmp.Compare(lineOf(a.Where), lineOf(b.Where)) })
	for _, b := range boxes(v.nowhere) {
		out = append(out, Problem{Where: MatrixFile, Cells: b.Cells, What: "no row speaks of " + b.text(&t.words), Fix: "add a row"})
	}
	return out
}

func lineOf(where string) (line int) {
	_, _ = fmt.Sscanf(where, MatrixFile+":%d", &line)
	return line
}
