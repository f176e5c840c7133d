package opa

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// allowedBuiltins is what rules may call: pure functions of their arguments. It is an
// allow-list, so that whatever a newer engine adds stays off.
var allowedBuiltins = strings.Fields(`
	abs array.concat array.reverse array.slice assign concat contains count endswith eq equal
	format_int gt gte indexof internal.member_2 internal.member_3 intersection
	is_array is_boolean is_null is_number is_object is_set is_string lower lt lte max min minus mul neq
	numbers.range object.get object.keys object.union or and plus
	regex.match replace set_diff sort split sprintf startswith substring sum
	strings.any_prefix_match strings.any_suffix_match strings.count strings.reverse
	to_number trim trim_left trim_prefix trim_right trim_space trim_suffix type_name union upper`)

// capabilities is the engine with the allow-list, one language version and no network.
func capabilities(more ...string) *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return !slices.Contains(allowedBuiltins, b.Name) && !slices.Contains(more, b.Name)
	})
	c.Features = []string{ast.FeatureRegoV1}
	c.FutureKeywords = nil
	c.AllowNet = []string{}
	return c
}

// compiled is a policy directory after compiling and linting.
type compiled struct {
	catalog    *policy.Catalog
	federation *regions.Federation
	data       map[string]any
	schemas    *ast.SchemaSet
	modules    map[string]*ast.Module // authors' rules, kernel and question
	authored   []string               // of them, the authors'
	words      map[string][]string    // input leaf → its values
	compiler   *ast.Compiler
	uses       map[ruleKey]*RuleUse
}

// compile parses, compiles and lints the rules of a source.
func compile(s *source, c *policy.Catalog, f *regions.Federation) (*compiled, error) {
	texts := map[string][]byte{kernelFile: []byte(kernelText), questionFile: []byte(questionText)}
	maps.Copy(texts, s.rules)
	modules, err := parse(texts)
	if err != nil {
		return nil, err
	}
	return compileModules(modules, sortedKeys(s.rules), c, f)
}

// compileModules compiles and lints modules, of which the authored ones are named.
func compileModules(modules map[string]*ast.Module, authored []string, c *policy.Catalog, f *regions.Federation) (*compiled, error) {
	vocabulary := words(c, f)
	p := &compiled{catalog: c, federation: f, data: facts(c, f), schemas: ast.NewSchemaSet(), modules: modules, authored: authored, words: vocabulary}
	p.schemas.Put(ast.SchemaRootRef, inputSchema(vocabulary))
	l := &linter{words: vocabulary, packages: map[string]bool{}, uses: map[ruleKey]*RuleUse{}, data: p.data}
	p.uses = l.uses
	for _, name := range authored {
		l.authored = append(l.authored, p.modules[name])
	}
	if err := l.checkModules(c); err != nil {
		return nil, err
	}
	p.compiler = p.newCompiler(capabilities()).
		WithStageAfterID(ast.StageResolveRefs, ast.CompilerStageDefinition{Name: "DomicileWords", MetricName: "domicile_words", Stage: l.checkWords})
	if p.compiler.Compile(p.modules); p.compiler.Failed() {
		return nil, compileError(p.compiler.Errors)
	}
	if err := l.checkCompiled(p.compiler); err != nil {
		return nil, compileError(ast.Errors{err})
	}
	return p, nil
}

// under is the same rules with the facts of another instant or serial.
func (p *compiled) under(c *policy.Catalog) *compiled {
	next := *p
	next.catalog, next.data, next.uses = c, facts(c, p.federation), make(map[ruleKey]*RuleUse, len(p.uses))
	for key, u := range p.uses {
		fresh := *u
		fresh.Cells = 0
		next.uses[key] = &fresh
	}
	return &next
}

func (p *compiled) newCompiler(c *ast.Capabilities) *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(c).WithStrict(true).WithSchemas(p.schemas).
		WithUseTypeCheckAnnotations(true).WithDefaultRegoVersion(ast.RegoV1)
}

// parse reads modules as Rego v1, whatever they say of themselves.
func parse(texts map[string][]byte) (map[string]*ast.Module, error) {
	modules := make(map[string]*ast.Module, len(texts))
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities("internal.test_case")}
	for _, name := range sortedKeys(texts) {
		m, err := ast.ParseModuleWithOpts(name, string(texts[name]), options)
		if err != nil {
			return nil, compileError(err)
		}
		if m == nil {
			return nil, compileError(fmt.Errorf("%s:1: the file holds no package", name))
		}
		modules[name] = m
	}
	return modules, nil
}

// compileError is every error of the engine and of the lints as one of ours: the
// first place as its field, at most ten of them as its cause, on one line.
func compileError(err error) error {
	e := &api.Error{Code: api.PolicyError, Op: "compile policy", Err: err}
	var list ast.Errors
	if !errors.As(err, &list) || len(list) == 0 {
		return e
	}
	slices.SortStableFunc(list, func(a, b *ast.Error) int { return compareLocations(a.Location, b.Location) })
	e.Field = place(list[0])
	if list[0].Code == ast.ParseErr {
		e.Hint = "rules are written in Rego v1: a rule's body follows `if`, a set is built with `contains`"
	}
	if list[0].Code == ast.RecursionErr {
		e.Hint = "an answer must not depend on itself: write one of these rules without the other"
	}
	texts := []string{list[0].Message}
	for _, one := range list[1:min(len(list), 10)] {
		texts = append(texts, place(one)+": "+one.Message)
	}
	e.Err = errors.New(oneLine(strings.Join(texts, "; ")))
	return e
}

func place(err *ast.Error) string {
	if err.Location == nil {
		return "rules"
	}
	return fmt.Sprintf("%s:%d", err.Location.File, err.Location.Row)
}

// oneLine joins the lines of an engine's text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func compareLocations(a, b *ast.Location) int {
	switch {
	case a == nil || b == nil:
		return 0
	case a.File != b.File:
		return strings.Compare(a.File, b.File)
	default:
		return a.Row - b.Row
	}
}
