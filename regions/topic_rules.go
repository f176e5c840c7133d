package regions

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// complete fills in defaults and checks one topic's declaration.
func (t *Topic) complete(f *state) error {
	field := func(name string) string { return "topics." + t.Name + "." + name }
	if err := CheckName(t.Name); err != nil {
		return bad("topics", t.Name, err.Error())
	}
	if err := t.completeWrites(f, field); err != nil {
		return err
	}
	if err := t.completeMirror(f, field); err != nil {
		return err
	}
	if err := t.completeBounds(field); err != nil {
		return err
	}
	if err := t.completeRoute(f, field); err != nil {
		return err
	}
	if err := t.completeDurability(field); err != nil {
		return err
	}
	if t.Hold && len(t.Mirror) == 0 {
		return bad(field("hold"), "true", "nobody gets copies, so there is nothing to wait for: give the topic a mirror list")
	}
	if err := t.checkSync(f, field); err != nil {
		return err
	}
	if err := t.completeFailover(f, field); err != nil {
		return err
	}
	if err := t.Quota.Check(field("quota")); err != nil {
		return err
	}
	return t.checkOnHomeLoss(field)
}

func (t *Topic) completeWrites(f *state, field func(string) string) error {
	switch t.Writes {
	case WritesHome:
		if _, ok := f.regions[t.Home]; !ok {
			return bad(field("home"), t.Home, suggest("writes: home needs a home; unknown region", t.Home, f.regionNames))
		}
		if len(t.Regions) != 0 {
			return bad(field("regions"), strings.Join(t.Regions, ","), "only topics with writes: local have regions")
		}
		t.Regions = []string{t.Home}
	case WritesLocal:
		if t.Home != "" {
			return bad(field("home"), t.Home, "only topics with writes: home have a home")
		}
		if len(t.Regions) == 0 {
			t.Regions = slices.Clone(f.regionNames)
		}
		return t.checkRegionList(f, field("regions"), t.Regions)
	default:
		return bad(field("writes"), string(t.Writes), "write local (a log per region) or home (one log)")
	}
	return nil
}

func (t *Topic) completeMirror(f *state, field func(string) string) error {
	if slices.Equal(t.Mirror, []string{"all"}) {
		t.Mirror = slices.Clone(f.regionNames)
	}
	return t.checkRegionList(f, field("mirror"), t.Mirror)
}

func (t *Topic) checkRegionList(f *state, field string, list []string) error {
	slices.Sort(list)
	for i, r := range list {
		if _, ok := f.regions[r]; !ok {
			return bad(field, r, suggest("unknown region", r, f.regionNames))
		}
		if i > 0 && list[i-1] == r {
			return bad(field, r, "the region is listed twice")
		}
	}
	return nil
}

func (t *Topic) completeBounds(field func(string) string) error {
	if t.Retention.MaxAge == 0 {
		t.Retention.MaxAge = DefaultMaxAge
	}
	if t.Retention.MaxBytes == 0 {
		t.Retention.MaxBytes = DefaultMaxBytes
	}
	if t.Batch.Records == 0 {
		t.Batch.Records = DefaultBatchRecords
	}
	if t.Batch.Bytes == 0 {
		t.Batch.Bytes = DefaultBatchBytes
	}
	if t.Batch.Linger == 0 {
		t.Batch.Linger = DefaultBatchLinger
	}
	switch {
	case t.Retention.MaxAge < time.Second:
		return bad(field("retention.max_age"), t.Retention.MaxAge.String(), "at least 1s")
	case t.Retention.MaxBytes < MinMaxBytes:
		return bad(field("retention.max_bytes"), t.Retention.MaxBytes.String(), fmt.Sprintf("at least %s: one body may be 1 MiB", Size(MinMaxBytes)))
	case t.Batch.Records < 1 || t.Batch.Records > MaxBatchRecords:
		return bad(field("batch.records"), fmt.Sprint(t.Batch.Records), fmt.Sprintf("1 to %d", MaxBatchRecords))
	case t.Batch.Bytes < 64<<10 || t.Batch.Bytes > 2<<20:
		return bad(field("batch.bytes"), fmt.Sprint(t.Batch.Bytes), "65536 to 2097152")
	case t.Batch.Linger < 0 || t.Batch.Linger > time.Second:
		return bad(field("batch.linger"), t.Batch.Linger.String(), "0 to 1s")
	}
	return nil
}

