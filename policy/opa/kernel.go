package opa

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"domicile/policy"
	"domicile/regions"
)

// The kernel ships in the binary; authors cannot own or replace its package.
const (
	kernelFile   = "domicile/kernel.rego"
	questionFile = "domicile/question.rego"
	rulesRoot    = "residency"
	// federationRoot is the data that authors may read.
	federationRoot = "federation"
)

//go:embed kernel.rego
var kernelText string

//go:embed question.rego
var questionText string

// facts is the data the kernel and the authors' rules may read. Authors see
// data.federation; data.domicile is the kernel's own.
func facts(c *policy.Catalog, f *regions.Federation) map[string]any {
	names := append(f.Boundaries(), regions.GlobalResidency)
	floor, boundaries, boundaryOf := map[string]any{}, map[string]any{}, map[string]any{policy.None: policy.None}
	for _, b := range names {
		floor[b] = anys(f.Floor(b))
		if b != regions.GlobalResidency {
			boundaries[b] = anys(f.Floor(b))
		}
	}
	for _, name := range f.Regions() {
		boundaryOf[name] = boundaryName(f, name)
	}
	topics, values, tags, noTags := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	for name, t := range c.Topics {
		topics[name] = map[string]any{"packages": anys(t.Packages)}
	}
	for name, list := range words(c, f) {
		if tag, ok := strings.CutPrefix(name, "tags."); ok {
			tags[tag], noTags[tag] = set(list), policy.None
			continue
		}
		values[name] = set(list)
	}
	terms := map[string]any{}
	for kind, facts := range c.Terms.Facts(c.At, c.Revoked) {
		lasts := map[string]any{}
		for name, is := range facts {
			lasts[name] = is
		}
		terms[kind] = lasts
	}
	return map[string]any{
		exceptionsRoot: terms[exceptionsRoot], mechanismsRoot: terms[mechanismsRoot],
		federationRoot: map[string]any{"regions": anys(f.Regions()), "boundaries": boundaries},
		"domicile": map[string]any{"facts": map[string]any{
			"values": values, "topics": topics, "tags": tags, "no_tags": noTags,
			"regions": anys(f.Regions()), "floor": floor, "boundary_of": boundaryOf,
		}},
	}
}

func boundaryName(f *regions.Federation, region string) string {
	if r, ok := f.Region(region); ok && r.Boundary != "" {
		return r.Boundary
	}
	return policy.None
}

// set is a set as data can hold it: an object with the words as keys.
func set(words []string) map[string]any {
	out := make(map[string]any, len(words))
	for _, w := range words {
		out[w] = true
	}
	return out
}

func anys(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}

// words are the leaves of the input and what each may hold: the vocabulary that
// literals in rules are checked against.
func words(c *policy.Catalog, f *regions.Federation) map[string][]string {
	places := append(slices.Clone(f.Regions()), policy.None)
	boundaries := append(f.Boundaries(), policy.None)
	w := map[string][]string{
		"topic": slices.Sorted(maps.Keys(c.Topics)), "principal.class": append(slices.Clone(c.Classes), policy.None),
		"principal.place": places, "principal.boundary": boundaries,
		"origin.region": f.Regions(), "origin.boundary": boundaries,
		"target.region": places, "target.boundary": boundaries,
	}
	for p := policy.Admit; p <= policy.Consume; p++ {
		w["point"] = append(w["point"], p.String())
	}
	for name, values := range c.Dimensions {
		w["tags."+name] = append(slices.Clone(values), policy.None)
	}
	return w
}

// input puts a question into the shape rules read: built from the question alone and
// total, so that no field can be missing.
func input(q policy.Question, f *regions.Federation) map[string]any {
	tags := map[string]any{}
	for _, t := range q.Tags {
		tags[t.Name] = t.Value
	}
	at := func(region string) map[string]any {
		return map[string]any{"region": region, "boundary": boundaryName(f, region)}
	}
	return map[string]any{
		"point": q.Point.String(), "topic": q.Topic, "tags": tags,
		"principal": map[string]any{"class": q.Class, "place": q.Place, "boundary": boundaryName(f, q.Place)},
		"origin":    at(q.Origin), "target": at(q.Target),
	}
}

// inputSchema is the JSON schema of the input: a field that does not exist is a
// compile error.
func inputSchema(words map[string][]string) map[string]any {
	root := object()
	for path := range words {
		addLeaf(root, path)
	}
	return root
}
