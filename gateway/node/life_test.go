package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/identity"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

// shared lets the nodes of all tests ask the rules of one policy once.
var shared = new(opa.Shared)

// solo is a federation of one region with a topic of its own.
const solo = `
version: 1
federation: solo
regions: {eu-west: {link: "127.0.0.1:1"}}
boundaries: {eu: [eu-west]}
topics:
  orders: {writes: local, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

const soloCatalog = `
serial: %d
dimensions: {residency: [eu, global]}
principal_classes: [app]
topics:
  orders: {allow: [{residency: [eu, global]}], packages: [orders]}
`

const soloRules = `
package residency.rules.orders

permit contains {"rule": "all", "regions": data.federation.regions}
`

// world is what a node of the solo federation runs on.
type world struct {
	t         *testing.T
	f         *regions.Federation
	config    node.Config
	authority *identity.Authority
	identity  *identity.Identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(solo))
	if err != nil {
		t.Fatal(err)
	}
	const validity = 60 * 24 * time.Hour // nothing to warn of
	ca, err := identity.NewCA("solo", time.Now(), validity)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(identity.Region, "eu-west", time.Now(), validity, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, f: f, config: node.NewConfig(), authority: ca}
	if w.identity, err = identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock()); err != nil {
		t.Fatal(err)
	}
	const any = "127.0.0.1:0"
	w.config.Region, w.config.Data, w.config.Policies = "eu-west", t.TempDir(), t.TempDir()
	w.config.Listen = node.Listen{Door: any, Link: any, Admin: any, Metrics: any}
	return w
}

// policy writes the directory's files; "" for the rules leaves them out.
func (w *world) policy(serial int, rules string) {
	w.t.Helper()
	w.write("catalog.yaml", fmt.Sprintf(soloCatalog, serial))
	if err := os.MkdirAll(filepath.Join(w.config.Policies, "rules"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.write("rules/orders.rego", rules)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.config.Policies, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) make(change ...func(*node.Seams)) *node.Node {
	w.t.Helper()
	s := node.Seams{Identity: w.identity, Dev: true, Pace: 0.25, Policies: shared, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&s)
	}
	n, err := node.New(w.config, w.f, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) start(change ...func(*node.Seams)) *node.Node {
	w.t.Helper()
	n := w.make(change...)
	if err := n.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.stop(n) })
	return n
}

func (w *world) stop(n *node.Node) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// publish publishes one record, once.
func (w *world) publish(n *node.Node, id string) (api.Ack, error) {
	r := api.Record{ID: id, Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("body of " + id)}
	return dial(w.t, n.Door()).Publish(w.t.Context(), &r)
}

func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{address}, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) status(n *node.Node) *pb.StatusResponse {
	w.t.Helper()
	m, err := dial(w.t, n.Admin()).Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func TestRA1_RestartKeepsWhatWasAcked(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.start()
	var acks []api.Ack
	for i := range 3 {
		a, err := w.publish(n, fmt.Sprint("id-", i))
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, a)
	}
	w.stop(n)
	n = w.start()
	for i, old := range acks { // an id is known to the log it is in, after a restart too
		a, err := w.publish(n, fmt.Sprint("id-", i))
		if err != nil || !a.Duplicate || a.Sequence != old.Sequence || a.Incarnation != old.Incarnation {
			t.Errorf("%d: %+v %v", i, a, err)
		}
	}
	if a, err := w.publish(n, "new"); err != nil || a.Sequence != 4 {
		t.Errorf("%+v %v", a, err)
	}
}

// Whatever is wrong with the directory, the node serves, refuses every publish with a
// code that says to come back, shows the reason in its status, and heals by a reload.
func TestR14b_ABadPolicyAtStartRefusesPublishingUntilAReload(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(w *world)
		says   string
	}{
		"missing catalogue": {func(*world) {}, "catalog.yaml"},
		"rules that err":    {func(w *world) { w.policy(1, soloRules+"\nforbid contains {\"rule\": \"x\"} if 1 / 0 == 1\n") }, "POLICY_ERROR"},
		"10 MB of policy data": {func(w *world) {
			w.policy(1, soloRules+"\n# "+strings.Repeat("x", 10<<20))
		}, "too much policy data"},
		"too many cells": {func(w *world) {
			w.policy(1, soloRules)
			w.write("catalog.yaml", tooManyCells())
		}, "at most 250000"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.break_(w)
			n := w.start()
			if _, err := w.publish(n, "refused"); api.CodeOf(err) != api.PolicyUnavailable {
				t.Fatalf("got %v, want POLICY_UNAVAILABLE", err)
			}
			m := w.status(n)
			if m.GetLevel() != "failed" || !strings.Contains(strings.Join(m.GetWarnings(), "\n"), c.says) {
				t.Errorf("status: %s, %q", m.GetVerdict(), m.GetWarnings())
			}
			w.policy(1, soloRules)
			if err := n.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a, err := w.publish(n, "healed"); err != nil || !strings.HasPrefix(a.PolicyRevision, "1-") {
				t.Errorf("%+v %v", a, err)
			}
			if m := w.status(n); m.GetLevel() != "ok" {
				t.Errorf("status: %s, %q", m.GetVerdict(), m.GetWarnings())
			}
		})
	}
}

// tooManyCells is a catalogue whose domain is above the limit.
func tooManyCells() string {
	var classes, values []string
	for i := range 200 {
		classes, values = append(classes, fmt.Sprint("c", i)), append(values, fmt.Sprint("v", i))
	}
	list := strings.Join(values, ", ")
	return fmt.Sprintf(`
