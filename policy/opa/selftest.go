package opa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/tester"

	"domicile/api"
)

// testTimeout bounds one test of the authors.
const testTimeout = 5 * time.Second

// selfTest runs the authors' tests against the rules that were just compiled and
// returns how many passed. One that fails, errs or is skipped refuses the load.
// What it evaluated is noted in covered, unless that is nil.
func (p *compiled) selfTest(ctx context.Context, s *source, covered *cover.Cover) (int, error) {
	if len(s.tests) == 0 {
		return 0, nil
	}
	modules, err := parse(s.tests)
	if err != nil {
		return 0, err
	}
	for _, name := range sortedKeys(modules) {
		if err := checkTestPackage(modules[name]); err != nil {
			return 0, compileError(ast.Errors{err})
		}
	}
	maps.Copy(modules, p.modules)
	store := p.store()
	txn, err := store.NewTransaction(ctx, storage.TransactionParams{})
	if err != nil {
		return 0, fmt.Errorf("open policy data: %w", err)
	}
	defer store.Abort(context.WithoutCancel(ctx), txn)
	runner := tester.NewRunner().SetStore(store).SetModules(modules).
		SetCompiler(p.newCompiler(capabilities("internal.test_case"))).
		RaiseBuiltinErrors(true).SetTimeout(testTimeout).SetDefaultRegoVersion(ast.RegoV1)
	if covered != nil {
		runner.SetCoverageQueryTracer(covered)
	}
	results, err := runner.RunTests(ctx, txn)
	if err != nil {
		return 0, compileError(err)
	}
	return verdictOf(results)
}

// checkTestPackage keeps tests out of the packages that decide.
func checkTestPackage(m *ast.Module) *ast.Error {
	path := strings.TrimPrefix(m.Package.Path.String(), "data.")
	if path == "residency.tests" || strings.HasPrefix(path, "residency.tests.") {
		return nil
	}
	return lintError(m.Package.Location, "package %s: tests belong to package residency.tests.<name>", path)
}

// verdictOf reads every result: the runner's goroutines end only when all were taken.
func verdictOf(results chan *tester.Result) (passed int, err error) {
	var failed []string
	for r := range results {
		if r.Pass() {
			passed++
			continue
		}
		why := "failed"
		switch {
		case r.Error != nil:
			why = oneLine(r.Error.Error())
		case r.Skip:
			why = "skipped: a test that does not run proves nothing"
		}
		failed = append(failed, fmt.Sprintf("%s:%d: %s.%s: %s", r.Location.File, r.Location.Row, strings.TrimPrefix(r.Package, "data."), r.Name, why))
	}
	if len(failed) == 0 {
		return passed, nil
	}
	slices.Sort(failed)
	at, _, _ := strings.Cut(failed[0], ": ")
	return passed, &api.Error{Code: api.PolicyError, Op: "test policy", Field: at, Value: fmt.Sprintf("%d failed, %d passed", len(failed), passed),
		Err: errors.New(strings.Join(failed[:min(len(failed), 10)], "; ")), Hint: "a policy whose own tests fail is not activated"}
}
