package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"domicile/api"
	"domicile/policy"
)

// Case is one question that somebody wrote down with the answer it must have.
type Case struct {
	File     string
	Line     int
	Name     string
	Question policy.Question
	Want     Want
}

// Want is what a case expects. What is left out is not looked at, but allow.
type Want struct {
	Allow       *bool    `json:"allow"`
	Code        string   `json:"code"`        // code of a refusal, as a producer gets it
	Reasons     []string `json:"reasons"`     // codes that must be among the reasons
	Rules       []string `json:"rules"`       // package/id that must be among them
	Regions     []string `json:"regions"`     // where it may rest, exactly
	Destination *string  `json:"destination"` // "" for none
	Obligations []string `json:"obligations"` // package/id of the rules that oblige, exactly
}

// fixture is one file: a record that things are said about, and what changes in each case.
type fixture struct {
	About string            `json:"about"`
	Base  asked             `json:"base"`
	Cases []json.RawMessage `json:"cases"`
}

type fixtureCase struct {
	Name  string `json:"name"`
	Patch asked  `json:"patch"`
	Want  Want   `json:"want"`
}

// asked is a question as people write it; a nil field is not said.
type asked struct {
	Point  *string            `json:"point"`
	Topic  *string            `json:"topic"`
	Tags   map[string]*string `json:"tags"` // null takes a tag away
	Class  *string            `json:"class"`
	Place  *string            `json:"place"`
	Origin *string            `json:"origin"`
	Target *string            `json:"target"`
}

// ParseFixtures reads one file of cases. A key that is not known, a case without a name or
// without want.allow, and a name given twice are refused with PolicyError and the line.
func ParseFixtures(file string, text []byte) ([]Case, error) {
	var f fixture
	if err := decode(text, &f); err != nil {
		return nil, badFixture(file, lineAt(text, offsetOf(err)), err.Error(), "a file holds about, base and cases; a case holds name, patch and want")
	}
	var out []Case
	from := 0
	for _, raw := range f.Cases {
		at := from + bytes.Index(text[from:], raw)
		from = at + len(raw)
		line := lineAt(text, at)
		var c fixtureCase
		if err := decode(raw, &c); err != nil {
			return nil, badFixture(file, line+lineAt(raw, offsetOf(err))-1, err.Error(), "a case holds name, patch (point, topic, tags, class, place, origin, target) and want (allow, code, reasons, rules, regions, destination, obligations)")
		}
		q, err := f.Base.patched(c.Patch).question()
		switch {
		case c.Name == "" || slices.ContainsFunc(out, func(o Case) bool { return o.Name == c.Name }):
			return nil, badFixture(file, line, "name "+fmt.Sprintf("%q", c.Name), "each case has a name of its own")
		case c.Want.Allow == nil:
			return nil, badFixture(file, line, "want says neither", `write "want": {"allow": true} or false`)
		case err != nil:
			return nil, badFixture(file, line, err.Error(), hintOf(err))
		}
		out = append(out, Case{File: file, Line: line, Name: c.Name, Question: q, Want: c.Want})
	}
	if len(out) == 0 {
		return nil, badFixture(file, 1, "no cases", `write "cases": [{"name": …, "want": {"allow": true}}]`)
	}
	return out, nil
}

func badFixture(file string, line int, what, hint string) error {
	return &api.Error{Code: api.PolicyError, Op: "read fixtures", Field: fmt.Sprintf("%s:%d", file, line), Err: errors.New(what), Hint: hint}
}

func hintOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the object")
	}
	return nil
}

func offsetOf(err error) int {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return int(syntax.Offset)
	case errors.As(err, &typed):
		return int(typed.Offset)
	}
	return 0
}

func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}

// patched is the question with what the patch says in place of what base says.
func (a asked) patched(p asked) asked {
	pick := func(base, patch *string) *string {
		if patch != nil {
			return patch
		}
		return base
	}
	out := asked{Point: pick(a.Point, p.Point), Topic: pick(a.Topic, p.Topic), Class: pick(a.Class, p.Class), Place: pick(a.Place, p.Place),
		Origin: pick(a.Origin, p.Origin), Target: pick(a.Target, p.Target), Tags: map[string]*string{}}
	maps.Copy(out.Tags, a.Tags)
	maps.Copy(out.Tags, p.Tags)
	return out
}