serial: 1
dimensions: {residency: [eu, global], class: [%s]}
principal_classes: [%s]
topics:
  orders: {allow: [{residency: [eu, global], class: [%s]}], packages: [orders]}
`, list, strings.Join(classes, ", "), list)
}

// The last good generation stays when a reload is refused, and the status says why.
// What no rule permits is refused under a policy that loads, too.
func TestR14b_ARefusedReloadKeepsTheLastGoodPolicy(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.start()
	for _, c := range []struct {
		rules string
		code  api.Code
	}{
		{"package residency.rules.orders\npermit contains", api.PolicyError},
		{soloRules + "\nrequire contains {\"rule\": \"x\", \"op\": \"mask\"} if to_number(input.topic) > 1\n", api.PolicyError},
	} {
		w.policy(2, c.rules)
		if err := n.Reload(t.Context()); api.CodeOf(err) != c.code {
			t.Errorf("got %v, want %s", err, c.code)
		}
		m := w.status(n)
		if len(m.GetPolicies()) == 0 || m.GetPolicies()[0].GetSerial() != 1 || !strings.Contains(strings.Join(m.GetWarnings(), "\n"), "the policy directory was refused") {
			t.Errorf("status: %v %q", m.GetPolicies(), m.GetWarnings())
		}
	}
	if a, err := w.publish(n, "still"); err != nil || !strings.HasPrefix(a.PolicyRevision, "1-") {
		t.Errorf("%+v %v", a, err)
	}
	w.policy(2, "package residency.rules.orders\n\npermit contains {\"rule\": \"x\", \"regions\": data.federation.regions} if input.tags.residency == \"global\"\n")
	if err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.publish(n, "refused"); api.CodeOf(err) != api.ResidencyDenied {
		t.Errorf("no rule permits it: %v", err)
	}
}

// A node that was made to follow its directory, as the demo's are, loads what is good.
func TestAFollowedDirectoryIsLoadedUnasked(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.start(func(s *node.Seams) { s.FollowPolicies = true })
	w.policy(2, "package residency.rules.orders\n\nnonsense") // a bad one changes nothing
	if err := lab.Poll(t.Context(), 10*time.Second, func() error {
		if len(w.status(n).GetWarnings()) == 0 {
			return fmt.Errorf("no warning")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if a, err := w.publish(n, "one"); err != nil || !strings.HasPrefix(a.PolicyRevision, "1-") {
		t.Errorf("%+v %v", a, err)
	}
	w.policy(3, soloRules)
	tries := 0
	if err := lab.Poll(t.Context(), 10*time.Second, func() error {
		tries++ // a new record each time: one that is sent again keeps its revision
		if a, err := w.publish(n, fmt.Sprint("again-", tries)); err != nil || !strings.HasPrefix(a.PolicyRevision, "3-") {
			return fmt.Errorf("revision %s, %v", a.PolicyRevision, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A changed directory is reported and not activated.
func TestAChangedDirectoryIsACandidateOnly(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.start()
	if c := w.status(n).GetCandidate(); c != "" {
		t.Fatalf("candidate %q of a directory that is loaded", c)
	}
	w.policy(2, soloRules)
	candidate := func() string { return w.status(n).GetCandidate() }
	if err := lab.Poll(t.Context(), 10*time.Second, func() error {
		if candidate() == "" {
			return fmt.Errorf("no candidate")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if a, err := w.publish(n, "one"); err != nil || !strings.HasPrefix(a.PolicyRevision, "1-") {
		t.Errorf("%+v %v", a, err)
	}
	if err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, err := w.publish(n, "two"); err != nil || !strings.HasPrefix(a.PolicyRevision, "2-") || candidate() != "" {
		t.Errorf("%+v %v, candidate %q", a, err, candidate())
	}
}

// Reloads from several sides run one after the other, and publishing goes on.
func TestReloadsFromSeveralSides(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.start()
	desk := dial(t, n.Admin())
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			if err := n.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := desk.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := w.publish(n, fmt.Sprint("id-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// A start that fails half-way leaves no port, goroutine or lock behind: the next one
// works on the same disk.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, change := range map[string]func(*node.Listen){
		"link":    func(l *node.Listen) { l.Link = taken.Addr().String() },
		"metrics": func(l *node.Listen) { l.Metrics = taken.Addr().String() },
		"admin":   func(l *node.Listen) { l.Admin = taken.Addr().String() },
		"door":    func(l *node.Listen) { l.Door = taken.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy(1, soloRules)
			good := w.config.Listen
			change(&w.config.Listen)
			opened := &listeners{}
			n := w.make(func(s *node.Seams) { s.Listen = opened.listen })
			if err := n.Start(t.Context()); api.CodeOf(err) != api.ConfigInvalid || !strings.Contains(err.Error(), "listen."+name) {
				t.Fatalf("got %v", err)
			}
			opened.wantFree(t)
			w.config.Listen = good
			if _, err := w.publish(w.start(), "one"); err != nil {
				t.Error(err)
			}
		})
	}
}

// listeners notes what a node opened.
type listeners struct{ addresses []string }

func (l *listeners) listen(ctx context.Context, network, address string) (net.Listener, error) {
	opened, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err == nil {
		l.addresses = append(l.addresses, opened.Addr().String())
	}
	return opened, err
}

func (l *listeners) wantFree(t *testing.T) {
	t.Helper()
	for _, address := range l.addresses {
		again, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("still open: %v", err)
			continue
		}
		_ = again.Close()
	}
}

// A new policy is in force although its activation did not wait for the last
// hand-over under the older one: the status must not call it refused.
func TestAnActivationThatDidNotWaitIsNoProblem(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	var hold atomic.Bool
	held, release := make(chan struct{}, 1), make(chan struct{})
	n := w.start(func(s *node.Seams) {
		s.Pace = 1 // the record may be held for five seconds
		s.Hooks.Fabric.Sync = func(f *os.File) error {
			if hold.Load() {
				select {
				case held <- struct{}{}:
				default:
				}
				<-release
			}
			return fabric.Syncfs(f)
		}
	})
	hold.Store(true)
	told := make(chan error, 1)
	go func() {
		_, err := w.publish(n, "held")
		told <- err
	}()
	<-held
	w.policy(2, soloRules)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reloaded := make(chan error, 1)
	go func() { reloaded <- n.Reload(ctx) }()
	serial := func() int64 { return w.status(n).GetPolicies()[0].GetSerial() }
	if err := lab.Poll(t.Context(), 5*time.Second, func() error {
		if serial() != 2 {
			return errors.New("not flipped")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-reloaded; api.CodeOf(err) != api.NotReady {
		t.Errorf("got %v, want NOT_READY", err)
	}
	if m := w.status(n); m.GetLevel() != "ok" || len(m.GetWarnings()) != 0 {
		t.Errorf("serial 2 is in force, and the status says %s, %q", m.GetVerdict(), m.GetWarnings())
	}
	close(release)
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// R14b: no setting of the environment turns records in transit into log lines.
func TestR14b_NoNodeUnderFrameLogging(t *testing.T) {
	t.Setenv("GODEBUG", "madvdontneed=1,http2debug=2")
	w := newWorld(t)
	_, err := node.New(w.config, w.f, node.Seams{Identity: w.identity, Dev: true, Logger: slog.New(slog.DiscardHandler)})
	if api.CodeOf(err) != api.ConfigInvalid {
		t.Errorf("got %v", err)
	}
}

// A producer that never reads its outcomes holds the door until its time is up. The
// store still closes cleanly: the writer's term is the old one after the next start.
func TestRA1_AClientThatHangsDoesNotMakeTheStoreUnclean(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	n := w.make()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := w.publish(n, "before")
	if err != nil {
		t.Fatal(err)
	}
	hang(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("closed with %v, out of time %v", err, ctx.Err())
	}
	after, err := w.publish(w.start(), "after")
	if err != nil || after.WriterTerm != before.WriterTerm || after.Sequence != before.Sequence+1 {
		t.Errorf("before %+v\nafter %+v %v", before, after, err)
	}
}

// hang publishes more than its window takes outcomes for, and reads none of them.
func hang(t *testing.T, n *node.Node) {
	t.Helper()
	conn, err := grpc.NewClient(n.Door(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := pb.NewPublisherServiceClient(conn).PublishStream(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.PublishStreamRequest{}
	for i := range first.GetCredit().GetRecords() { // each is refused: it names no topic
		m.Records = append(m.Records, &pb.NumberedRecord{Number: i + 1, Record: &pb.Record{Id: fmt.Sprint(i)}})
	}
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`domicile_publish_total{code="BAD_NAME",home="",topic=""} %d`, len(m.Records))
	if err := lab.Poll(t.Context(), 10*time.Second, func() error { return onPage(n, want) }); err != nil {
		t.Fatal(err)
	}
}

func onPage(n *node.Node, line string) error {
	response, err := http.Get("http://" + n.Metrics() + "/metrics")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(page), line+"\n") {
		err = errors.New("no line " + line)
	}
	return err
}
