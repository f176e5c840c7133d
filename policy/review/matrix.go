package review

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/strict"
)

// MatrixFile is the name of the residency matrix in a policy directory.
const MatrixFile = "matrix.csv"

// MaxRows bounds a matrix.
const MaxRows = 10_000

// Words of a matrix that stand for regions by the record's boundary.
const (
	inside  = "inside"  // where the record may rest by the map; of a global record everywhere
	outside = "outside" // every other region
	noWord  = "none"
)

// Columns of a matrix. The first seven are required.
var columns = []string{"point", "topic", "tags", "origin", "target", "answer", "code", "class", "place", "regions", "destination"}

const required = 7

// Matrix is the residency matrix: what people say a policy must answer, row by row.
type Matrix struct{ rows []row }

// row speaks of all questions that its sets hold; a nil set holds every word.
type row struct {
	line                                      int
	points, topics, classes, places, from, to []string
	tags                                      map[string][]string // dimension → values
	allow                                     bool
	codes                                     []string // any of them; none: any reason
	regions                                   []string // admit: exactly these; nil: not said
	destination                               string   // admit; "": not said, "-": none
}

// Rows is how many rows the matrix has.
func (m *Matrix) Rows() int { return len(m.rows) }

// ParseMatrix reads a matrix against the words of a table. Lines that begin with # are
// remarks. A column or word that is not known, or a row that does not say what it must,
// is refused with PolicyError, the line and the way out.
func ParseMatrix(text []byte, t *Table) (*Matrix, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.TrimLeadingSpace = '#', true
	head, err := r.Read()
	if err != nil {
		return nil, unread(1, err)
	}
	names, err := checkColumns(r, head)
	if err != nil {
		return nil, err
	}
	m := &Matrix{}
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil {
			return nil, unread(0, err)
		}
		line, _ := r.FieldPos(0)
		if len(m.rows) == MaxRows {
			return nil, badMatrix(line, "", fmt.Sprintf("at most %d rows: one row may speak of many questions with | and *", MaxRows))
		}
		row, err := parseRow(line, names, fields, t)
		if err != nil {
			return nil, err
		}
		m.rows = append(m.rows, row)
	}
}

func badMatrix(line int, value, hint string) error {
	return &api.Error{Code: api.PolicyError, Op: "read residency matrix", Field: fmt.Sprintf("%s:%d", MatrixFile, line), Value: value, Hint: hint}
}

func unread(line int, err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		line = p.Line
		err = p.Err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty")
	}
	return badMatrix(line, "", err.Error()+"; each row has as many cells as the first line, which names the columns: "+strings.Join(columns, ","))
}

func checkColumns(r *csv.Reader, head []string) (names []string, err error) {
	line, _ := r.FieldPos(0)
	for i, name := range head {
		name = strings.TrimSpace(name)
		if !slices.Contains(columns, name) {
			return nil, badMatrix(line, name, "unknown column; "+nearest(name, columns))
		}
		if slices.Contains(names[:i], name) {
			return nil, badMatrix(line, name, "the column is there twice")
		}
		names = append(names, name)
	}
	for _, name := range columns[:required] {
		if !slices.Contains(names, name) {
			return nil, badMatrix(line, strings.Join(names, ","), "the column "+name+" is missing; required: "+strings.Join(columns[:required], ","))
		}
	}
	return names, nil
}

func nearest(word string, known []string) string {
	if near := strict.Nearest(word, known); near != "" {
		return `did you mean "` + near + `"?`
	}
	return "known: " + strings.Join(known, ", ")
}

func parseRow(line int, names, fields []string, t *Table) (row, error) {
	r := row{line: line}
	cell := map[string]string{}
	for i, name := range names {
		cell[name] = strings.TrimSpace(fields[i])
	}
	areas := []string{inside, outside, noWord}
	for _, c := range []struct {
		column string
		into   *[]string
		known  []string
	}{
		{"point", &r.points, t.words.points}, {"topic", &r.topics, t.words.topics}, {"class", &r.classes, t.words.classes},
		{"place", &r.places, append(slices.Clone(t.words.places), areas...)}, {"origin", &r.from, append(slices.Clone(t.words.regions), areas...)},
		{"target", &r.to, append(slices.Clone(t.words.regions), areas...)}, {"regions", &r.regions, append(slices.Clone(t.words.regions), inside)},
	} {
		var err error
		if *c.into, err = parseSet(line, c.column, cell[c.column], c.known); err != nil {
			return r, err
		}
	}
	if err := r.parseTags(cell["tags"], t); err != nil {
		return r, err
	}
	return r, r.parseAnswer(cell, t)
}

// parseSet reads words with | between them; "" and * hold every word.
func parseSet(line int, column, text string, known []string) ([]string, error) {
	if text == "" || text == "*" {
		return nil, nil
	}
	var set []string
	for _, w := range strings.Split(text, "|") {
		w = strings.TrimSpace(w)
		if !slices.Contains(known, w) {
			return nil, badMatrix(line, w, "not a word of the column "+column+"; "+nearest(w, known))
		}
		set = append(set, w)
	}
	return set, nil
}

