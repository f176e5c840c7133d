package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/mirror"
	"domicile/regions"
)

const homeManifest = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  us-east: {link: "127.0.0.1:2"}
topics:
%s`

// homeTopics is a federation with n logs at home in eu-west and copied to us-east.
func homeTopics(t interface{ Fatal(...any) }, n int) *regions.Federation {
	text := ""
	for i := range n {
		text += fmt.Sprintf("  t%04d: {writes: home, home: eu-west, mirror: [us-east], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}\n", i)
	}
	fed, err := regions.ParseManifest("test", fmt.Appendf(nil, homeManifest, text))
	if err != nil {
		t.Fatal(err)
	}
	return fed
}

// model is the real marks and safe times over logs whose truth is known.
type model struct {
	fed    *regions.Federation
	clock  *regions.ManualClock
	homes  []*memoryLog
	copies []*memoryLog
	sinks  []*mirror.Sink
	source *mirror.Source
	target *mirror.Target
	all    bool                 // the next message is the first of a connection
	flying []regions.Watermarks // sent, not received
	safe   []time.Time          // highest safe time that was ever claimed
}

func newModel(t interface{ Fatal(...any) }, logs, marks int) *model {
	m := &model{fed: homeTopics(t, logs), clock: regions.NewManualClock(start), all: true, safe: make([]time.Time, logs), sinks: make([]*mirror.Sink, logs)}
	for _, name := range m.fed.Topics() {
		id := api.LogID{Tenant: api.DefaultTenant, Topic: name, Slot: api.HomeSlot}
		m.homes = append(m.homes, newMemoryLog(id, "inc", m.clock))
		m.copies = append(m.copies, newMemoryLog(id, "", m.clock))
	}
	policy := newBook(m.fed)
	link := func(peer string) (regions.LinkStatus, bool) {
		return regions.LinkStatus{Peer: peer, Up: true, OffsetOK: true}, true
	}
	var err error
	m.source, err = mirror.NewSource(mirror.SourceConfig{
		Self: "eu-west", Federation: m.fed, Link: link, Enter: policy.Enter, Clock: m.clock, Logger: quiet(), MaxMarks: marks,
		OpenMirror: func(context.Context, string, regions.MirrorOpen) (regions.MirrorStream, error) { return nil, errCut },
		HomeLogs: func() (logs []regions.HomeLog) {
			for _, l := range m.homes {
				logs = append(logs, l)
			}
			return logs
		},
	})
	if err == nil {
		m.target, err = mirror.NewTarget(mirror.TargetConfig{
			Self: "us-east", Federation: m.fed, Link: link, Enter: policy.Enter, Clock: m.clock, Logger: quiet(),
			Copy: func(_ context.Context, id api.LogID, _ api.Epoch) (regions.CopyLog, error) {
				i := slices.IndexFunc(m.copies, func(l *memoryLog) bool { return l.id == id })
				return m.copies[i], nil
			},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	m.target.Start(context.Background())
	return m
}

// check: a claimed safe time is the truth. No record stamped before it, released or
// not, is missing from the copy.
func (m *model) check(t *rapid.T) {
	for i, home := range m.homes {
		l, _ := m.target.Lag(home.id)
		if l.SafeTime.Before(m.safe[i]) {
			t.Fatalf("%s: the safe time went back", home.id)
		}
		m.safe[i] = l.SafeTime
		if l.SafeTime.After(m.clock.Now()) {
			t.Fatalf("%s: safe time %v lies in the future", home.id, l.SafeTime)
		}
		cursor := m.copies[i].Cursor().Sequence
		for _, item := range append(slices.Clone(home.items), home.pending...) {
			if item.Sequence > cursor && item.Time.Before(l.SafeTime) {
				t.Fatalf("%s: safe up to %v, but %d, stamped %v, is missing", home.id, l.SafeTime, item.Sequence, item.Time)
			}
		}
	}
}

// move mirrors up to n released records of a log, over a stream of its own.
func (m *model) move(t *rapid.T, i, n int) {
	home, to := m.homes[i], m.copies[i]
	if m.sinks[i] == nil {
		head := home.Head()
		sink, reply := m.target.OpenMirror(context.Background(), "eu-west", regions.MirrorOpen{
			Log: home.id, Incarnation: head.Incarnation, Epoch: head.Epoch, Head: head.Sequence, Digest: m.fed.TopicDigest(home.id.Topic)})
		if sink == nil {
			t.Fatalf("open refused: %+v", reply)
		}
		m.sinks[i] = sink
	}
	from := to.Cursor().Sequence
	items := home.items[from:min(from+uint64(n), uint64(len(home.items)))]
	if len(items) == 0 {
		return
	}
	if reply := m.sinks[i].Apply(context.Background(), regions.MirrorBatch{Incarnation: "inc", Serial: 1, Revision: "1-a", Items: slices.Clone(items)}); reply.Refused != "" {
		t.Fatalf("apply refused: %+v", reply)
	}
}

func TestR14d_SafeTimeIsNeverLaterThanTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := rapid.IntRange(1, 4).Draw(t, "logs")
		m := newModel(t, logs, rapid.IntRange(1, 4).Draw(t, "marks"))
		log := rapid.IntRange(0, logs-1)
		few := rapid.IntRange(1, 3)
		residency := rapid.SampledFrom([]string{"global", "nowhere"})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { m.check(t) },
			"time passes": func(t *rapid.T) {
				m.clock.Advance(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
			},
			"an append is stamped": func(t *rapid.T) { m.homes[log.Draw(t, "log")].stamp(residency.Draw(t, "residency"), 10) },
			"appends are released": func(t *rapid.T) { m.homes[log.Draw(t, "log")].release(few.Draw(t, "n")) },
			"an append comes while marks are made": func(t *rapid.T) {
				home := m.homes[log.Draw(t, "log")]
				home.race = func() {
					home.append("global", 10)
					m.clock.Advance(10 * time.Millisecond)
				}
			},
			"marks are sent": func(t *rapid.T) {
				m.flying = append(m.flying, m.source.Marks("us-east", m.all))
				m.all = false
			},
			"marks arrive": func(t *rapid.T) {
				if len(m.flying) > 0 {
					m.target.Watermarks("eu-west", m.flying[0])
					m.flying = m.flying[1:]
				}
			},
			"the link is lost":   func(t *rapid.T) { m.flying, m.all, m.sinks = nil, true, make([]*mirror.Sink, logs) },
			"records move":       func(t *rapid.T) { m.move(t, log.Draw(t, "log"), few.Draw(t, "n")) },
			"everything settles": func(t *rapid.T) { m.settle(t) },
		})
	})
}

// settle lets everything through; then every log that marks are sent for is complete
// up to now: the safe time is cautious, but it does get there.
func (m *model) settle(t *rapid.T) {
	m.flying = append(m.flying, m.source.Marks("us-east", m.all))
	m.all = false
	for _, w := range m.flying {
		m.target.Watermarks("eu-west", w)
	}
	m.flying = nil
	for i, home := range m.homes {
		home.release(1 << 20)
		m.move(t, i, 1<<20)
	}
	w := m.source.Marks("us-east", false)
	m.target.Watermarks("eu-west", w)
	fresh := 0
	for _, home := range m.homes {
		if l, _ := m.target.Lag(home.id); l.SafeTime.Equal(m.clock.Now()) {
			fresh++
		}
	}
	if want := len(m.homes) - w.Refused; fresh < want {
		t.Fatalf("%d logs are complete up to now, want %d", fresh, want)
	}
}

func TestMarksListWhatMovedAndCountWhatIsRefused(t *testing.T) {
	m := newModel(t, 2100, 0)
	w := m.source.Marks("us-east", true)
	if !w.All || len(w.Logs) != 2000 || w.Refused != 100 || !w.Instant.IsZero() {
		t.Fatalf("first round: all %v, %d logs, %d refused, instant %v", w.All, len(w.Logs), w.Refused, w.Instant)
	}
	m.clock.Advance(time.Second)
	m.homes[7].append("global", 10)
	if w = m.source.Marks("us-east", false); w.All || len(w.Logs) != 1 || w.Refused != 100 || !w.Instant.Equal(m.clock.Now()) {
		t.Errorf("second round: all %v, %d logs, %d refused, instant %v", w.All, len(w.Logs), w.Refused, w.Instant)
	}
	m.homes[8].stamp("global", 10)
	m.clock.Advance(5 * time.Second)
	if w = m.source.Marks("us-east", false); len(w.Logs) != 1 || !w.Instant.Equal(m.clock.Now()) {
		t.Errorf("a stuck append holds back the others: %d logs, instant %v", len(w.Logs), w.Instant)
	}
}
