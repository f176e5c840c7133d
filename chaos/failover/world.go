package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/chaos/ports"
	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/link"
	"domicile/regions/placement"
)

const manifest = `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  us-east: {link: "127.0.0.1:7402"}
  ap-south: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west], us: [us-east], in: [ap-south]}
authority: {voters: [eu-west, us-east, ap-south]}
topics:
  catalog.updates:
    writes: home
    home: eu-west
    mirror: [all]
    failover: {mode: manual, targets: [us-east, ap-south], rpo: 5s, rto: 1m, approvals: 1}
    on_home_loss: {producers: refuse, consumers: {mode: read_copy, max_staleness: 1h}, owner: o, text: t}
`

// world is three regions on this machine, in this process or each in its own.
type world struct {
	root      string
	serve     []string
	apart     []string // regions that are processes of their own
	people    map[string]person
	places    map[string]*place
	nodes     map[string]*node.Node
	processes map[string]*process // that were started and not killed
}

// process is a region that runs on its own.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// The people of the story.
const (
	producer = "producer" // publishes and reads
	asks     = "ada"      // begins moves
	approves = "eve"      // consents to them
	attests  = "zoe"      // and where it takes two
)

// person is somebody's certificate and key.
type person struct{ cert, key, ca []byte }

// place is where a region lives.
type place struct {
	dir    string
	listen node.Listen
}

func (p *place) config() string { return filepath.Join(p.dir, "node.yaml") }

