package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"domicile/api"
	"domicile/policy"
)

func TestCell_FitsItsBytes(t *testing.T) {
	if n := unsafe.Sizeof(policy.Cell{}); n > 32 {
		t.Errorf("a cell takes %d bytes, at most 32", n)
	}
}

func TestBuild_JudgesTheWholeDomainOnce(t *testing.T) {
	f := federation(t)
	g := build(t, f, 1, "d", allowAll(f))
	seen := map[string]bool{}
	cells := map[policy.Cell]bool{}
	for q, d := range g.All() {
		c, err := g.Cell(q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if g.Lookup(c) != d {
			t.Fatalf("%s: the look-up gives another decision", q)
		}
		if back := g.Question(c); back.String() != q.String() {
			t.Fatalf("cell of %s reads %s", q, back)
		}
		seen[q.String()], cells[c] = true, true
	}
	// 8 combinations × (2 classes × 5 places × (2×4 + 4×4) + 2×4×3)
	if want := 8 * (2*5*(2*4+16) + 24); len(seen) != want || len(cells) != want || g.Cells() != want {
		t.Errorf("questions=%d cells=%d Cells()=%d, want %d", len(seen), len(cells), g.Cells(), want)
	}
	if g.Revision != "1-d" {
		t.Errorf("revision %q", g.Revision)
	}
}

func TestLookup_ForeignCellsAreRefused(t *testing.T) {
	f := federation(t)
	old, now := build(t, f, 1, "a", allowAll(f)), build(t, f, 2, "b", allowAll(f))
	for q := range old.All() {
		c, err := old.Cell(q)
		if err != nil {
			t.Fatal(err)
		}
		if d := now.Lookup(c); d.Allow {
			t.Fatalf("a cell of another generation is allowed: %s", q)
		}
	}
	if d := now.Lookup(policy.Cell{}); d.Allow || d.Code == "" || d.Err() == nil {
		t.Errorf("the zero cell: %+v", d)
	}
	if q := now.Question(policy.Cell{}); q.Topic != "" {
		t.Errorf("the zero cell asks %s", q)
	}
}

func TestBuild_RefusesMalformedVerdicts(t *testing.T) {
	f := federation(t)
	ok := allowAll(f)
	for name, c := range map[string]struct {
		spoil func(policy.Question, *policy.Verdict)
		want  string
	}{
		"no reason":             {func(_ policy.Question, v *policy.Verdict) { v.Reasons = nil }, "no reason"},
		"unknown region":        {func(_ policy.Question, v *policy.Verdict) { v.Regions = []string{"mars"} }, `"mars"`},
		"region twice":          {func(_ policy.Question, v *policy.Verdict) { v.Regions = append(v.Regions, v.Regions[0]) }, "twice"},
		"allow without regions": {func(_ policy.Question, v *policy.Verdict) { v.Regions = nil }, "no region"},
		"allow without target": {func(q policy.Question, v *policy.Verdict) {
			v.Regions = slices.DeleteFunc(v.Regions, func(r string) bool { return r == q.Target })
		}, "leave out the target"},
		"destination elsewhere": {func(q policy.Question, v *policy.Verdict) {
			if residency(q) == "eu" && q.Point == policy.Admit {
				v.Destination = "us-east"
			}
		}, `destination "us-east"`},
		"destination missing": {func(_ policy.Question, v *policy.Verdict) { v.Destination = "" }, "may not stay in"},
		"destination at egress": {func(q policy.Question, v *policy.Verdict) {
			if q.Point == policy.MirrorEgress {
				v.Destination = "us-east"
			}
		}, "only admit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Build(context.Background(), catalog(1), f, "d", func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
				v, err := ok(ctx, q)
				c.spoil(q, &v)
				return v, err
			})
			e := wantCode(t, err, api.PolicyError)
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(e.Field, "topic=") {
				t.Errorf("got %v, want %q and the question", err, c.want)
			}
		})
	}
}

// The same first question is named however the work was shared out.
func TestBuild_NamesTheSameQuestionEveryTime(t *testing.T) {
	f := federation(t)
	var first string
	for range 20 {
		_, err := policy.Build(context.Background(), catalog(1), f, "d", func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
			if q.Target == "us-east" || q.Origin == "us-east" && q.Class == "operator" {
				return policy.Verdict{}, errors.New("rules clash")
			}
			return allowAll(f)(ctx, q)
		})
		e := wantCode(t, err, api.PolicyError)
		if first == "" {
			first = e.Field
		}
		if e.Field != first {
			t.Fatalf("named %q, before %q", e.Field, first)
		}
	}
}

