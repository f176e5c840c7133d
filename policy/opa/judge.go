package opa

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"domicile/policy"
	"domicile/regions"
)

const decisionQuery = "data.domicile.kernel.decision"

// judge asks the compiled rules one question at a time. It is safe for concurrent
// use.
type judge struct {
	policy   *compiled
	prepared rego.PreparedEvalQuery
	clock    regions.Clock
	mu       sync.Mutex
	uses     map[ruleKey]*RuleUse // counts are guarded by mu
	slow     slowest              // guarded by mu
}

func (p *compiled) store() storage.Store {
	return inmem.NewFromObjectWithOpts(p.data, inmem.OptReturnASTValuesOnRead(true))
}

func newJudge(ctx context.Context, p *compiled) (*judge, error) {
	prepared, err := rego.New(
		rego.ParsedQuery(ast.MustParseBody(decisionQuery)), rego.Compiler(p.compiler), rego.Store(p.store()),
		rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	if err != nil {
		return nil, compileError(err)
	}
	return &judge{policy: p, prepared: prepared, uses: p.uses, clock: regions.NewSteadyClock()}, nil
}

// ask answers a question. An error, an undefined or a malformed answer is an error.
func (j *judge) ask(ctx context.Context, q policy.Question) (policy.Verdict, error) {
	raw, err := j.inTime(ctx, q)
	if err != nil {
		return policy.Verdict{}, err
	}
	v, spoke, err := j.read(raw)
	if err != nil {
		return policy.Verdict{}, err
	}
	if q.Point != policy.Admit {
		v.Destination = "" // nothing is routed here; its form was checked all the same
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range spoke {
		if u := j.uses[key]; u != nil {
			u.Cells++
		}
	}
	return v, nil
}

func (j *judge) eval(ctx context.Context, q policy.Question, more ...rego.EvalOption) (any, error) {
	in, err := ast.InterfaceToValue(input(q, j.policy.federation))
	if err != nil {
		return nil, err
	}
	// A cancel of our own: the engine's would start a goroutine for every question.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	options := append([]rego.EvalOption{rego.EvalParsedInput(in), rego.EvalExternalCancel(cancel), rego.EvalMetrics(metrics.NoOp())}, more...)
	results, err := j.prepared.Eval(context.WithoutCancel(ctx), options...)
	switch {
	case err != nil:
		return nil, errors.New(oneLine(err.Error()))
	case len(results) != 1 || len(results[0].Expressions) != 1:
		return nil, errors.New("the decision is undefined")
	}
	return results[0].Expressions[0].Value, nil
}

// read checks the form of everything the rules gave, not only of the
// decision made of it: a finding the kernel could not understand must not pass for
// one that is not there.
func (j *judge) read(raw any) (policy.Verdict, []ruleKey, error) {
	d, ok := raw.(map[string]any)
	if !ok {
		return policy.Verdict{}, nil, fmt.Errorf("the decision is a %T, not an object", raw)
	}
	var v policy.Verdict
	var spoke []ruleKey
	for _, part := range []struct{ field, set string }{{"permits", setPermit}, {"forbids", setForbid}, {"requires", setRequire}} {
		keys, err := j.readFindings(part.set, d[part.field])
		if err != nil {
			return v, nil, err
		}
		spoke = append(spoke, keys...)
	}
	if v.Allow, ok = d["allow"].(bool); !ok {
		return v, nil, errors.New("allow is no boolean")
	}
	var err error
	if v.Regions, err = readWords("regions", d["regions"]); err != nil {
		return v, nil, err
	}
	if v.Destination, err = readDestination(d["destinations"]); err != nil {
		return v, nil, err
	}
	v.Reasons, err = readReasons(d["reasons"])
	return v, spoke, err
}

// readFindings checks each finding of a set and returns which rules spoke.
func (j *judge) readFindings(set string, raw any) ([]ruleKey, error) {
	list, ok := raw.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is no set", set)
	}
	keys := make([]ruleKey, 0, len(list))
	for _, one := range list {
		pkg, finding, err := unwrap(one)
		if err != nil {
			return nil, err
		}
		f, ok := finding.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s of package %s gave %T, not an object", set, pkg, finding)
		}
		id, _ := f["rule"].(string)
		if err := j.checkFinding(set, f); err != nil {
			return nil, fmt.Errorf("rule %s/%s: %s: %w", pkg, id, set, err)
		}
		keys = append(keys, ruleKey{pkg, set, id})
	}
	return keys, nil
}

func unwrap(one any) (pkg string, finding any, err error) {
	o, ok := one.(map[string]any)
	if pkg, _ = o["by"].(string); !ok || pkg == "" {
		return "", nil, errors.New("the kernel gave a finding without its package")
	}
	return pkg, o["finding"], nil
}

func (j *judge) checkFinding(set string, f map[string]any) error {
	if id, ok := f["rule"].(string); !ok || id == "" {
		return errors.New("rule is no word")
	}
	if text, given := f["text"]; given {
		if _, ok := text.(string); !ok {
			return errors.New("text is no string")
		}
	}
	list, given := f["regions"]
	if !given {
		if set == setPermit {
			return errors.New("a permit says for which regions")
		}
		return nil
	}
	names, err := readWords("regions", list)
	if err == nil && len(names) == 0 {
		err = errors.New("regions is empty")
	}
	for _, name := range names {
		if _, ok := j.policy.federation.Region(name); !ok {
			return fmt.Errorf("%q is no region; %s", name, didYouMean(name, j.policy.federation.Regions()))
		}
	}
	return err
}

func readWords(field string, raw any) ([]string, error) {
	list, ok := raw.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is no set of words", field)
	}
	words := make([]string, 0, len(list))
	for _, one := range list {
		w, ok := one.(string)
		if !ok {
			return nil, fmt.Errorf("%s holds something that is no word", field)
		}
		words = append(words, w)
	}
	return words, nil
}

// readDestination takes none or one. Two packages may name the same one.
func readDestination(raw any) (string, error) {
	list, ok := raw.([]any)
	if !ok {
		return "", errors.New("destination is no set")
	}
	found, by := "", ""
	for _, one := range list {
		pkg, finding, err := unwrap(one)
		if err != nil {
			return "", err
		}
		region, ok := finding.(string)
		if !ok || region == "" {
			return "", fmt.Errorf("destination of package %s is no region's name", pkg)
		}
		if found != "" && found != region {
			return "", fmt.Errorf("two destinations: %q of package %s and %q of package %s", found, by, region, pkg)
		}
		found, by = region, pkg
	}
	return found, nil
}

func readReasons(raw any) ([]policy.Reason, error) {
	list, ok := raw.([]any)
	if !ok {
		return nil, errors.New("reasons is no set")
	}
	reasons := make([]policy.Reason, 0, len(list))
	for _, one := range list {
		o, _ := one.(map[string]any)
		code, ok1 := o["code"].(string)
		rule, ok2 := o["rule"].(string)
		text, ok3 := o["text"].(string)
		if !ok1 || !ok2 || !ok3 || code == "" {
			return nil, errors.New("a reason has no code, rule and text")
		}
		reasons = append(reasons, policy.Reason{Code: code, Rule: rule, Text: text})
	}
	return reasons, nil
}
