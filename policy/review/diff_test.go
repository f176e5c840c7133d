package review_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/review"
	"domicile/regions"
)

const manifest = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  eu-central: {link: "127.0.0.1:2"}
  us-east: {link: "127.0.0.1:3"}
boundaries:
  eu: [eu-west, eu-central]
  us: [us-east]
topics:
  orders:
    writes: local
    mirror: [all]
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`

func federation(t testing.TB) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func catalog(serial int64) *policy.Catalog {
	return &policy.Catalog{Serial: serial, Dimensions: map[string][]string{"residency": {"eu", "us", "global"}}, Classes: []string{"app"},
		Topics: map[string]policy.CatalogTopic{"orders": {Allow: []map[string][]string{{"residency": {"eu", "us", "global"}}}, Packages: []string{"p"}}}}
}

func residency(q policy.Question) string { return q.Tags[0].Value }

// open permits whatever the map lets be, closed nothing.
func open(f *regions.Federation) policy.Judge {
	return func(_ context.Context, q policy.Question) (policy.Verdict, error) {
		v := policy.Verdict{Allow: true, Regions: slices.Clone(f.Regions()), Reasons: []policy.Reason{{Code: policy.ReasonPermitted, Rule: "p/open"}}}
		if q.Point == policy.Admit {
			v.Destination = f.Floor(residency(q))[0]
		}
		return v, nil
	}
}

var denial = policy.Verdict{Reasons: []policy.Reason{{Code: policy.ReasonForbidden, Rule: "p/no"}}}

func build(t testing.TB, f *regions.Federation, serial int64, j policy.Judge) *review.Table {
	t.Helper()
	g, err := policy.Build(context.Background(), catalog(serial), f, fmt.Sprint(serial), j)
	if err != nil {
		t.Fatal(err)
	}
	return review.TableOf(g)
}

// expand lists the questions of boxes, in words; one that is in two boxes is there twice.
func expand(boxes []review.Box) (out []string) {
	or := func(side []string) []string {
		if side == nil {
			return []string{policy.None}
		}
		return side
	}
	for _, b := range boxes {
		n := 0
		for _, tags := range b.Tags {
			parsed, _ := api.ParseTagString(tags)
			for _, class := range or(b.Classes) {
				for _, place := range or(b.Places) {
					for _, origin := range or(b.Origins) {
						for _, target := range or(b.Targets) {
							point, _ := policy.ParsePoint(b.Point)
							q := policy.Question{Point: point, Topic: b.Topic, Tags: parsed, Class: class, Place: place, Origin: origin, Target: target}
							if point == policy.Transit {
								q.Origin = target
							}
							out = append(out, q.String())
							n++
						}
					}
				}
			}
		}
		if n != b.Cells {
			out = append(out, fmt.Sprintf("a box of %d questions says %d", n, b.Cells))
		}
	}
	slices.Sort(out)
	return out
}

// Any two policies: the boxes of a difference hold each question whose decision differs
// once, and no other.
func TestR14b_ADifferenceIsExact(t *testing.T) {
	f := federation(t)
	random := func(seed uint64) policy.Judge {
		return func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
			h := fnv.New64a()
			fmt.Fprintf(h, "%d %s", seed, q)
			if h.Sum64()%4 == 0 {
				return denial, nil
			}
			return open(f)(ctx, q)
		}
	}
	old := build(t, f, 1, random(1))
	rapid.Check(t, func(rt *rapid.T) {
		now := build(t, f, 2, random(rapid.Uint64().Draw(rt, "new")))
		var want, got []string
		for i := range now.Answers {
			if old.Answers[i].Allow != now.Answers[i].Allow {
				want = append(want, now.Answers[i].Question.String())
			}
		}
		d := review.Compare(old, now, f)
		for _, c := range d.Changes {
			got = append(got, expand(c.Where)...)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) || d.Cells != len(want) {
			rt.Fatalf("%d questions differ; the difference holds %d and says %d", len(want), len(got), d.Cells)
		}
	})
}

// One cell turned round: the difference names exactly that one, and weighs it.
func TestR14b_OneFlippedCellIsNamedExactly(t *testing.T) {
	f := federation(t)
	old := build(t, f, 1, open(f))
	for i, a := range old.Answers {
		if !a.Allow || i%7 != 0 {
			continue
		}
		flipped := a.Question.String()
		now := build(t, f, 2, func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
			if q.String() == flipped {
				return denial, nil
			}
			return open(f)(ctx, q)
		})
		d := review.Compare(old, now, f)
		if len(d.Changes) != 1 || d.Changes[0].Kind != review.NewlyDenied || !slices.Equal(expand(d.Changes[0].Where), []string{flipped}) {
			t.Fatalf("%s: %+v", flipped, d.Changes)
		}
		d.Weigh(map[string]uint64{flipped: 7, "another": 9})
		if *d.Changes[0].Asked != 7 {
			t.Fatalf("weighs %d", *d.Changes[0].Asked)
		}
		back := review.Compare(now, old, f)
		if len(back.Changes) != 1 || back.Changes[0].Kind != review.NewlyAllowed || len(back.Touched) != 0 {
			t.Fatalf("back: %+v", back)
		}
		if same := review.Compare(now, now, f); len(same.Changes)+same.Reworded+len(same.Touched) != 0 {
			t.Fatalf("against itself: %+v", same)
		}
	}
}

// A policy that narrows where records may rest names the logs and copies that hold some.
func TestR14b_NarrowingNamesLogsAndCopies(t *testing.T) {
	f := federation(t)
	narrow := func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
		v, err := open(f)(ctx, q)
		if residency(q) == "eu" {
			gone := func(r string) bool { return r == "eu-central" }
			if q.Target == "eu-central" && q.Point != policy.Transit {
				return denial, nil
			}
			if q.Point == policy.Admit {
				v.Regions, v.Destination = slices.DeleteFunc(v.Regions, gone), "eu-west"
			}
		}
		return v, err
	}
	d := review.Compare(build(t, f, 1, open(f)), build(t, f, 2, narrow), f)
	var lines []string
	for _, x := range d.Touched {
		lines = append(lines, strings.Join([]string{x.Log, x.Role, x.Region, strings.Join(x.Tags, "|"), x.What}, ", "))
	}
	want := []string{
		"orders@eu-central, home, eu-central, residency=eu, may not rest there any more",
		"orders@eu-west, copy, eu-central, residency=eu, may not rest there any more",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	kinds := map[review.Kind]bool{}
	for _, c := range d.Changes {
		kinds[c.Kind] = true
	}
	if !kinds[review.Moved] || !kinds[review.NewlyDenied] || kinds[review.NewlyAllowed] {
		t.Errorf("%v", kinds)
	}
}

// A question is read as it was written, for every question there is.
func TestParseQuestion_ReadsWhatIsWritten(t *testing.T) {
	f := federation(t)
	for _, a := range build(t, f, 1, open(f)).Answers {
		back, err := policy.ParseQuestion(a.Question.String())
		if err != nil || back.String() != a.Question.String() {
			t.Fatalf("%s reads %s, %v", a.Question, back, err)
		}
	}
	for _, bad := range []string{"", "amdit topic=x", "admit", "admit topic=", "admit topic=x tags=a", "admit topic=x colour=red", "admit topic=x y"} {
		if _, err := policy.ParseQuestion(bad); api.CodeOf(err) != api.BadRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// BenchmarkCompare compares two policies that differ in a quarter of their answers.
func BenchmarkCompare(b *testing.B) {
	f := federation(b)
	old := build(b, f, 1, open(f))
	now := build(b, f, 2, func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
		if q.Class == "app" && q.Place != "eu-west" {
			return denial, nil
		}
		return open(f)(ctx, q)
	})
	n := 0
	for b.Loop() {
		review.Compare(old, now, f)
		n++
	}
	b.ReportMetric(float64(n*len(old.Answers))/b.Elapsed().Seconds(), "cells/s")
}
