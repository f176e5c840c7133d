package review_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"domicile/policy"
	"domicile/policy/review"
	"domicile/regions"
)

const movable = `
version: 1
federation: test
regions: {eu-west: {link: "a:1"}, eu-central: {link: "b:1"}, us-east: {link: "c:1"}}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders:
    writes: local
    mirror: [all]
    failover: {mode: manual, rpo: 5s, rto: 1m, targets: [eu-west, eu-central, us-east]}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`

// generation is a policy of orders that are global, by a judge.
func generation(f *regions.Federation, serial int64, j policy.Judge) (*policy.Generation, error) {
	c := catalog(serial)
	c.Topics["orders"] = policy.CatalogTopic{Allow: []map[string][]string{{"residency": {"global"}}}, Packages: []string{"p"}}
	return policy.Build(context.Background(), c, f, fmt.Sprint(serial), j)
}

func tableOf(t *testing.T, f *regions.Federation, serial int64, j policy.Judge) *review.Table {
	t.Helper()
	g, err := generation(f, serial, j)
	if err != nil {
		t.Fatal(err)
	}
	return review.TableOf(g)
}

func movableMap(t testing.TB) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(movable))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A change that keeps copies out of one region names each log that could move there before,
// and the rule; taken back, it gives them back.
func TestR14h_ADifferenceNamesFailoverTargets(t *testing.T) {
	f := movableMap(t)
	old := tableOf(t, f, 1, open(f))
	now := tableOf(t, f, 2, func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
		if q.Point == policy.MirrorIngress && q.Target == "us-east" && q.Origin == "eu-west" {
			return denial, nil
		}
		return open(f)(ctx, q)
	})
	text := func(d *review.Diff) string {
		var lines []string
		for _, x := range d.Targets {
			lines = append(lines, fmt.Sprintf("%s from %s to %s, gained=%v: %s", x.Log, x.Home, x.Region, x.Gained, x.Why))
		}
		return strings.Join(lines, "\n")
	}
	why := "residency=global: mirror_ingress denied, D201_FORBIDDEN p/no"
	if got, want := text(review.Compare(old, now, f)), "orders@eu-west from eu-west to us-east, gained=false: "+why; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := text(review.Compare(now, old, f)), "orders@eu-west from eu-west to us-east, gained=true: "+why; got != want {
		t.Errorf("back: got\n%s\nwant\n%s", got, want)
	}
	if got := review.Compare(now, now, f).Targets; len(got) != 0 {
		t.Errorf("against itself: %v", got)
	}
}

// Whatever a policy answers: what its answers say of targets is what it says itself when a
// move is planned.
func TestR14h_TargetsOfAnswersAreThoseOfThePolicy(t *testing.T) {
	f := movableMap(t)
	topic, _ := f.Topic("orders")
	all := tableOf(t, f, 1, open(f))
	seen := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		one, err := generation(f, 2, func(ctx context.Context, q policy.Question) (policy.Verdict, error) {
			v, err := open(f)(ctx, q)
			h := fnv.New64a()
			fmt.Fprintf(h, "%d %s", seed, q)
			switch draw := h.Sum64(); {
			case q.Point == policy.Admit && draw%40 == 0:
				v.Regions = slices.DeleteFunc(v.Regions, func(r string) bool { return r != q.Origin })
				v.Destination = q.Origin
			case q.Point != policy.Admit && draw%5 == 0:
				return denial, nil
			}
			return v, err
		})
		if err != nil {
			return // it leaves a log no target at all, and is refused
		}
		lost := map[string]bool{}
		for _, x := range review.Compare(all, review.TableOf(one), f).Targets {
			lost[x.Log+" "+x.Region] = !x.Gained
		}
		for _, log := range f.Logs(topic) {
			home, _ := f.FirstHome(log)
			for _, region := range topic.TargetsOf(home) {
				err := one.MayHold(f, log, home, region, nil)
				if lost[log.String()+" "+region] != (err != nil) {
					rt.Fatalf("%s to %s: lost %v, and the policy says %v", log, region, lost[log.String()+" "+region], err)
				}
				seen[err == nil]++
			}
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("nothing was shown: %v", seen)
	}
}