// completeRoute refuses a route that nothing could ever take.
func (t *Topic) completeRoute(f *state, field func(string) string) error {
	switch t.Route {
	case "":
		t.Route = RouteHome
	case RouteHome:
	case RouteWithinBoundary:
		if t.Writes == WritesHome {
			return bad(field("route"), t.Route, "a topic with writes: home has one log, so there is no other to go to: write writes: local or route: home")
		}
		if !t.sharesBoundary(f) {
			return bad(field("route"), t.Route, "no boundary has two regions with a log of this topic: list them under regions, or write route: home")
		}
	default:
		return bad(field("route"), t.Route, "the routes are home and within_boundary")
	}
	return nil
}

// sharesBoundary reports whether two logs of the topic lie in one boundary.
func (t *Topic) sharesBoundary(f *state) bool {
	seen := map[string]bool{}
	for _, r := range t.Regions {
		if b := f.regions[r].Boundary; b != "" {
			if seen[b] {
				return true
			}
			seen[b] = true
		}
	}
	return false
}

func (t *Topic) completeDurability(field func(string) string) error {
	switch t.Durability {
	case "":
		t.Durability = "disk"
	case "disk", Relaxed:
	default:
		return bad(field("durability"), t.Durability, "the classes are disk and relaxed")
	}
	return nil
}

func (t *Topic) checkOnHomeLoss(field func(string) string) error {
	o := t.OnHomeLoss
	if o == nil {
		return bad(field("on_home_loss"), "", "a topic that cannot fail over says in advance what happens when its home is lost: producers, consumers, owner, text")
	}
	switch {
	case o.Producers != "refuse":
		return bad(field("on_home_loss.producers"), o.Producers, "refuse is the only choice: a record is never parked where it may not rest")
	case o.Owner == "":
		return bad(field("on_home_loss.owner"), "", "name who decides while the home is lost")
	case o.Text == "":
		return bad(field("on_home_loss.text"), "", "say what producers and consumers are told")
	}
	switch o.Consumers.Mode {
	case "wait", "stop":
		if o.Consumers.MaxStaleness != 0 {
			return bad(field("on_home_loss.consumers.max_staleness"), o.Consumers.MaxStaleness.String(), "only with mode: read_copy")
		}
	case "read_copy":
		if o.Consumers.MaxStaleness <= 0 {
			return bad(field("on_home_loss.consumers.max_staleness"), "", "say how stale a copy may be read")
		}
	default:
		return bad(field("on_home_loss.consumers.mode"), o.Consumers.Mode, "wait, stop or read_copy")
	}
	return nil
}

// Fields is the declaration as text, field by field: what two regions compare and
// name when they differ. Nothing is left out.
func (t *Topic) Fields() map[string]string {
	f := map[string]string{
		"writes": string(t.Writes), "home": t.Home, "regions": strings.Join(t.Regions, ","),
		"mirror":              strings.Join(t.Mirror, ","),
		"retention.max_age":   t.Retention.MaxAge.String(),
		"retention.max_bytes": t.Retention.MaxBytes.String(),
		"durability":          t.Durability,
		"batch":               fmt.Sprintf("%d/%d/%s", t.Batch.Records, t.Batch.Bytes, t.Batch.Linger),
		"route":               t.Route, "hold": fmt.Sprint(t.Hold),
	}
	t.Failover.texts(f)
	// Written only where it is used: a binary that does not know it still agrees on all
	// other topics.
	if !t.Quota.None() {
		f["quota"] = fmt.Sprintf("%d records/s, %d bytes/s", t.Quota.Records, t.Quota.Bytes)
	}
	if t.Sync != nil {
		f["sync"] = t.Sync.text()
	}
	if o := t.OnHomeLoss; o != nil {
		f["on_home_loss.producers"] = o.Producers
		f["on_home_loss.consumers"] = o.Consumers.Mode + " " + o.Consumers.MaxStaleness.String()
		f["on_home_loss.owner"] = o.Owner
		f["on_home_loss.text"] = o.Text
	}
	return f
}