// parseTags reads "residency=eu|us class=order": a dimension that is left out may have
// any value.
func (r *row) parseTags(text string, t *Table) error {
	r.tags = map[string][]string{}
	if text == "*" {
		return nil
	}
	known := t.tagValues()
	for _, one := range strings.Fields(text) {
		name, values, ok := strings.Cut(one, "=")
		if !ok || known[name] == nil {
			return badMatrix(r.line, one, "tags are written as dimension=value, with spaces between; "+nearest(name, sorted(known)))
		}
		set, err := parseSet(r.line, "tags, "+name, values, known[name])
		if err != nil {
			return err
		}
		if set != nil {
			r.tags[name] = set
		}
	}
	return nil
}

func (r *row) parseAnswer(cell map[string]string, t *Table) error {
	switch cell["answer"] {
	case "allow":
		r.allow = true
	case "deny":
	default:
		return badMatrix(r.line, cell["answer"], "answer is allow or deny")
	}
	if text := cell["code"]; text != "" {
		for _, code := range strings.Split(text, "|") {
			full, ok := reasonCode(strings.TrimSpace(code))
			if !ok {
				return badMatrix(r.line, code, "not the code of a reason; "+nearest(code, policy.ReasonCodes()))
			}
			r.codes = append(r.codes, full)
		}
	}
	if !r.allow && len(r.codes) == 0 {
		return badMatrix(r.line, "", "a denial says why: give the code of a reason, one of "+strings.Join(policy.ReasonCodes(), ", "))
	}
	r.destination = cell["destination"]
	if d := r.destination; d != "" && d != "-" && !slices.Contains(t.words.regions, d) {
		return badMatrix(r.line, d, "destination is a region, or - for none; "+nearest(d, t.words.regions))
	}
	return nil
}

// reasonCode takes a code, whole or only what stands before its first _.
func reasonCode(text string) (string, bool) {
	for _, code := range policy.ReasonCodes() {
		if short, _, _ := strings.Cut(code, "_"); text == code || text == short {
			return code, true
		}
	}
	return "", false
}

// tagValues lists the values of each dimension that questions of the table hold.
func (t *Table) tagValues() map[string][]string {
	out := map[string][]string{}
	for _, text := range t.words.tags {
		tags, _ := api.ParseTagString(text) // written by TagString
		for _, tag := range tags {
			if !slices.Contains(out[tag.Name], tag.Value) {
				out[tag.Name] = append(out[tag.Name], tag.Value)
			}
		}
	}
	return out
}

func holds(set []string, word string) bool { return set == nil || slices.Contains(set, word) }

// holdsRegion is holds for a region, which may also be named by the record's boundary.
func holdsRegion(set []string, region string, rests func(string) bool) bool {
	if holds(set, region) {
		return true
	}
	if region == policy.None {
		return false
	}
	return rests(region) && slices.Contains(set, inside) || !rests(region) && slices.Contains(set, outside)
}

// speaksOf reports whether a question is one of the row's.
func (r *row) speaksOf(q *policy.Question, rests func(string) bool) bool {
	if !holds(r.points, q.Point.String()) || !holds(r.topics, q.Topic) || !holds(r.classes, q.Class) {
		return false
	}
	for name, values := range r.tags {
		if !slices.ContainsFunc(q.Tags, func(t api.Tag) bool { return t.Name == name && slices.Contains(values, t.Value) }) {
			return false
		}
	}
	return holdsRegion(r.places, q.Place, rests) && holdsRegion(r.from, q.Origin, rests) && holdsRegion(r.to, q.Target, rests)
}

// agrees says "" if the answer is what the row wants, else what the row wants.
func (r *row) agrees(a *Answer, floor []string) string {
	if r.allow != a.Allow {
		return "the row says " + r.answer()
	}
	if len(r.codes) > 0 && !slices.ContainsFunc(a.Reasons, func(x policy.Reason) bool { return slices.Contains(r.codes, x.Code) }) {
		return "the row says " + r.answer()
	}
	if a.Question.Point != policy.Admit || !a.Allow {
		return ""
	}
	if r.regions != nil {
		want := slices.Sorted(slices.Values(r.regions))
		if slices.Contains(want, inside) {
			want = floor
		}
		if !slices.Equal(want, a.Regions) {
			return "the row says that it rests in " + strings.Join(want, " or ")
		}
	}
	if r.destination != "" && strings.TrimPrefix(r.destination, "-") != a.Destination {
		return "the row says that its destination is " + strings.Replace(r.destination, "-", "none", 1)
	}
	return ""
}

func (r *row) answer() string {
	if r.allow {
		return strings.TrimSpace("allow " + strings.Join(r.codes, " or "))
	}
	return "deny " + strings.Join(r.codes, " or ")
}

// areaOf is where a record may rest by the map.
func areaOf(f *regions.Federation, q *policy.Question) (floor []string, rests func(string) bool) {
	floor = f.Floor(residencyOf(*q))
	return slices.Sorted(slices.Values(floor)), func(region string) bool { return slices.Contains(floor, region) }
}
