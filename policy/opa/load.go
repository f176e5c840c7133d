package opa

import (
	"context"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/strict"
)

// Policy is a loaded directory: the generation to activate, what loading found, and
// the rules themselves for explanations. It is safe for concurrent use.
type Policy struct {
	Generation *policy.Generation
	Report     Report
	// Later is the same policy at each instant at which one of its terms begins or ends, in
	// order, within the time that LoadFiles was given. From is that instant.
	Later []*Policy
	From  time.Time

	judge   *judge
	source  *source
	written written
	answers map[string]*policy.Generation // by the terms that lasted; not changed once the policy is loaded
}

// Load reads, compiles, judges and tests a directory. It activates nothing. It
// refuses with PolicyError or ConfigInvalid, naming the file, rule or question, and
// gives up when ctx ends.
func Load(ctx context.Context, dir string, f *regions.Federation) (*Policy, error) {
	clock := regions.NewSteadyClock()
	start := clock.Now()
	s, err := readDirectory(dir)
	if err != nil {
		return nil, err
	}
	p, err := load(ctx, s, f.Snapshot()) // one manifest throughout, whatever is put in force meanwhile
	if err != nil {
		return nil, err
	}
	p.Report.Took = clock.Now().Sub(start)
	return p, nil
}

// Check loads a directory and returns what was found; nothing is kept.
func Check(ctx context.Context, dir string, f *regions.Federation) (*Report, error) {
	p, err := Load(ctx, dir, f)
	if err != nil {
		return nil, err
	}
	return &p.Report, nil
}

// readCatalog is the vocabulary of a source, under the serial that stands over it.
func (s *source) readCatalog(f *regions.Federation) (*policy.Catalog, error) {
	var catalog policy.Catalog
	if err := strict.Decode(catalogFile, s.catalog, &catalog); err != nil {
		return nil, err
	}
	if s.serial > 0 {
		catalog.Serial = s.serial
	}
	if err := s.readTerms(&catalog); err != nil {
		return nil, err
	}
	return &catalog, catalog.Check(f)
}

func load(ctx context.Context, s *source, f *regions.Federation) (*Policy, error) {
	catalog, err := s.readCatalog(f)
	if err != nil {
		return nil, err
	}
	if len(s.rules) == 0 {
		return nil, &api.Error{Code: api.PolicyError, Op: "read policy directory", Field: "rules",
			Hint: "there are no rules/*.rego: without a permit every record is refused"}
	}
	compiled, err := compile(s, catalog, f)
	if err != nil {
		return nil, err
	}
	j, err := newJudge(ctx, compiled)
	if err != nil {
		return nil, err
	}
	g, err := policy.Build(ctx, catalog, f, s.digest(), j.ask)
	if err != nil {
		return nil, j.ranOut(ctx, err)
	}
	tests, err := compiled.selfTest(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	written, err := readWritten(s, g)
	if err != nil {
		return nil, err
	}
	if err := unmet(written.check(g, f)); err != nil {
		return nil, err
	}
	p := &Policy{Generation: g, judge: j, source: s, written: written, answers: map[string]*policy.Generation{"": g}}
	findings := label(s, j.uses)
	p.Report = Report{Serial: g.Serial, Digest: g.Digest, Revision: g.Revision, Cells: g.Cells(), Asked: g.Cells(), Tests: tests, Cases: len(written.cases), Rules: sortUses(j.uses), Findings: findings}
	if written.matrix != nil {
		p.Report.Rows = written.matrix.Rows()
	}
	for _, d := range g.All() {
		if d.Allow {
			p.Report.Allowed++
		}
	}
	p.Report.warn(catalog, f)
	return p, nil
}
