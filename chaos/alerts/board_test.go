package alerts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// board is what these tests read of the dashboard.
type board struct {
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Instant                   bool
	}
	FieldConfig struct {
		Defaults struct{ Unit, NoValue string }
	}
	Options struct{ ReduceOptions struct{ Calcs []string } }
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/domicile.json")
	must(t, err)
	must(t, json.Unmarshal(text, &b))
	return b
}

var variable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// dashboardAnswers runs each query of the dashboard over the time of the drill.
func (d *drill) dashboardAnswers() {
	d.Helper()
	queries := 0
	for _, p := range readBoard(d.T).Panels {
		for _, target := range p.Targets {
			queries++
			if n, err := d.over(variable.ReplaceAllString(target.Expr, ".*")); err != nil || n == 0 {
				d.Errorf("panel %q is empty: %s, %v", p.Title, target.Expr, err)
			}
		}
	}
	if queries < 30 {
		d.Errorf("the dashboard has %d queries", queries)
	}
}

// TestR14d_TheDashboardIsWhole holds the dashboard to what Grafana needs of it and to what its
// reader does: each panel has a source, a unit, a legend and a word for what is not known, none
// lies on another, and what stands for now asks for now. A value that was there a while ago is
// none.
func TestR14d_TheDashboardIsWhole(t *testing.T) {
	b := readBoard(t)
	known := []string{}
	for _, v := range b.Templating.List {
		known = append(known, v.Name)
	}
	if b.SchemaVersion < 36 || !slices.Equal(known, []string{"datasource", "region", "log"}) {
		t.Errorf("schema %d, variables %v", b.SchemaVersion, known)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%q: id %d twice or none", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the page", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" {
			p.check(t, known)
		}
	}
}

func (p *panel) check(t *testing.T, known []string) {
	if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || p.FieldConfig.Defaults.Unit == "" || p.FieldConfig.Defaults.NoValue == "" || len(p.Targets) == 0 {
		t.Errorf("%q: source, unit, word for no value or query is missing: %+v", p.Title, p)
	}
	now := p.Type == "stat" || p.Type == "bargauge"
	if now && !slices.Equal(p.Options.ReduceOptions.Calcs, []string{"last"}) {
		t.Errorf("%q shows %v", p.Title, p.Options.ReduceOptions.Calcs)
	}
	for _, q := range p.Targets {
		if q.RefID == "" || q.LegendFormat == "" || q.Instant != now {
			t.Errorf("%q: %+v", p.Title, q)
		}
		for _, v := range variable.FindAllStringSubmatch(q.Expr, -1) {
			if !slices.Contains(known, v[1]) {
				t.Errorf("%q asks for %s, which is no variable", p.Title, v[0])
			}
		}
		if strings.Contains(q.Expr, "domicile_canary_") == strings.Contains(q.Expr, `region=~"$region"`) { // looks are of no region
			t.Errorf("%q: %s", p.Title, q.Expr)
		}
	}
}
