package mirror

import (
	"cmp"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// staleness is (now + offset) − safe, on the origin's clock. It grows by itself while
// nothing is heard. negative reports that it would be below zero: within the error of the
// offset that is none, beyond it the origin's stamps lie ahead of its clock, as after a
// clock that was set back, and nobody can tell from them how old the copy is.
func staleness(l *regions.Lag, safe, now time.Time, link regions.LinkStatus) (negative bool) {
	l.SafeTime = safe
	l.SecondsTrusted = link.OffsetOK && link.Offset.Abs() <= MaxOffset
	if safe.IsZero() {
		return false
	}
	age := now.Add(link.Offset).Sub(safe)
	if age >= -link.OffsetErr {
		l.StalenessKnown, l.Staleness, l.StalenessError = true, max(0, age), link.OffsetErr
	} else {
		l.SecondsTrusted = false
	}
	return age < 0
}

// targetView is what a target knows of one copy at one instant.
type targetView struct {
	knowledge *knowledge
	trouble   trouble   // why the last batch or open was refused
	moved     time.Time // when the copy last moved, or fell behind
	digest    string    // of our declaration of the topic
	heard     time.Time // of the last watermark message; zero: none in this run
	link      regions.LinkStatus
	orphan    bool // the home does not declare the topic
	now       time.Time
	pace      regions.Pace
}

// verdict turns a target's knowledge into the figures that are shown.
func (v *targetView) verdict(l *regions.Lag) (negative bool) {
	k := v.knowledge
	l.Head, l.Cursor = max(k.mark.Head, k.cursor), k.cursor
	heard := v.heard
	if v.link.LastHeard.After(heard) {
		heard = v.link.LastHeard
	}
	if l.KnowledgeKnown = !heard.IsZero(); l.KnowledgeKnown {
		l.KnowledgeAge = max(0, v.now.Sub(heard))
	}
	// The head is the head only while marks keep coming.
	fresh := v.link.Up && k.listed && k.alarm.state == "" && !v.heard.IsZero() && v.now.Sub(v.heard) <= v.pace.Of(freshFor)
	if fresh {
		l.Records, l.RecordsKnown = l.Head-k.cursor, true
		l.BytesKnown = l.Records == 0
	}
	l.State, l.Cause = v.state(l, fresh)
	return staleness(l, k.safe, v.now, v.link)
}

func (v *targetView) state(l *regions.Lag, fresh bool) (regions.LagState, string) {
	k := v.knowledge
	switch {
	case k.alarm.state != "":
		return k.alarm.state, k.alarm.cause
	case v.trouble.alarm():
		return v.trouble.state, v.trouble.cause
	case !v.link.Up:
		return regions.LagLinkDown, v.link.Reason
	case v.orphan:
		return regions.LagManifestDiffers, "the topic is not in its home's manifest any more: the copy stays as it is until it is deleted here"
	case k.heard && k.mark.Digest != v.digest:
		return regions.LagManifestDiffers, "the topic is declared differently at its home"
	case !fresh:
		return regions.LagUnknown, "no watermark of this log was heard since the link came up"
	case l.Records == 0:
		return regions.LagCaughtUp, ""
	case v.trouble.state != "":
		return v.trouble.state, v.trouble.cause
	case v.now.Sub(v.moved) > v.pace.Of(watchdogAfter):
		return regions.LagStalled, "the link is up and nothing arrives from the origin"
	}
	return regions.LagCatchingUp, ""
}

// Lag is what this region, as the log's home, knows of one flow. false: there is no
// such flow.
func (s *Source) Lag(log api.LogID, target string) (regions.Lag, bool) {
	s.mu.Lock()
	f := s.flows[Flow{log, target}]
	s.mu.Unlock()
	if f == nil {
		return regions.Lag{}, false
	}
	return f.lag(), true
}

// Lags lists every flow that leaves this region.
func (s *Source) Lags() []regions.Lag {
	s.mu.Lock()
	flows := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		flows = append(flows, f)
	}
	s.mu.Unlock()
	lags := make([]regions.Lag, 0, len(flows))
	for _, f := range flows {
		lags = append(lags, f.lag())
	}
	return sortLags(lags)
}

