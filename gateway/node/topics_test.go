package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/link"
)

// topicsManifest has three topics that the example policy knows.
const topicsManifest = `
version: 1
federation: example
regions: {eu-west: {link: "127.0.0.1:1"}, us-east: {link: "127.0.0.1:2"}, ap-south: {link: "127.0.0.1:3"}}
boundaries: {eu: [eu-west], us: [us-east], in: [ap-south]}
links: [[eu-west, us-east]]
topics:
  orders: {writes: local, mirror: [all], retention: {max_bytes: 64MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  health.records: {writes: local, retention: {max_bytes: 8MiB}, on_home_loss: {producers: refuse, consumers: {mode: stop}, owner: o, text: t}}
#catalog
`

const catalogTopic = `  catalog.updates: {writes: home, home: eu-west, mirror: [us-east], retention: {max_bytes: 8MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// topicsLab is a federation and the clients that its operators and producers use.
type topicsLab struct {
	*testing.T
	*lab.Lab
	desks, doors map[string]*client.Client
}

func openTopics(t *testing.T, seams ...func(string, *node.Seams)) *topicsLab {
	t.Helper()
	o := lab.Options{Manifest: []byte(topicsManifest), Pace: 0.25}
	for _, s := range seams {
		o.Seams = s
	}
	l, err := lab.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	x := &topicsLab{T: t, Lab: l, desks: map[string]*client.Client{}, doors: map[string]*client.Client{}}
	for _, r := range l.Regions() {
		desk, err := r.Desk()
		if err != nil {
			t.Fatal(err)
		}
		door, err := r.Door(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { desk.Close(); door.Close() })
		x.desks[r.Name], x.doors[r.Name] = desk, door
	}
	if err := l.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// publish publishes records of orders that may rest anywhere, in eu-west.
func (x *topicsLab) publish(name string, n int) {
	x.Helper()
	for i := range n {
		r := api.Record{ID: fmt.Sprintf("%s-%d", name, i), Topic: "orders", Body: []byte("b"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "global"}}}
		if _, err := x.doors["eu-west"].Publish(x.Context(), &r); err != nil {
			x.Fatal(err)
		}
	}
}

// lag is what a region says of orders@eu-west towards us-east.
func (x *topicsLab) lag(region string) *pb.LogLag {
	x.Helper()
	var found *pb.LogLag
	err := x.desks[region].Lag(x.Context(), &pb.LagRequest{Topic: "orders"}, func(m *pb.LagResponse) error {
		for _, l := range m.GetLogs() {
			if l.GetLog().GetSlot() == "eu-west" && l.GetTarget() == "us-east" {
				found = l
			}
		}
		return nil
	})
	if err != nil {
		x.Fatal(err)
	}
	return found
}

func (x *topicsLab) eventually(what string, ok func() bool) {
	x.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Now().After(deadline) {
			x.Fatalf("not within a minute: %s", what)
		}
	}
}

// backlog has 3 records copied to us-east and n that are not: the link is cut.
func (x *topicsLab) backlog(n int) {
	x.Helper()
	x.publish("copied", 3)
	x.eventually("us-east has three", func() bool { l := x.lag("eu-west"); return l != nil && l.GetCursor() == 3 })
	if err := x.CutLink("eu-west", "us-east", link.Reject, time.Hour); err != nil {
		x.Fatal(err)
	}
	x.publish("waiting", n)
	x.eventually("the backlog is counted", func() bool { l := x.lag("eu-west"); return l.GetRecordsKnown() && l.GetRecords() == uint64(n) })
}

func (x *topicsLab) declare(region, old, next string) {
	x.Helper()
	if err := x.Region(region).Declare(old, next); err != nil {
		x.Fatal(err)
	}
}

func (x *topicsLab) reload(region string, q *pb.ReloadManifestRequest) (*pb.ReloadManifestResponse, error) {
	return x.desks[region].ReloadManifest(x.Context(), q)
}

// want checks an error's code and that it says something.
func (x *topicsLab) want(err error, code api.Code, text string) {
	x.Helper()
	if api.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		x.Fatalf("got %v, want %s and %q", err, code, text)
	}
}

func (x *topicsLab) acts(region string) string {
	x.Helper()
	data, err := os.ReadFile(filepath.Join(x.Region(region).Data(), "acts.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		x.Fatal(err)
	}
	return string(data)
}

const waiting = "50 records of orders@eu-west are not yet in us-east"

// B12: purging what is not copied is refused with the count; forced it is audited, and
// the copy gets a gap of exactly that range.
func TestB12_PurgeOfABacklog(t *testing.T) {
	t.Parallel()
	x := openTopics(t)
	x.backlog(50)
	desk := x.desks["eu-west"]
	_, err := desk.PurgeTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", All: true})
	x.want(err, api.NotCopied, waiting)
	_, err = desk.PurgeTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", All: true, Force: true})
	x.want(err, api.BadRequest, "--reason")
	for _, vague := range []*pb.TopicActRequest{{Topic: "orders"}, {Topic: "orders", All: true, ToSequence: 2}, {Topic: "orders", BeforeUnixNano: -1}} {
		vague.Force, vague.Reason = true, "whatever was meant"
		_, err = desk.PurgeTopic(t.Context(), vague)
		x.want(err, api.BadRequest, "say what is to go")
	}
	_, err = desk.PurgeTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "us-east", All: true})
	x.want(err, api.NotCopied, "may be all that is left")
	if got := x.acts("eu-west"); got != "" {
		t.Fatalf("refused acts are in the audit: %s", got)
	}
	if r, err := desk.PurgeTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", ToSequence: 2}); err != nil || r.GetLogs()[0].GetTo() != 2 {
		t.Fatalf("what is copied may be purged: %v %v", r, err)
	}
	r, err := desk.PurgeTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", ToSequence: 43, Force: true, Reason: "test data by mistake"})
	if err != nil || len(r.GetLogs()) != 1 || r.GetLogs()[0].GetFrom() != 3 || r.GetLogs()[0].GetTo() != 43 || r.GetLogs()[0].GetRecords() != 41 {
		t.Fatalf("purged %v %v", r, err)
	}
	for _, part := range []string{`"act":"purge"`, `"forced":true`, `"reason":"test data by mistake"`, `"who":"dev"`, "up to 40 records of orders@eu-west are not yet in us-east", `"outcome":"begun"`, `"outcome":"done"`} {
		if !strings.Contains(x.acts("eu-west"), part) {
			t.Errorf("the audit lacks %s: %s", part, x.acts("eu-west"))
		}
	}
	if lines := strings.Split(x.acts("eu-west"), "\n"); len(lines) != 5 || !strings.Contains(lines[2], `"from":3,"to":43`) || !strings.Contains(lines[2], `"outcome":"begun"`) {
		t.Errorf("the audit's line before the act does not say what is to go: %q", lines)
	}
	if l := x.lag("eu-west"); l.GetLossState() != "now" || len(l.GetLost()) != 1 || !strings.Contains(l.GetLost()[0], "4 to 43") {
		t.Errorf("before the copy comes back: loss %q, lost %v", l.GetLossState(), l.GetLost())
	}
	x.Heal()
	x.eventually("the copy has come to the end", func() bool { return x.lag("us-east").GetCursor() == 53 })
	if l := x.lag("us-east").GetLedger(); l.GetPurged() != 40 || l.GetMirrored() != 13 || l.GetExpired() != 0 {
		t.Errorf("the copy's ledger: %v", l)
	}
	x.eventually("the range is named at the home", func() bool {
		l := x.lag("eu-west").GetLost()
		return len(l) == 1 && l[0] == "40 records purged before the copy had them: 4 to 43"
	})
}

// B12, B08: retention shortened over a backlog is refused with the count, and nothing
// of the new file is in force; forced, the copy is told the exact range that expired.
func TestB12_ShorteningOverABacklog(t *testing.T) {
	t.Parallel()
	x := openTopics(t)
	x.backlog(50)
	x.declare("eu-west", "max_bytes: 64MiB", "max_age: 1s, max_bytes: 64MiB")
	_, err := x.reload("eu-west", &pb.ReloadManifestRequest{})
	x.want(err, api.NotCopied, waiting)
	x.want(x.Region("eu-west").Node().Reload(t.Context()), api.NotCopied, waiting) // SIGHUP
	if s, _ := x.desks["eu-west"].Topics(t.Context(), "orders"); s.GetTopics()[0].GetDeclaration()["retention.max_age"] != "168h0m0s" {
		t.Fatal("a refused reload changed the declaration")
	}
	r, err := x.reload("eu-west", &pb.ReloadManifestRequest{Force: true, Reason: "disk is short"})
	if err != nil || !r.GetChanged() || len(r.GetTopics()) != 1 || r.GetTopics()[0].GetFields()[0] != "retention.max_age: 168h0m0s | 1s" {
		t.Fatalf("forced: %v %v", r, err)
	}
	audit := fmt.Sprintf(`"manifest_before":%q,"manifest_after":%q,"changes":["orders: alter (retention.max_age: 168h0m0s | 1s)"]`, r.GetPrevious(), r.GetDigest())
	if got := x.acts("eu-west"); strings.Count(got, audit) != 2 {
		t.Errorf("the audit's two lines lack %s: %s", audit, got)
	}
	x.eventually("everything has expired", func() bool {
		s, err := x.desks["eu-west"].Topics(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range s.GetTopics()[0].GetLogs() {
			if h.GetLog().GetSlot() == "eu-west" {
				return h.GetFirst() == 54
			}
		}
		return false
	})
	x.Heal()
	x.eventually("the declarations differ, and the copy does not move", func() bool {
		l := x.lag("eu-west")
		return l.GetState() == "MANIFEST_MISMATCH" && strings.Contains(l.GetCause(), "retention.max_age: 1s | 168h0m0s")
	})
	x.declare("us-east", "max_bytes: 64MiB", "max_age: 1s, max_bytes: 64MiB")
	if r, err := x.reload("us-east", &pb.ReloadManifestRequest{}); err != nil || !r.GetChanged() {
		t.Fatalf("us-east: %v %v", r, err)
	}
	x.eventually("the copy has come to the end", func() bool { return x.lag("us-east").GetCursor() == 53 })
	if l := x.lag("us-east").GetLedger(); l.GetExpired() != 50 || l.GetMirrored() != 3 {
		t.Errorf("the copy's ledger: %v", l)
	}
	x.eventually("the range is named at the home", func() bool {
		l := x.lag("eu-west").GetLost()
		return len(l) == 1 && l[0] == "50 records expired before the copy had them: 4 to 53"
	})
}

// B12: a topic is taken out of the manifest, its data stays and is shown as kept; its
// deletion is refused with the count, forced it is audited, and nothing of it is left
// here, metrics included. The other region shows and deletes its orphan copy itself.
func TestB12_DeleteOfABacklog(t *testing.T) {
	t.Parallel()
	x := openTopics(t)
	x.backlog(50)
	desk := x.desks["eu-west"]
	_, err := desk.DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west"})
	x.want(err, api.BadRequest, "still declared")
	x.want(err, api.BadRequest, waiting)
	const declared = "  orders: {writes: local, mirror: [all], retention: {max_bytes: 64MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}\n"
	x.declare("eu-west", declared, "")
	r, err := x.reload("eu-west", &pb.ReloadManifestRequest{})
	if err != nil || !strings.Contains(strings.Join(r.GetNotes(), "\n"), waiting) {
		t.Fatalf("removed: %v %v", r, err)
	}
	_, err = x.doors["eu-west"].Publish(t.Context(), &api.Record{ID: "late", Topic: "orders", Body: []byte("b"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "global"}}})
	x.want(err, api.UnknownTopic, "")
	s, err := desk.Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(s.GetWarnings(), "\n"), "kept on disk and served to nobody, as federation.yaml does not name it: orders@eu-west (home), orders@us-east (copy)") {
		t.Fatalf("warnings %v %v", s.GetWarnings(), err)
	}
	_, err = desk.DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west"})
	x.want(err, api.NotCopied, waiting)
	d, err := desk.DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Force: true, Reason: "the shop is closed"})
	if err != nil || len(d.GetLogs()) != 2 || d.GetLogs()[0].GetTo() != 53 || d.GetLogs()[0].GetRecords() != 53 {
		t.Fatalf("deleted: %v %v", d, err)
	}
	if got := x.acts("eu-west"); !strings.Contains(got, `"reason":"the shop is closed"`) || !strings.Contains(got, waiting) {
		t.Errorf("audit: %s", got)
	}
	page, err := x.Region("eu-west").Page(t.Context())
	if err != nil || strings.Contains(string(page), "orders") {
		t.Errorf("metrics of a deleted topic are left: %v", err)
	}
	_, err = desk.DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "orders"})
	x.want(err, api.UnknownTopic, "orders@eu-west was deleted at")
	x.Heal()
	x.eventually("us-east says that its copy's topic is gone there", func() bool {
		l := x.lag("us-east")
		return l.GetState() == "MANIFEST_MISMATCH" && strings.Contains(l.GetCause(), "not in its home's manifest")
	})
	x.declare("us-east", declared, "")
	if _, err := x.reload("us-east", &pb.ReloadManifestRequest{}); err != nil {
		t.Fatal(err)
	}
	s, err = x.desks["us-east"].Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(s.GetWarnings(), "\n"), "orders@eu-west (copy)") {
		t.Fatalf("the orphan copy is not shown: %v %v", s.GetWarnings(), err)
	}
	if _, err := x.desks["us-east"].DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "orders", Slot: "eu-west"}); err != nil {
		t.Fatalf("the orphan copy: %v", err)
	}
}

// A topic is declared on running nodes, region by region, and works from then on; what
// does not fit or does not load changes nothing.
func TestRA3_DeclareOnARunningFederation(t *testing.T) {
	t.Parallel()
	x := openTopics(t)
	publish := func() error {
		_, err := x.doors["us-east"].Publish(t.Context(), &api.Record{ID: "c", Topic: "catalog.updates", Body: []byte("b"), Tags: []api.Tag{{Name: "class", Value: "catalog"}, {Name: "residency", Value: "global"}}})
		return err
	}
	x.want(publish(), api.UnknownTopic, "")
	x.declare("us-east", "#catalog\n", strings.Replace(catalogTopic, "8MiB", "900GiB", 1))
	_, err := x.reload("us-east", &pb.ReloadManifestRequest{})
	x.want(err, api.ConfigInvalid, "does not fit")
	x.declare("us-east", "900GiB", "8MiB")
	x.declare("us-east", "catalog.updates", "not.in.the.catalog")
	_, err = x.reload("us-east", &pb.ReloadManifestRequest{})
	x.want(err, api.ConfigInvalid, "not.in.the.catalog")
	x.declare("us-east", "not.in.the.catalog", "catalog.updates")
	x.want(publish(), api.UnknownTopic, "")
	if r, err := x.reload("us-east", &pb.ReloadManifestRequest{Check: true}); err != nil || !r.GetChanged() {
		t.Fatalf("check: %v %v", r, err)
	}
	x.want(publish(), api.UnknownTopic, "")
	r, err := x.reload("us-east", &pb.ReloadManifestRequest{})
	if err != nil || len(r.GetLogs()) != 1 || r.GetLogs()[0].GetRole() != "copy" {
		t.Fatalf("declared: %v %v", r, err)
	}
	x.want(publish(), api.ManifestMismatch, "not declared there")
	x.declare("eu-west", "#catalog\n", catalogTopic)
	if _, err := x.reload("eu-west", &pb.ReloadManifestRequest{}); err != nil {
		t.Fatal(err)
	}
	x.eventually("both sides agree and the record is taken", func() bool { return publish() == nil })
	x.eventually("the copy has it", func() bool {
		s, err := x.desks["us-east"].Topics(t.Context(), "catalog.updates")
		return err == nil && s.GetTopics()[0].GetLogs()[0].GetHead() == 1
	})
	if r, err := x.reload("eu-west", &pb.ReloadManifestRequest{}); err != nil || r.GetChanged() {
		t.Fatalf("the same again: %v %v", r, err)
	}
}

// B12: the operator leaves in the middle. A deletion that has begun is carried out, said
// so in the audit, and the copy, which is still declared, is made anew.
func TestB12_TheOperatorLeavesDuringADeletion(t *testing.T) {
	t.Parallel()
	leave, left := context.WithCancel(t.Context())
	x := openTopics(t, func(region string, s *node.Seams) {
		if region == "us-east" {
			s.Hooks.Fabric.Step = func(step string) {
				if step == "writer stopped" {
					left()
					<-leave.Done()
				}
			}
		}
	})
	x.publish("copied", 3)
	there := func(n uint64) func() bool {
		return func() bool { l := x.lag("us-east"); return l != nil && l.GetCursor() == n }
	}
	x.eventually("us-east has three", there(3))
	_, _ = x.desks["us-east"].DeleteTopic(leave, &pb.TopicActRequest{Topic: "orders", Slot: "eu-west"}) // nobody waits for the answer
	x.eventually("the audit has the end of it", func() bool { return strings.Contains(x.acts("us-east"), `"outcome":"done"`) })
	if got := x.acts("us-east"); !strings.Contains(got, `"to":3,"records":3`) {
		t.Errorf("audit: %s", got)
	}
	shown := func() string {
		m, err := x.desks["us-east"].Topics(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range m.GetTopics()[0].GetLogs() {
			if h.GetLog().GetSlot() == "eu-west" {
				return h.GetRole() + " " + h.GetState()
			}
		}
		return ""
	}
	if got := shown(); got != "copy ABSENT" {
		t.Errorf("the deleted copy is shown as %q", got)
	}
	x.publish("more", 1)
	x.eventually("the copy is there again", there(4))
}
