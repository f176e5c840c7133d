package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/chaos/drill"
	"domicile/regions"
)

type canaryFlags struct {
	contexts         []string
	dir, id, metrics string
	rate             int
	lasts, catchUp   time.Duration
}

func (a *app) drillCanary() *cobra.Command {
	var f canaryFlags
	cmd := &cobra.Command{
		Use: "canary", Short: "Publish resident records everywhere, and look for them where they may not be", Args: arguments(0, 0, ""),
		Long: `Nothing is cut. For a few seconds resident records of every kind are published at the door of
each region, at home and to be handed on; once the copies are complete every node looks
through its own files for their marks. Ends with 0 if none is outside its boundary and those
at home were found, with 1 if one is outside, and with 4 if nobody can say. It cuts nothing, so
no permission for drills is needed; the records are real ones, which stay in their topics.

Run it by a timer. With --metrics it writes a file for the text-file collector of a node
exporter: when it last ended, when it was last clean, and how many marks it found outside.`,
		Example: "  domicile drill canary\n  domicile drill canary --metrics /var/lib/node_exporter/domicile.prom",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runCanary(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "canaries", "folder in which each look has one of its own")
	flags.StringVar(&f.id, "id", "", "id of the look (default: made from the time)")
	flags.StringVar(&f.metrics, "metrics", "", "file for Prometheus, replaced as a whole (default: none)")
	flags.IntVar(&f.rate, "rate", 2, "records a second of each kind at each region, 1 to 100")
	flags.DurationVar(&f.lasts, "for", 5*time.Second, "how long they are published, up to an hour")
	flags.DurationVar(&f.catchUp, "catch-up", 2*time.Minute, "in which copies have to be complete afterwards, up to a day")
	contextsFlag(cmd, &f.contexts)
	return cmd
}

func (f *canaryFlags) check() error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "look for leaks", Field: field, Value: value, Hint: hint}
	}
	switch {
	case f.rate < 1 || f.rate > 100:
		return bad("rate", strconv.Itoa(f.rate), "1 to 100")
	case f.lasts < time.Second || f.lasts > time.Hour:
		return bad("for", f.lasts.String(), "1s to 1h")
	case f.catchUp < time.Second || f.catchUp > 24*time.Hour:
		return bad("catch-up", f.catchUp.String(), "1s to 24h")
	}
	return nil
}

// runCanary takes one look, and tells what it has shown. A look that could not be taken
// leaves the file of metrics as it is: what it says of the last one stays true.
func (a *app) runCanary(ctx context.Context, f *canaryFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	nodes, done, err := a.everyRegion(ctx, f.contexts)
	if err != nil {
		return err
	}
	defer done()
	c := drill.Canary{ID: firstOf(f.id, a.drillID()), Nodes: drillNodes(nodes), Rate: f.rate, For: f.lasts, CatchUp: f.catchUp,
		Controller: "domicile " + version().Version, Clock: regions.NewSteadyClock(), Say: a.step}
	c.Dir = filepath.Join(f.dir, c.ID)
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fileError("make the look's folder", c.Dir, err)
	}
	r, err := c.Watch(ctx)
	if r.Verdict == "" {
		return asked(err)
	}
	if f.metrics != "" {
		err = errors.Join(err, keepCanary(f.metrics, &r, a.now()))
	}
	if err = errors.Join(err, a.tellCanary(&c, &r)); err != nil {
		return err
	}
	switch r.Verdict {
	case drill.Clean:
		return nil
	case drill.Leaked:
		return ended(exitFailure)
	}
	return ended(exitUnknown)
}

// sightingView is what the search of one node's files saw.
type sightingView struct {
	Region string   `json:"region"`
	Where  string   `json:"where"`
	Home   bool     `json:"home"`
	Files  uint64   `json:"files"`
	Bytes  uint64   `json:"bytes"`
	Sown   uint64   `json:"marks"`
	Hits   uint64   `json:"found"`
	Beyond []string `json:"not_searched,omitempty"`
}

func (a *app) tellCanary(c *drill.Canary, r *drill.CanaryResult) error {
	views := []sightingView{}
	rows := [][]string{{"REGION", "SEARCHED", "FILES", "BYTES", "MARKS", "FOUND"}}
	for _, s := range r.Seen {
		views = append(views, sightingView{s.Region, s.Where, s.Home, s.Files, s.Bytes, s.Sown, s.Hits, s.Beyond})
		found := fmt.Sprintf("%d at home", s.Hits)
		if !s.Home {
			found = fmt.Sprintf("%d outside", s.Hits)
		}
		rows = append(rows, []string{s.Region, s.Where, count(s.Files), regions.Bytes(int64(s.Bytes)), count(s.Sown), found})
	}
	if a.json() {
		return a.printJSON(map[string]any{"id": c.ID, "dir": c.Dir, "verdict": r.Verdict, "why": r.Why, "records": r.Records, "searches": views, "chain": r.Chain})
	}
	fmt.Fprintln(a.out)
	table(a.out, "", rows)
	fmt.Fprintf(a.out, "\n%s: %d resident records were acknowledged\n", r.Verdict, r.Records)
	if r.Why != "" {
		fmt.Fprintln(a.out, oneLine(r.Why))
	}
	for i, s := range r.Seen {
		if said := i > 0 && r.Seen[i-1].Where == s.Where; len(s.Beyond) > 0 && !said { // the same of a node in both of its lines
			fmt.Fprintf(a.out, "not searched beside %s: %s\n", s.Where, strings.Join(s.Beyond, "; "))
		}
	}
	_, err := fmt.Fprintf(a.out, "history %s\n", filepath.Join(c.Dir, drill.HistoryFile))
	return err
}

// Metrics of the last look, in the text format of Prometheus.
const (
	canaryEnded   = "domicile_canary_ended_timestamp_seconds"
	canaryClean   = "domicile_canary_clean_timestamp_seconds"
	canaryOutside = "domicile_canary_outside"
)

// keepCanary replaces the file of metrics. When it was last clean is taken over from the file
// before; what is not known is left out.
func keepCanary(path string, r *drill.CanaryResult, now time.Time) error {
	var out strings.Builder
	put := func(name, help, value string) {
		if value != "" {
			fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n%s %s\n", name, help, name, name, value)
		}
	}
	at := strconv.FormatFloat(float64(now.UnixMilli())/1000, 'f', 3, 64)
	clean, outside := at, "0"
	if r.Verdict != drill.Clean {
		before, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fileError("read metrics", path, err)
		}
		clean, outside = lastClean(string(before)), ""
	}
	if r.Verdict == drill.Leaked {
		n := uint64(0)
		for _, s := range r.Seen {
			if !s.Home {
				n += s.Hits
			}
		}
		outside = strconv.FormatUint(n, 10)
	}
	put(canaryEnded, "When domicile drill canary last ended.", at)
	put(canaryClean, "When it last found everything where it belongs; absent: never yet.", clean)
	put(canaryOutside, "Marks of resident records that it found outside their boundary; absent: it could not say.", outside)
	err := regions.WriteWhole(path, []byte(out.String()))
	if err == nil {
		err = os.Chmod(path, 0o644) // the collector is somebody else
	}
	if err != nil {
		return fileError("write metrics", path, err)
	}
	return nil
}

func lastClean(text string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), canaryClean+" "); ok {
			return value
		}
	}
	return ""
}