// lag fills in the origin's figures: exposure on its own clock, never staleness,
// which only the target can know.
func (f *flow) lag() regions.Lag {
	cfg := &f.source.cfg
	link, _ := cfg.Link(f.target)
	f.mu.Lock()
	defer f.mu.Unlock()
	// The head before the clock: a record that comes between must not be younger than 0.
	end := f.log.Head()
	head := end.Sequence
	now := cfg.Clock.Now()
	l := regions.Lag{Log: f.id, Home: cfg.Self, Target: f.target, Head: head, Cursor: f.cursor.Sequence, Ledger: f.cursor.Ledger}
	heard := f.heard
	if link.LastHeard.After(heard) {
		heard = link.LastHeard
	}
	if l.KnowledgeKnown = !heard.IsZero(); l.KnowledgeKnown {
		l.KnowledgeAge = max(0, now.Sub(heard))
	}
	if f.met {
		f.exposure(&l, head, now)
	}
	f.loss(&l, end)
	l.State, l.Cause = f.state(link, head)
	return l
}

func (f *flow) exposure(l *regions.Lag, head uint64, now time.Time) {
	if head <= f.cursor.Sequence {
		l.ExposureKnown, l.RecordsKnown, l.BytesKnown = true, true, true
		return
	}
	oldest, known := f.tally.oldest(head)
	// A stamp that lies ahead, as after a clock that was set back, has no age.
	if l.ExposureKnown = known && !oldest.After(now); l.ExposureKnown && !oldest.IsZero() {
		l.Exposure = now.Sub(oldest)
	}
	records, bytes, exact := f.tally.pending(head)
	if exact {
		l.Records, l.Bytes, l.RecordsKnown, l.BytesKnown = records, bytes, true, true
	}
}

func (f *flow) state(link regions.LinkStatus, head uint64) (regions.LagState, string) {
	switch {
	case f.trouble.alarm():
		return f.trouble.state, f.trouble.cause
	case !link.Up:
		return regions.LagLinkDown, link.Reason
	case f.trouble.state != "":
		return f.trouble.state, f.trouble.cause
	case !f.met:
		return regions.LagUnknown, "the target has not said where its copy ends"
	case head <= f.cursor.Sequence:
		return regions.LagCaughtUp, ""
	}
	return regions.LagCatchingUp, ""
}

// Lag is how far this region's copy of a log is behind. false: this region is to
// have no copy of it.
func (t *Target) Lag(log api.LogID) (regions.Lag, bool) {
	c := t.copyOf(log)
	if c == nil {
		return regions.Lag{}, false
	}
	return c.lag(), true
}

// Lags lists every copy this region is to have.
func (t *Target) Lags() []regions.Lag {
	copies := t.all()
	lags := make([]regions.Lag, 0, len(copies))
	for _, c := range copies {
		lags = append(lags, c.lag())
	}
	return sortLags(lags)
}

func (c *copied) lag() regions.Lag {
	cfg := &c.target.cfg
	link, _ := cfg.Link(c.home)
	heard := c.target.heardFrom(c.home)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := regions.Lag{Log: c.id, Home: c.home, Target: cfg.Self, Ledger: c.stored.Ledger}
	if c.log == nil {
		l.State, l.Cause = regions.LagStalled, "the copy is not open: what it holds is not known"
		return l
	}
	v := targetView{
		knowledge: &c.knowledge, trouble: c.trouble, moved: c.moved, digest: cfg.Federation.TopicDigest(c.id.Topic),
		heard: heard, link: link, now: cfg.Clock.Now(), pace: cfg.Pace,
	}
	if link.Hello != nil {
		v.orphan = link.Hello.TopicDigests[c.id.Topic] == ""
	}
	if v.verdict(&l) {
		cfg.Metrics.Clamped(c.id)
	}
	l.Cursor = c.stored.Sequence
	l.Head = max(l.Head, l.Cursor)
	return l
}

func sortLags(lags []regions.Lag) []regions.Lag {
	slices.SortFunc(lags, func(a, b regions.Lag) int {
		return cmp.Or(cmp.Compare(a.Log.String(), b.Log.String()), cmp.Compare(a.Target, b.Target))
	})
	return lags
}
