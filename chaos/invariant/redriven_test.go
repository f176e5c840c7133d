package invariant_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/api"
	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
	"domicile/regions/loss"
)

// redriven is what west kept of orders: 7 and 8 were published anew, 9 its producer had sent
// again, 10 policy refuses by now; the rest was given up by two people.
type redriven struct {
	all  []invariant.Redrive
	home []ledger.Shelf
}

func goodRedrive() *redriven {
	r := &redriven{home: []ledger.Shelf{{Region: "east", Log: "orders", Home: true}}}
	d := invariant.Redrive{Log: "orders", Region: "west", Hash: "abc", How: "discarded", Who: "bea", Reason: "test data", Revision: "2-p"}
	for n, fate := range []loss.Fate{loss.Republished, loss.Republished, loss.Present, loss.Discarded} {
		it := ledger.Item{Region: "west", Log: "orders", Epoch: "1", Sequence: uint64(7 + n), ID: fmt.Sprint("id-", n), Key: "k", Hash: fmt.Sprint("h-", n), Revision: "1-p"}
		v := invariant.Voided{Item: it, Fate: fate}
		if fate == loss.Discarded {
			v.Code = api.UnknownTag
		} else {
			it.Region, it.Epoch, it.Sequence, it.Revision = "east", "2", uint64(20+n), "2-p"
			r.home[0].Items, v.Where = append(r.home[0].Items, it), fmt.Sprint("2/", it.Sequence)
		}
		d.Void = append(d.Void, v)
	}
	r.home[0].Items[2].Revision = "1-p" // its producer was earlier
	for _, outcome := range []string{"begun", "done"} {
		d.Acts = append(d.Acts, invariant.Act{Act: "republish", Who: "bea", Reason: "west is back", Outcome: outcome, Changes: []string{"divergence abc as class app"}},
			invariant.Act{Act: "discard", Who: "bea", Reason: "test data", Outcome: outcome, Changes: []string{"divergence abc"}, ApprovedBy: []string{"anna"}})
	}
	r.all = []invariant.Redrive{d}
	return r
}

// TestR14g_RedrivesAreJudged: a run in which void records were published anew or given up is
// green, and each way to break what is promised of it is red, with words that name it.
func TestR14g_RedrivesAreJudged(t *testing.T) {
	without := func(r *redriven, drop func(invariant.Act) bool) {
		r.all[0].Acts = slices.DeleteFunc(r.all[0].Acts, drop)
	}
	for name, c := range map[string]struct {
		spoil func(*redriven)
		want  string // "": nothing
	}{
		"good":               {func(*redriven) {}, ""},
		"another id":         {func(r *redriven) { r.home[0].Items[0].ID = "other" }, "0 times under its id"},
		"stored twice":       {func(r *redriven) { r.home[0].Items = append(r.home[0].Items, r.home[0].Items[1]) }, "2 times"},
		"another body":       {func(r *redriven) { r.home[0].Items[1].Hash = "other" }, "another body"},
		"another key":        {func(r *redriven) { r.home[0].Items[1].Key = "other" }, "another body or key"},
		"elsewhere":          {func(r *redriven) { r.home[0].Items[0].Sequence = 30 }, "said to be at 2/20"},
		"under no policy":    {func(r *redriven) { r.home[0].Items[0].Revision = "" }, "under no policy"},
		"under an older one": {func(r *redriven) { r.home[0].Items[0].Revision = "1-p" }, "while 2-p was in force"},
		"refused and stored": {func(r *redriven) { r.home[0].Items = append(r.home[0].Items, r.all[0].Void[3].Item) }, "is stored at home"},
		"settled as a whole": {func(r *redriven) { r.all[0].How, r.all[0].Reason = "republished", "west is back" }, "settled as republished"},
		"nobody agreed":      {func(r *redriven) { r.all[0].Acts[1].ApprovedBy, r.all[0].Acts[3].ApprovedBy = nil, nil }, "nobody who agreed"},
		"agreed with herself": {func(r *redriven) {
			r.all[0].Acts[1].ApprovedBy, r.all[0].Acts[3].ApprovedBy = []string{"bea"}, []string{"bea"}
		}, "nobody who agreed"},
		"no reason": {func(r *redriven) { r.all[0].Acts[0].Reason = " " }, "no reason"},
		"no audit":  {func(r *redriven) { r.all[0].Acts = nil }, "does not say who decided on a republish"},
		"not before": {func(r *redriven) {
			without(r, func(a invariant.Act) bool { return a.Outcome == "begun" && a.Act == "discard" })
		}, "who decided on a discard"},
		"somebody else did it": {func(r *redriven) { r.all[0].Who = "carl" }, "who decided on a discard"},
		"of other records":     {func(r *redriven) { r.all[0].Hash = "xyz" }, "does not say who decided"},
	} {
		r := goodRedrive()
		c.spoil(r)
		found := invariant.Redrives(r.all, r.home)
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %v", name, found)
		case c.want != "" && (len(found) == 0 || !strings.Contains(found[0].String(), c.want)):
			t.Errorf("%s: found %v, want %q", name, found, c.want)
		}
	}
}
