package approval

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions/strict"
)

// The roles. Every operator may look; these are for those who act or consent.
const (
	Operator   = "operator"   // what loses nothing: a planned move, its abort
	Incident   = "incident"   // what may lose records: a forced move, a founding
	Compliance = "compliance" // what lets records go further than before
)

func roles() []string { return []string{Operator, Incident, Compliance} }

// KnownRole reports whether the word is a role.
func KnownRole(role string) bool { return slices.Contains(roles(), role) }

func hintRole(role string) string {
	if near := strict.Nearest(role, roles()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "one of " + strings.Join(roles(), ", ")
}

// Rule gives roles to operators. The field tags are node.yaml's.
type Rule struct {
	Match string   `yaml:"match"` // the name in the operator's certificate, or a pattern with * and ?
	Roles []string `yaml:"roles"`
}

// Rules are the roles as this node gives them. The first rule that matches a name
// decides; a name that none matches has no role.
type Rules []Rule

// Check refuses rules that cannot be meant, with ConfigInvalid and the field.
func (r Rules) Check() error {
	for i, rule := range r {
		bad := func(field, value, hint string) error {
			return &api.Error{Code: api.ConfigInvalid, Op: "check operators", Field: fmt.Sprintf("operators[%d].%s", i, field), Value: value, Hint: hint}
		}
		if _, err := path.Match(rule.Match, ""); err != nil || rule.Match == "" {
			return bad("match", rule.Match, "the name in an operator's certificate, or a pattern with * and ?")
		}
		if len(rule.Roles) == 0 {
			return bad("roles", "", "name at least one role: "+strings.Join(roles(), ", "))
		}
		for _, role := range rule.Roles {
			if !KnownRole(role) {
				return bad("roles", role, hintRole(role))
			}
		}
	}
	return nil
}

// Of lists the roles of an operator by the name in the certificate. It must not be
// changed.
func (r Rules) Of(name string) []string {
	for _, rule := range r {
		if ok, err := path.Match(rule.Match, name); err == nil && ok {
			return rule.Roles
		}
	}
	return nil
}

// Has refuses, with PermissionDenied, an operator who has none of the roles.
func (r Rules) Has(name string, wanted ...string) error {
	mine := r.Of(name)
	if slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(mine, w) }) {
		return nil
	}
	return denied("operator", name, "it takes the role "+strings.Join(wanted, " or ")+"; operators in node.yaml gives roles to names")
}
