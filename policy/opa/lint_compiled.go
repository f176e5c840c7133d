package opa

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// checkWords is a compiler stage, run once names are resolved: what rules read and
// the literals they compare it with.
func (l *linter) checkWords(c *ast.Compiler) *ast.Error {
	var first *ast.Error
	note := func(err *ast.Error) {
		if first == nil && err != nil {
			first = err
		}
	}
	for _, m := range l.authored {
		m = c.Modules[m.Package.Location.File]
		for _, r := range m.Rules {
			ast.WalkExprs(r, func(e *ast.Expr) bool {
				if len(e.With) > 0 {
					note(lintError(e.Location, "`with` belongs in tests: a rule judges the question it is given"))
				}
				note(l.checkComparison(e))
				return false
			})
			ast.WalkRefs(r, func(ref ast.Ref) bool {
				note(l.checkInputRef(ref))
				note(checkDataRoot(ref))
				return false
			})
		}
	}
	return first
}

// checkInputRef takes a whole path to one field only: what a rule reads is then
// written in it.
func (l *linter) checkInputRef(ref ast.Ref) *ast.Error {
	if !ref[0].Equal(ast.InputRootDocument) {
		return nil
	}
	if path, ok := inputPath(ref); ok && l.words[path] != nil {
		return nil
	}
	if len(ref) == 1 {
		return lintError(ref[0].Location, "`input` as a whole: read one field of it, as input.tags.residency")
	}
	return lintError(ref[0].Location, "%s is not a field of the input; fields: %s", ref, strings.Join(sortedKeys(l.words), ", "))
}

// inputPath is the dotted path of a reference into input.
func inputPath(ref ast.Ref) (string, bool) {
	if len(ref) < 2 || !ref[0].Equal(ast.InputRootDocument) {
		return "", false
	}
	parts := make([]string, 0, len(ref)-1)
	for _, t := range ref[1:] {
		s, ok := literal(t)
		if !ok {
			return "", false
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "."), true
}

var comparisons = []string{"eq", "equal", "neq", "assign", "internal.member_2"}

// checkComparison refuses a field compared with a word it can never hold: the rule
// would silently be dead, or always true.
func (l *linter) checkComparison(e *ast.Expr) (bad *ast.Error) {
	if !e.IsCall() || !slices.Contains(comparisons, e.Operator().String()) || len(e.Operands()) != 2 {
		return nil
	}
	for i, side := range e.Operands() {
		ref, ok := side.Value.(ast.Ref)
		if !ok {
			continue
		}
		path, ok := inputPath(ref)
		known := l.words[path]
		if !ok || known == nil {
			continue
		}
		eachLiteral(e.Operand(1-i), func(s string, at *ast.Location) {
			if !slices.Contains(known, s) && bad == nil {
				bad = lintError(at, "input.%s is never %q; %s", path, s, didYouMean(s, known))
			}
		})
	}
	return bad
}

// checkCompiled checks what needs the compiler's answer to who refers to whom.
func (l *linter) checkCompiled(c *ast.Compiler) *ast.Error {
	asked := map[*ast.Rule]bool{}    // reached from one of the four sets
	positive := map[*ast.Rule]bool{} // reached from permit or destination
	for _, m := range l.authored {
		for _, r := range c.Modules[m.Package.Location.File].Rules {
			switch name := ruleName(r); name {
			case setPermit, setDestination:
				reach(c, r, positive)
				reach(c, r, asked)
			case setForbid, setRequire:
				reach(c, r, asked)
			}
		}
	}
	for _, m := range l.authored {
		for _, r := range c.Modules[m.Package.Location.File].Rules {
			if err := l.checkRule(c, r, asked[r], positive[r]); err != nil {
				return err
			}
		}
	}
	return nil
}

func ruleName(r *ast.Rule) string {
	if v, ok := r.Head.Ref()[0].Value.(ast.Var); ok {
		return string(v)
	}
	return ""
}

func reach(c *ast.Compiler, r *ast.Rule, seen map[*ast.Rule]bool) {
	if seen[r] {
		return
	}
	seen[r] = true
	for next := range c.Graph.Dependencies(util.T(r)) {
		if rule, ok := next.(*ast.Rule); ok {
			reach(c, rule, seen)
		}
	}
}

func (l *linter) checkRule(c *ast.Compiler, r *ast.Rule, asked, positive bool) (bad *ast.Error) {
	if name := ruleName(r); !asked {
		return lintError(r.Location, "rule %s serves none of %s, so it decides nothing; %s", name, strings.Join(sets, ", "), didYouMean(name, sets))
	}
	ast.WalkExprs(r, func(e *ast.Expr) bool {
		if positive && e.Negated && bad == nil {
			bad = lintError(e.Location, "`not` in what a permit or destination depends on: write the positive set, or a forbid")
		}
		return false
	})
	ast.WalkRefs(r, func(ref ast.Ref) bool {
		if bad == nil {
			bad = l.checkDataRef(c, ref)
		}
		return false
	})
	return bad
}

// readable are the roots of data that rules may read: their own, and the product's facts.
var readable = []string{rulesRoot, federationRoot, exceptionsRoot, mechanismsRoot}

// checkDataRoot keeps rules out of the kernel's data.
func checkDataRoot(ref ast.Ref) *ast.Error {
	if !ref[0].Equal(ast.DefaultRootDocument) {
		return nil
	}
	if len(ref) > 2 && slices.ContainsFunc(readable, func(root string) bool { return ref[1].Equal(ast.StringTerm(root)) }) {
		return nil
	}
	return lintError(ref[0].Location, "%s: rules may read data.federation.regions, data.federation.boundaries, data.exceptions, data.mechanisms and rules of data.residency.rules", ref)
}

// checkDataRef refuses a reference to data that does not exist: it would be
// undefined for ever, and a forbid that reads it would never fire.
func (l *linter) checkDataRef(c *ast.Compiler, ref ast.Ref) *ast.Error {
	if !ref[0].Equal(ast.DefaultRootDocument) {
		return nil
	}
	ground := ref.GroundPrefix()
	rule := len(ground) >= 5 && ground[1].Equal(ast.StringTerm(rulesRoot)) && len(c.GetRulesWithPrefix(ground[:5])) > 0
	fact := len(ground) >= 3 && slices.ContainsFunc(readable[1:], func(root string) bool { return ground[1].Equal(ast.StringTerm(root)) }) && exists(l.data, ground[1:])
	if rule || fact {
		return nil
	}
	return lintError(ref[0].Location, "%s does not exist", ref)
}

// exists follows constant keys into the base data. An index into a list is not
// followed further.
func exists(data map[string]any, path ast.Ref) bool {
	for _, t := range path {
		key, ok := literal(t)
		if !ok {
			return true
		}
		next, ok := data[key]
		if !ok {
			return false
		}
		if data, ok = next.(map[string]any); !ok {
			return true
		}
	}
	return true
}
