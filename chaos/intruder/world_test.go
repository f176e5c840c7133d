package intruder_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"domicile/api/client"
	"domicile/chaos/lab"
	"domicile/chaos/ports"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/council"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/identity"
	"domicile/regions/link"
	"domicile/regions/strict"
)

// The regions. The liar lies outside of the boundary of the two honest ones.
const (
	west    = "eu-west"    // home of the log that may move
	central = "eu-central" // where it may move to
	traitor = "us-east"
)

// pace is that of all regions, nodeKey names a process's node.yaml.
const (
	pace     = regions.Pace(0.25)
	nodeKey  = "DOMICILE_INTRUDER_NODE"
	validity = 24 * time.Hour
	cutFor   = 2 * time.Second // a cut between the honest regions
)

func honest() []string { return []string{west, central} }

func other(region string) string {
	if region == west {
		return central
	}
	return west
}

func TestMain(m *testing.M) {
	if path := os.Getenv(nodeKey); path != "" {
		if err := serve(path); err != nil {
			slog.Error("the node ended", "err", err)
			os.Exit(1)
		}
		return
	}
	fabrictest.VerifyTestMain(m)
}

// serve is an honest region's process. SIGUSR1 cuts it off from the other honest one for a
// while.
func serve(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := node.LoadConfig(path)
	if err != nil {
		return err
	}
	f, err := regions.LoadManifest(c.Federation)
	if err != nil {
		return err
	}
	n, err := node.New(c, f, node.Seams{Dev: true, Pace: pace, Logger: c.Log.Logger(), Version: "test"})
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		return err
	}
	cuts := make(chan os.Signal, 1)
	signal.Notify(cuts, syscall.SIGUSR1)
	for ctx.Err() == nil {
		select {
		case <-cuts:
			if _, err := n.Gates().Cut(other(c.Region), link.Planes(), []regions.Direction{regions.In, regions.Out}, link.BlackHole, cutFor); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return n.Close(closing)
}

// manifest is the federation. Each lie about a log of the liar's own has one to itself.
func manifest() []byte {
	var text strings.Builder
	text.WriteString(`version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders: {writes: local, retention: {max_bytes: 64MiB}, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  health: {writes: local, retention: {max_bytes: 64MiB}, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  catalog: {writes: home, home: eu-west, retention: {max_bytes: 64MiB}, mirror: [all], failover: {mode: manual, targets: [eu-central], rpo: 5s, rto: 2m},
    on_home_loss: {producers: refuse, consumers: {mode: read_copy, max_staleness: 1h}, owner: o, text: t}}
`)
	for i := range ownLogs {
		fmt.Fprintf(&text, "  %s: {writes: home, home: us-east, retention: {max_bytes: 64MiB}, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}\n", ownTopic(i))
	}
	return []byte(text.String())
}

// ownLogs is how many logs the liar has, but for its part of the local topics.
const ownLogs = 24

func ownTopic(i int) string { return fmt.Sprintf("own-%02d", i%ownLogs) }

const rules = `package residency.rules.%s

permit contains {"rule": "boundary", "text": "in its boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point != "transit"

permit contains {"rule": "global", "text": "everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

permit contains {"rule": "transit", "text": "through memory", "regions": data.federation.regions} if { input.point == "transit"; input.tags.class == "order" }

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`

func writePolicies(dir string) error {
	var text strings.Builder
	text.WriteString(`serial: 1
dimensions: {residency: [eu, us, global], class: [order, catalog, health]}
principal_classes: [app, operator]
topics:
  orders: {allow: [{residency: [eu, us, global], class: [order]}], packages: [all]}
  health: {allow: [{residency: [eu, us], class: [health]}], packages: [all]}
  catalog: {allow: [{residency: [global], class: [catalog]}], packages: [all]}
`)
	for i := range ownLogs {
		fmt.Fprintf(&text, "  %s: {allow: [{residency: [global], class: [order]}], packages: [all]}\n", ownTopic(i))
	}
	return errors.Join(os.MkdirAll(filepath.Join(dir, "rules"), 0o700), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(text.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "all.rego"), fmt.Appendf(nil, rules, "all"), 0o600))
}