// found makes the regions' files. Those that are named get processes of their own.
func found(root string, serve []string, apart ...string) (*world, error) {
	w := &world{root: root, serve: serve, apart: apart, people: map[string]person{}, places: map[string]*place{}, nodes: map[string]*node.Node{}, processes: map[string]*process{}}
	policies := filepath.Join(root, "policies")
	if err := deploy.WritePolicies(policies); err != nil {
		return nil, err
	}
	f, err := lab.Found([]byte(manifest), 24*time.Hour, w.settle)
	if err != nil {
		return nil, err
	}
	for name, kind := range map[string]identity.Kind{producer: identity.Client, asks: identity.Operator, approves: identity.Operator, attests: identity.Operator} {
		cert, key, err := f.Authority.Issue(kind, name, time.Now(), 24*time.Hour)
		if err != nil {
			return nil, err
		}
		w.people[name] = person{cert, key, f.Authority.CertPEM()}
	}
	name := rand.Text()
	for region, p := range w.places {
		if err := os.WriteFile(filepath.Join(p.dir, "federation.yaml"), f.Manifest, 0o600); err != nil {
			return nil, err
		}
		err := council.Create(council.Birth{Dir: node.CouncilDir(filepath.Join(p.dir, "data")), Region: region, Authority: name,
			Voters: f.Federation.Voters(), Actor: "demo", Reason: "the manifest names them"})
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// settle gives a region its folder, addresses, certificate and node.yaml.
func (w *world) settle(region string, _ int, authority *identity.Authority) (string, error) {
	p := &place{dir: filepath.Join(w.root, region)}
	w.places[region] = p
	if err := os.MkdirAll(filepath.Join(p.dir, "data"), 0o700); err != nil {
		return "", err
	}
	for _, address := range []*string{&p.listen.Door, &p.listen.Admin, &p.listen.Metrics, &p.listen.Link} {
		l, err := ports.Listen()
		if err != nil {
			return "", err
		}
		defer l.Close() // held until all are chosen
		*address = l.Addr().String()
	}
	cert, key, err := authority.Issue(identity.Region, region, time.Now(), 24*time.Hour, "127.0.0.1")
	if err != nil {
		return "", err
	}
	err = errors.Join(identity.SavePublic(filepath.Join(p.dir, "node.pem"), cert), identity.SaveKey(filepath.Join(p.dir, "node.key"), key),
		identity.SavePublic(filepath.Join(p.dir, "ca.pem"), authority.CertPEM()))
	text := fmt.Sprintf(`region: %s
federation: federation.yaml
policies: ../policies
data: data
max_store: 4GiB
listen: {door: %q, admin: %q, metrics: %q, link: %q}
tls: {ca: ca.pem, certificate: node.pem, key: node.key}
principals:
  - {match: %s, class: app, place: %s}
  - {match: "*", class: operator, place: none}
operators:
  - {match: "*", roles: [operator, incident]}
`, region, p.listen.Door, p.listen.Admin, p.listen.Metrics, p.listen.Link, producer, region)
	return fmt.Sprintf("{link: %q}", p.listen.Link), errors.Join(err, os.WriteFile(p.config(), []byte(text), 0o600))
}

// start starts a region, and does not wait for one that is a process of its own.
func (w *world) start(ctx context.Context, region string) error {
	p := w.places[region]
	if slices.Contains(w.apart, region) {
		return w.launch(region)
	}
	c, err := node.LoadConfig(p.config())
	if err != nil {
		return err
	}
	f, err := regions.LoadManifest(c.Federation)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(p.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := node.New(c, f, node.Seams{Version: "demo", Logger: slog.New(slog.NewJSONHandler(out, nil))})
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		return errors.Join(err, out.Close())
	}
	w.nodes[region] = n
	return nil
}

func (w *world) launch(region string) error {
	p := w.places[region]
	out, err := os.OpenFile(filepath.Join(p.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(w.serve[0], append(append([]string(nil), w.serve[1:]...), p.config())...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive the story
	if err := cmd.Start(); err != nil {
		return err
	}
	started := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(started.ended) }()
	w.processes[region] = started
	return nil
}

// kill ends a region that is a process as SIGKILL does, and waits until it is gone.
func (w *world) kill(region string) error {
	p := w.processes[region]
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	delete(w.processes, region)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (w *world) close(ctx context.Context) (err error) {
	for _, region := range w.apart {
		err = errors.Join(err, w.kill(region))
	}
	for _, n := range w.nodes {
		err = errors.Join(err, n.Close(ctx))
	}
	return err
}

// door is a region's as the producer sees it, desk as the operator does.
func (w *world) door(region string) (*client.Client, error) {
	return w.calls(producer, region, w.places[region].listen.Door)
}

func (w *world) desk(region string) (*client.Client, error) {
	return w.calls(asks, region, w.places[region].listen.Admin)
}

func (w *world) calls(name, region, address string) (*client.Client, error) {
	p := w.people[name]
	who, err := identity.New(p.cert, p.key, p.ca, regions.NewSteadyClock())
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Addresses: []string{address}, TLS: who.ClientTLS(identity.Region, region)})
}

// move has a move begun at a region as people do it: a plan is looked at, another person
// consents to it, and exactly that is begun. said is when it was told to begin.
func (w *world) move(ctx context.Context, by string, q *pb.MoveRequest, reason string) (said time.Time, err error) {
	c, err := w.desk(by)
	if err != nil {
		return said, err
	}
	defer c.Close()
	plan, err := c.PlanMove(ctx, q)
	switch {
	case err != nil:
		return said, err
	case plan.GetId() == "":
		return said, fmt.Errorf("the move is refused: %v", plan.GetChecks())
	}
	role := approval.Operator
	if q.GetKind() == string(placement.Forced) {
		role = approval.Incident
	}
	start := &pb.StartMoveRequest{Move: q, Plan: plan.GetId(), Reason: reason}
	for _, name := range []string{approves, attests}[:plan.GetApprovals()] {
		p := w.people[name]
		signed, err := approval.Sign(approval.Statement{Federation: "example", Hash: plan.GetId(), Role: role, Expires: time.Now().Add(time.Hour)}, p.cert, p.key)
		if err != nil {
			return said, err
		}
		text, err := signed.Encode()
		if err != nil {
			return said, err
		}
		start.Approvals = append(start.Approvals, text)
	}
	said = time.Now()
	_, err = c.StartMove(ctx, start)
	return said, err
}

// cut takes planes of the links with the west away at the other two, and answers how to
// give them back.
func (w *world) cut(planes []link.Plane, dirs ...regions.Direction) (heal func(), err error) {
	var ids = map[string]uint64{}
	heal = func() {
		for region, id := range ids {
			w.nodes[region].Gates().Heal(id)
		}
	}
	for region, n := range w.nodes {
		if ids[region], err = n.Gates().Cut(west, planes, dirs, link.BlackHole, time.Hour); err != nil {
			return heal, err
		}
	}
	return heal, nil
}

// placed is where the log is, as a region of this process knows it.
func (w *world) placed(region string) placement.Log {
	l, _ := w.nodes[region].Placer().Log(log())
	return l
}

// reachable waits until something listens at an address.
func reachable(ctx context.Context, address string) error {
	return poll(ctx, func() error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}