func TestBuild_EndsWithItsContext(t *testing.T) {
	f := federation(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := policy.Build(ctx, catalog(1), f, "d", func(ctx context.Context, _ policy.Question) (policy.Verdict, error) {
		cancel()
		<-ctx.Done()
		return policy.Verdict{}, ctx.Err()
	})
	wantCode(t, err, api.PolicyError)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBuild_TooManyCellsSaysHowTheyMultiply(t *testing.T) {
	c := catalog(1)
	for i := range 200 {
		c.Dimensions["leg"] = append(c.Dimensions["leg"], fmt.Sprintf("l%d", i))
	}
	c.Topics["orders"].Allow[0]["leg"] = c.Dimensions["leg"]
	for i := range 20 {
		c.Classes = append(c.Classes, fmt.Sprintf("c%d", i))
	}
	asked := false
	_, err := policy.Build(context.Background(), c, federation(t), "d", func(context.Context, policy.Question) (policy.Verdict, error) {
		asked = true
		return policy.Verdict{}, nil
	})
	e := wantCode(t, err, api.ConfigInvalid)
	if asked || e.Value != "1619712 cells" || !strings.Contains(e.Hint, "608 combinations") || !strings.Contains(e.Hint, "22 classes") {
		t.Errorf("asked=%v, %v", asked, err)
	}
}

func TestClassify_RefusesWhatIsNotTheVocabulary(t *testing.T) {
	f := federation(t)
	g := build(t, f, 1, "d", denyAll)
	tags := func(pairs ...string) (out []api.Tag) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, api.Tag{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, c := range []struct {
		topic string
		tags  []api.Tag
		code  api.Code
		hint  string
	}{
		{"orders", tags("residency", "eu", "class", "order", "leg", "home"), "", ""},
		{"orders", tags("leg", "home", "class", "order", "residency", "eu"), "", ""},
		{"news", tags("residency", "global", "class", "news"), "", ""},
		{"Orders", tags("residency", "eu"), api.UnknownTopic, `"orders"`},
		{"", nil, api.UnknownTopic, "known"},
		{"orders", tags("residency", "Eu"), api.UnknownTag, `"eu"`},
		{"orders", tags("residency", "gl\u043ebal"), api.UnknownTag, `"global"`},
		{"orders", tags("resid\u0435ncy", "eu"), api.UnknownTag, `"residency"`},
		{"orders", tags("class", "order", "class", "order"), api.BadTag, "twice"},
		{"orders", tags("class", "order", "leg", "home"), api.MissingTag, "eu, global, us"},
		{"orders", tags("residency", "eu", "class", "news", "leg", "home"), api.CombinationNotAllowed, "takes: order"},
		{"news", tags("residency", "global", "class", "news", "leg", "home"), api.CombinationNotAllowed, "leave it out"},
		{"news", tags("residency", "us", "class", "news"), api.CombinationNotAllowed, "takes: eu, global"},
	} {
		combo, err := g.Classify(c.topic, c.tags)
		e := wantCode(t, err, c.code)
		if c.code == "" {
			if g.Residency(combo) == "" {
				t.Errorf("%s %v: no residency", c.topic, c.tags)
			}
			continue
		}
		if !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s %v: hint %q, want %s", c.topic, c.tags, e.Hint, c.hint)
		}
	}
	if g.Residency(policy.Combo{}) != "" {
		t.Error("the zero combination has a residency")
	}
}

func FuzzClassify(f *testing.F) {
	g := build(f, federation(f), 1, "d", denyAll)
	f.Add("orders", "residency", "eu", "class", "order", "leg", "home")
	f.Add("orders", "residency", "\u0435u", "class", "order\x00", "leg", "")
	f.Add("news", "residency", "global", "class", "news", "", "")
	f.Fuzz(func(t *testing.T, topic, n1, v1, n2, v2, n3, v3 string) {
		tags := []api.Tag{{Name: n1, Value: v1}, {Name: n2, Value: v2}, {Name: n3, Value: v3}}
		combo, err := g.Classify(topic, tags)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || !e.Code.Known() || e.Hint == "" {
				t.Fatalf("%v has no known code or no way out", err)
			}
			return
		}
		// Accepted: then every word is one of the vocabulary, byte by byte.
		q := policy.Question{Point: policy.MirrorEgress, Topic: topic, Tags: tags, Origin: "eu-west", Target: "us-east"}
		c, err := g.Cell(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range g.Question(c).Tags {
			if tag.Value != policy.None && !slices.Contains(tags, tag) {
				t.Fatalf("%v passed for %v", tags, tag)
			}
		}
		if g.Residency(combo) == "" {
			t.Fatal("no residency")
		}
	})
}

func TestCatalog_Check(t *testing.T) {
	f := federation(t)
	for name, c := range map[string]struct {
		spoil func(*policy.Catalog)
		field string
	}{
		"serial":            {func(c *policy.Catalog) { c.Serial = 0 }, "serial"},
		"no residency":      {func(c *policy.Catalog) { delete(c.Dimensions, "residency") }, "dimensions.residency"},
		"unknown boundary":  {func(c *policy.Catalog) { c.Dimensions["residency"] = []string{"uk"} }, "dimensions.residency"},
		"empty dimension":   {func(c *policy.Catalog) { c.Dimensions["leg"] = nil }, "dimensions.leg"},
		"reserved":          {func(c *policy.Catalog) { c.Dimensions["leg"] = []string{"unknown"} }, "dimensions.leg"},
		"odd case":          {func(c *policy.Catalog) { c.Classes = []string{"App"} }, "principal_classes"},
		"value named twice": {func(c *policy.Catalog) { c.Classes = []string{"app", "app"} }, "principal_classes"},
		"no classes":        {func(c *policy.Catalog) { c.Classes = nil }, "principal_classes"},
		"topic missing":     {func(c *policy.Catalog) { delete(c.Topics, "news") }, "topics"},
		"bad topic name":    {func(c *policy.Catalog) { c.Topics["a..b"] = c.Topics["news"] }, "topics"},
		"nothing allowed":   {func(c *policy.Catalog) { c.Topics["news"] = policy.CatalogTopic{Packages: []string{"p"}} }, "topics.news.allow"},
		"no package": {func(c *policy.Catalog) { c.Topics["news"] = policy.CatalogTopic{Allow: c.Topics["news"].Allow} },
			"topics.news.packages"},
		"unknown dimension": {func(c *policy.Catalog) { c.Topics["news"].Allow[0]["lge"] = []string{"home"} }, "topics.news.allow[0]"},
		"unknown value":     {func(c *policy.Catalog) { c.Topics["news"].Allow[0]["class"] = []string{"nws"} }, "topics.news.allow[0].class"},
		"no residency in combination": {func(c *policy.Catalog) { delete(c.Topics["news"].Allow[0], "residency") },
			"topics.news.allow[0]"},
		"one log, several boundaries": {func(c *policy.Catalog) { c.Topics["news"].Allow[0]["residency"] = []string{"eu", "us"} },
			"topics.news.allow[0].residency"},
		"too many dimensions": {func(c *policy.Catalog) {
			for i := range policy.MaxDimensions {
				c.Dimensions[fmt.Sprintf("d%d", i)] = []string{"x"}
			}
		}, "dimensions"},
	} {
		t.Run(name, func(t *testing.T) {
			cat := catalog(1)
			c.spoil(cat)
			if e := wantCode(t, cat.Check(f), api.ConfigInvalid); e.Field != c.field || e.Hint == "" {
				t.Errorf("got %v, want field %s", e, c.field)
			}
		})
	}
}

func TestPoint_ReadsWhatItWrites(t *testing.T) {
	for p := policy.Admit; p <= policy.Consume; p++ {
		if back, err := policy.ParsePoint(p.String()); err != nil || back != p {
			t.Errorf("%s: %v, %v", p, back, err)
		}
	}
	for _, s := range []string{"", "none", "Admit", "export"} {
		_, err := policy.ParsePoint(s)
		wantCode(t, err, api.BadRequest)
	}
	if policy.Point(200).String() != "none" {
		t.Error("an unknown point has a name")
	}
}

func TestGeneration_ListsItsWords(t *testing.T) {
	g := build(t, federation(t), 1, "d", denyAll)
	if got := g.Classes(); !slices.Equal(got, []string{"app", "operator"}) {
		t.Errorf("classes %v", got)
	}
	if got := g.Combinations("news"); !slices.Equal(got, []string{"class=news,residency=eu", "class=news,residency=global"}) {
		t.Errorf("news: %v", got)
	}
	if got := g.Combinations("nothing"); got != nil {
		t.Errorf("nothing: %v", got)
	}
}
