package policy

import (
	"strings"

	"domicile/api"
)

// ParseQuestion reads what Question.String writes. Words are not looked up; what is not a
// question is refused with BadRequest.
func ParseQuestion(text string) (Question, error) {
	bad := func(field, value string) error {
		return &api.Error{Code: api.BadRequest, Op: "read question", Field: field, Value: value,
			Hint: "write it as reports do: admit topic=orders tags=class=order,residency=eu class=app place=eu-west origin=eu-west target=none"}
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Question{}, bad("question", text)
	}
	q := Question{Class: None, Place: None, Origin: None, Target: None}
	var err error
	if q.Point, err = ParsePoint(words[0]); err != nil {
		return Question{}, err
	}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		into := map[string]*string{"topic": &q.Topic, "class": &q.Class, "place": &q.Place, "origin": &q.Origin, "target": &q.Target}[name]
		switch {
		case !ok || value == "" && name != "tags":
			return Question{}, bad("question", w)
		case name == "tags":
			if q.Tags, err = api.ParseTagString(value); err != nil {
				return Question{}, bad("tags", value)
			}
		case into == nil:
			return Question{}, bad("question", w)
		default:
			*into = value
		}
	}
	if q.Topic == "" {
		return Question{}, bad("topic", "")
	}
	return q, nil
}