// world is a federation of two honest regions and the liar.
type world struct {
	federation *regions.Federation
	regions    map[string]*region // the honest ones
	liar       *liar
	trade      *trade
	web        *http.Client
	placed     string          // what the honest regions say of the log that may move, at the beginning
	findings   []string        // since take
	shown      map[string]bool // the liar's texts that were found already
	loss       bool            // what was found is for good: the next lie needs another world
}

// open founds a federation, starts it, and waits until all links are up. It ends with the test
// that owns it.
func open(t, owner *testing.T) *world {
	t.Helper()
	w := &world{regions: map[string]*region{}, shown: map[string]bool{}, web: &http.Client{Timeout: 5 * time.Second}}
	root := owner.TempDir()
	owner.Cleanup(func() { w.close(owner) })
	f, err := lab.Found(manifest(), validity, func(name string, _ int, a *identity.Authority) (string, error) { return w.settle(root, name, a) })
	if err == nil {
		w.federation, w.liar.world = f.Federation, w
		err = errors.Join(writePolicies(filepath.Join(root, "policies")), os.WriteFile(filepath.Join(root, "federation.yaml"), f.Manifest, 0o600), w.founding())
	}
	for _, r := range w.regions {
		if err == nil {
			err = r.start()
		}
	}
	if err == nil {
		err = w.liar.up()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, "the links come up", func() error { return w.whole(t.Context(), time.Time{}) })
	for _, name := range honest() {
		w.must(t, "the liar is believed", func() error { return w.liar.linked(name) })
	}
	w.must(t, "the log is placed", func() (err error) { w.placed, err = w.placements(t.Context()); return err })
	w.trade = begin(t, w)
	return w
}

func (w *world) must(t *testing.T, what string, ask func() error) {
	t.Helper()
	if err := lab.Poll(t.Context(), time.Minute, ask); err != nil {
		t.Fatalf("%s: %v%s", what, err, w.logs())
	}
}

func (w *world) close(t *testing.T) {
	if w.trade != nil {
		w.trade.end()
	}
	if w.liar != nil {
		w.liar.down()
	}
	for _, r := range w.regions {
		r.kill()
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
	w.web.CloseIdleConnections()
}

// founding makes the voters of the honest regions. The liar's has a vote and no voter.
func (w *world) founding() error {
	name := rand.Text()
	var errs []error
	for _, r := range w.regions {
		errs = append(errs, council.Create(council.Birth{Dir: node.CouncilDir(r.data()), Region: r.name, Authority: name,
			Voters: w.federation.Voters(), Actor: "test", Reason: "the manifest names them"}))
	}
	return errors.Join(errs...)
}

// settle gives a region its address and certificate, and an honest one its folder.
func (w *world) settle(root, name string, a *identity.Authority) (string, error) {
	cert, key, err := a.Issue(identity.Region, name, time.Now(), validity, "127.0.0.1")
	if err != nil {
		return "", err
	}
	if name == traitor {
		w.liar = &liar{}
		if w.liar.listener, err = ports.Listen(); err != nil {
			return "", err
		}
		w.liar.address = w.liar.listener.Addr().String()
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return "", err
		}
		w.liar.certificate, w.liar.key = pair.Certificate[0], pair.PrivateKey.(crypto.Signer)
		w.liar.identity, err = identity.New(cert, key, a.CertPEM(), regions.NewSteadyClock())
		return fmt.Sprintf("{link: %q}", w.liar.address), err
	}
	r := &region{name: name, dir: filepath.Join(root, name)}
	w.regions[name] = r
	c := node.NewConfig()
	c.Region, c.Federation, c.Policies, c.Data = name, filepath.Join(root, "federation.yaml"), filepath.Join(root, "policies"), r.data()
	for _, address := range []*string{&c.Listen.Door, &c.Listen.Admin, &c.Listen.Metrics, &c.Listen.Link} {
		if *address, err = ports.Free(); err != nil {
			return "", err
		}
	}
	c.TLS = node.TLS{CA: filepath.Join(r.dir, "ca.pem"), Certificate: filepath.Join(r.dir, "node.pem"), Key: filepath.Join(r.dir, "node.key")}
	c.Operators = approval.Rules{{Match: "*", Roles: []string{approval.Operator, approval.Incident, approval.Compliance}}}
	c.Log = node.Log{Level: "info", JSON: true}
	r.listen = c.Listen
	yaml, err := strict.Encode(c)
	err = errors.Join(err, os.MkdirAll(r.data(), 0o700))
	for path, data := range map[string][]byte{c.TLS.CA: a.CertPEM(), c.TLS.Certificate: cert, c.TLS.Key: key, r.config(): yaml} {
		err = errors.Join(err, os.WriteFile(path, data, 0o600))
	}
	if err == nil {
		r.door, err = client.New(client.Config{Addresses: []string{r.listen.Door}, Attempts: 1})
	}
	if err == nil {
		r.desk, err = client.New(client.Config{Addresses: []string{r.listen.Admin}})
	}
	return fmt.Sprintf("{link: %q}", r.listen.Link), err
}