func (a asked) question() (policy.Question, error) {
	word := func(s *string) string {
		if s == nil {
			return policy.None
		}
		return *s
	}
	point, err := policy.ParsePoint(word(a.Point))
	q := policy.Question{Point: point, Topic: word(a.Topic), Class: word(a.Class), Place: word(a.Place), Origin: word(a.Origin), Target: word(a.Target)}
	for _, name := range slices.Sorted(maps.Keys(a.Tags)) {
		if v := a.Tags[name]; v != nil {
			q.Tags = append(q.Tags, api.Tag{Name: name, Value: *v})
		}
	}
	// What a point does not ask about may stand in base for the other cases.
	if !point.AsksWho() {
		q.Class, q.Place = policy.None, policy.None
	}
	switch point {
	case policy.Admit:
		q.Target = policy.None
	case policy.Transit:
		q.Origin = q.Target
	}
	return q, err
}

// Check asks a generation and says what is not as the case wants it; nil: all is.
func (c *Case) Check(g *policy.Generation) *Problem {
	d, err := g.Ask(c.Question)
	var missed []string
	if err != nil {
		missed = c.refused(err)
	} else {
		missed = c.Want.missed(d)
	}
	if len(missed) == 0 {
		return nil
	}
	return &Problem{Where: fmt.Sprintf("%s:%d", c.File, c.Line), What: fmt.Sprintf("%q: %s", c.Name, strings.Join(missed, "; ")),
		Fix: "mend the rule, or have the case changed by whoever answers for it"}
}

// refused is for a question outside the vocabulary, which is refused before any rule.
func (c *Case) refused(err error) []string {
	code := string(api.CodeOf(err))
	if !*c.Want.Allow && c.Want.Code == code {
		return nil
	}
	return []string{"the question is refused with " + code + ": " + hintOf(err)}
}

func (w *Want) missed(d *policy.Decision) (missed []string) {
	if *w.Allow != d.Allow {
		a := Answer{Allow: d.Allow, Reasons: d.Reasons}
		return []string{fmt.Sprintf("wants allow=%v; the policy: %s", *w.Allow, a.Says())}
	}
	if w.Code != "" && w.Code != string(d.Code) {
		missed = append(missed, "wants code "+w.Code+", is "+string(d.Code))
	}
	var codes, rules, obliged []string
	for _, r := range d.Reasons {
		codes = append(codes, r.Code)
		if r.Rule != "" {
			rules = append(rules, r.Rule)
		}
		if r.Code == policy.ReasonObligation {
			obliged = append(obliged, r.Rule)
		}
	}
	for _, want := range w.Reasons {
		if full, ok := reasonCode(want); !ok || !slices.Contains(codes, full) {
			missed = append(missed, "wants reason "+want+", has "+strings.Join(codes, ", "))
		}
	}
	for _, want := range w.Rules {
		if !slices.Contains(rules, want) {
			missed = append(missed, "wants rule "+want+", has "+strings.Join(rules, ", "))
		}
	}
	if w.Regions != nil && !slices.Equal(slices.Sorted(slices.Values(w.Regions)), d.Regions) {
		missed = append(missed, "wants regions "+strings.Join(w.Regions, ", ")+", has "+strings.Join(d.Regions, ", "))
	}
	if w.Destination != nil && *w.Destination != d.Destination {
		missed = append(missed, fmt.Sprintf("wants destination %q, is %q", *w.Destination, d.Destination))
	}
	if w.Obligations != nil && !slices.Equal(slices.Sorted(slices.Values(w.Obligations)), obliged) {
		missed = append(missed, "wants obligations "+strings.Join(w.Obligations, ", ")+", has "+strings.Join(obliged, ", "))
	}
	return missed
}
