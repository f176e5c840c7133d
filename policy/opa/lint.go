package opa

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"domicile/api"
	"domicile/policy"
	"domicile/regions/strict"
)

// The sets that authors write. Everything else in a package serves them.
const (
	setPermit      = "permit"
	setForbid      = "forbid"
	setRequire     = "require"
	setDestination = "destination"
)

var sets = []string{setPermit, setForbid, setRequire, setDestination}

// fields lists what a finding of each set may hold; rule is always there.
func fields(set string) []string {
	switch set {
	case setRequire:
		return []string{"rule", "text", "op", "path", "params"}
	default:
		return []string{"rule", "text", "regions"}
	}
}

// ruleKey names a rule of the authors: package, set and id.
type ruleKey struct{ Package, Set, ID string }

// linter refuses what compiles and still is not meant: words outside the vocabulary,
// rules nobody asks, negation in a permit.
type linter struct {
	words    map[string][]string // input leaf → its values
	authored []*ast.Module
	packages map[string]bool // name → it adds to one of the sets
	uses     map[ruleKey]*RuleUse
	data     map[string]any
}

func lintError(at *ast.Location, format string, args ...any) *ast.Error {
	return ast.NewError(ast.CompileErr, at, format, args...)
}

// didYouMean suggests, or lists what is known.
func didYouMean(word string, known []string) string {
	if near := strict.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known: " + strings.Join(known, ", ")
}

// checkModules checks what can be seen before compiling: package names, imports and
// the heads of the four sets.
func (l *linter) checkModules(c *policy.Catalog) error {
	var errs ast.Errors
	for _, m := range l.authored {
		name, err := packageName(m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, seen := l.packages[name]; !seen {
			l.packages[name] = false
		}
		errs = append(errs, checkImports(m)...)
		errs = append(errs, checkPrint(m)...)
		for _, r := range m.Rules {
			if err := l.checkHead(name, r); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		return compileError(errs)
	}
	return l.checkPackages(c)
}

func (l *linter) checkPackages(c *policy.Catalog) error {
	used := c.Packages()
	for _, p := range used {
		if _, ok := l.packages[p]; !ok {
			return &api.Error{Code: api.PolicyError, Op: "check catalog", Field: "packages", Value: p,
				Hint: "no file has package residency.rules." + p + "; " + didYouMean(p, sortedKeys(l.packages))}
		}
	}
	for _, p := range sortedKeys(l.packages) {
		if l.packages[p] && !slices.Contains(used, p) {
			return &api.Error{Code: api.PolicyError, Op: "check catalog", Field: "packages", Value: p,
				Hint: "no topic of catalog.yaml names this package, so its rules would judge nothing"}
		}
	}
	return nil
}

// packageName is the last part of residency.rules.<name>.
func packageName(m *ast.Module) (string, *ast.Error) {
	path := m.Package.Path // data.residency.rules.<name>
	if len(path) == 4 && path[1].Equal(ast.StringTerm(rulesRoot)) && path[2].Equal(ast.StringTerm("rules")) {
		if name, ok := path[3].Value.(ast.String); ok {
			return string(name), nil
		}
	}
	return "", lintError(m.Package.Location, "package %s: rules belong to package residency.rules.<name>", strings.TrimPrefix(path.String(), "data."))
}

func checkImports(m *ast.Module) (errs ast.Errors) {
	for _, i := range m.Imports {
		path := i.Path.Value.String()
		if path != "rego.v1" && !strings.HasPrefix(path, "data.") {
			errs = append(errs, lintError(i.Location, "import %s: only rego.v1 and data.… may be imported", path))
		}
	}
	return errs
}

// checkPrint refuses print, which the compiler would otherwise turn into true.
func checkPrint(m *ast.Module) (errs ast.Errors) {
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if e.IsCall() && e.Operator().String() == ast.Print.Name {
			errs = append(errs, lintError(e.Location, "undefined function print"))
		}
		return false
	})
	return errs
}

// checkHead checks the head of a rule of one of the four sets, and notes the rule.
func (l *linter) checkHead(pkg string, r *ast.Rule) *ast.Error {
	set := string(r.Head.Name)
	if len(r.Head.Reference) > 0 {
		if v, ok := r.Head.Reference[0].Value.(ast.Var); ok {
			set = string(v)
		}
	}
	if !slices.Contains(sets, set) {
		return nil
	}
	l.packages[pkg] = true
	if r.Head.Key == nil || len(r.Head.Reference) > 1 || len(r.Head.Args) > 0 || r.Default {
		return lintError(r.Location, "%s is a set: write `%s contains … if { … }`", set, set)
	}
	if set == setDestination {
		return l.checkRegionLiteral(r.Head.Key)
	}
	return l.checkFinding(pkg, set, r)
}

func (l *linter) checkFinding(pkg, set string, r *ast.Rule) *ast.Error {
	finding, ok := r.Head.Key.Value.(ast.Object)
	if !ok {
		return lintError(r.Location, "%s contains an object written in place: {\"rule\": \"<id>\", …}", set)
	}
	for _, key := range finding.Keys() {
		name, ok := key.Value.(ast.String)
		if !ok || !slices.Contains(fields(set), string(name)) {
			return lintError(key.Location, "%s has no field %s; %s", set, key, didYouMean(strings.Trim(key.String(), `"`), fields(set)))
		}
	}
	id, ok := literal(finding.Get(ast.StringTerm("rule")))
	if !ok || id == "" {
		return lintError(r.Location, "%s needs \"rule\": \"<id>\", a literal: refusals name it", set)
	}
	key := ruleKey{pkg, set, id}
	if l.uses[key] == nil {
		text, _ := literal(finding.Get(ast.StringTerm("text")))
		l.uses[key] = &RuleUse{Package: pkg, Set: set, Rule: id, Text: text, File: r.Location.File, Line: r.Location.Row}
	}
	return l.checkRegionLiteral(finding.Get(ast.StringTerm("regions")))
}

func literal(t *ast.Term) (string, bool) {
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

// checkRegionLiteral refuses a literal that is no region, alone or in a collection.
func (l *linter) checkRegionLiteral(t *ast.Term) (bad *ast.Error) {
	eachLiteral(t, func(s string, at *ast.Location) {
		if known := l.words["origin.region"]; !slices.Contains(known, s) && bad == nil {
			bad = lintError(at, "%q is no region of the federation; %s", s, didYouMean(s, known))
		}
	})
	return bad
}

// eachLiteral visits a string, or the strings directly in an array or set.
func eachLiteral(t *ast.Term, visit func(string, *ast.Location)) {
	if t == nil {
		return
	}
	one := func(t *ast.Term) {
		if s, ok := literal(t); ok {
			visit(s, t.Location)
		}
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(one)
	case ast.Set:
		v.Foreach(one)
	default:
		one(t)
	}
}