// region is an honest one: a process with a folder.
type region struct {
	name, dir  string
	listen     node.Listen
	door, desk *client.Client

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	down bool          // it is meant to be
}

func (r *region) config() string { return filepath.Join(r.dir, "node.yaml") }
func (r *region) data() string   { return filepath.Join(r.dir, "data") }
func (r *region) log() string    { return filepath.Join(r.dir, "node.log") }

func (r *region) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	log, err := os.OpenFile(r.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), nodeKey+"="+r.config())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive the test
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // how it ended is in its state
	r.cmd, r.done, r.down = cmd, done, false
	return nil
}

// ended is how the process ended by itself; "": it runs, or is meant to be down.
func (r *region) ended() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil || r.down {
		return ""
	}
	select {
	case <-r.done:
		return r.cmd.ProcessState.String()
	default:
		return ""
	}
}

func (r *region) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(s) // an error: it has ended
	}
}

func (r *region) kill() {
	r.mu.Lock()
	r.down = true
	r.mu.Unlock()
	r.signal(syscall.SIGKILL)
	if r.done != nil {
		<-r.done
	}
}

// stop asks the process to end, and says if it does not, or not well.
func (r *region) stop() error {
	r.mu.Lock()
	r.down = true
	r.mu.Unlock()
	r.signal(syscall.SIGTERM)
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-r.done:
	case <-late.C:
		r.kill()
		return fmt.Errorf("%s does not stop", r.name)
	}
	if s := r.cmd.ProcessState; !s.Success() {
		return fmt.Errorf("%s ends with %s", r.name, s)
	}
	return nil
}

func (r *region) close() error {
	var errs []error
	for _, c := range []**client.Client{&r.door, &r.desk} {
		if *c != nil {
			errs = append(errs, (*c).Close())
		}
		*c = nil
	}
	return errors.Join(errs...)
}

// metrics is the region's metrics page.
func (w *world) metrics(ctx context.Context, name string) ([]lab.Metric, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.regions[name].listen.Metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := w.web.Do(q)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return lab.ParseMetrics(io.LimitReader(response.Body, 16<<20))
}

// logs is how the logs of the honest regions end.
func (w *world) logs() string {
	var out strings.Builder
	for _, name := range honest() {
		text, _ := os.ReadFile(w.regions[name].log())
		var lines []string
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, `"level":"INFO"`) {
				lines = append(lines, fmt.Sprintf("%.400s", strings.TrimSpace(line)))
			}
		}
		fmt.Fprintf(&out, "\n%s:\n%s", name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	return out.String()
}

// listen takes an address that was given up a moment ago.
func listen(ctx context.Context, address string) (l net.Listener, err error) {
	err = lab.Poll(ctx, 10*time.Second, func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}
