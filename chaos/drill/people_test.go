package drill_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api/client"
	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/identity"
)

// people is a folder with the certificates of an operator and a producer.
type people struct{ Dir string }

func (p people) files(kind identity.Kind) identity.Files {
	under := func(name string) string { return filepath.Join(p.Dir, string(kind)+name) }
	return identity.Files{Cert: under(".pem"), Key: under(".key"), CA: under("-ca.pem")}
}

// certify puts a new certificate in the place of the one that is there, and answers when it
// ends.
func (p people) certify(t *testing.T, ca *identity.Authority, kind identity.Kind, validity time.Duration) time.Time {
	t.Helper()
	f := p.files(kind)
	cert, key, err := ca.Issue(kind, string(kind), time.Now(), validity)
	if err = errors.Join(err, identity.SavePublic(f.CA, ca.CertPEM()), identity.SaveKey(f.Key, key), identity.SavePublic(f.Cert, cert)); err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(f, regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	return id.Ends()
}

// dialer is as in client.Config.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// open makes a client of a region, and notes in n what it shows.
func (p people) open(n *drill.Node, kind identity.Kind, attempts int, dial dialer, addresses ...string) (*client.Client, error) {
	id, err := identity.Load(p.files(kind), regions.NewSteadyClock())
	if err != nil {
		return nil, err
	}
	n.Shown = append(n.Shown, id)
	return client.New(client.Config{Addresses: addresses, Attempts: attempts, TLS: id.ClientTLS(identity.Region, n.Region), Dial: dial})
}

// reach makes the clients of a region's node, or of all three.
func (p people) reach(n *drill.Node, dial dialer, doors ...string) (err error) {
	desks := []string{n.Address}
	if n.Admin, err = p.open(n, identity.Operator, 0, dial, n.Address); err != nil {
		return err
	}
	for _, o := range n.Others {
		desks = append(desks, o.Address)
		if o.Admin, err = p.open(o, identity.Operator, 0, dial, o.Address); err != nil {
			return err
		}
	}
	if len(n.Others) > 0 {
		n.Desk, err = p.open(n, identity.Operator, 0, dial, desks...)
	}
	if err == nil {
		n.Door, err = p.open(n, identity.Client, 1, dial, doors...)
	}
	return err
}

// hasty is an operator whose certificate is replaced in mid-cut by one that ends soon, as when
// a rotation goes wrong.
type hasty struct {
	people
	nodes map[string]*drill.Node

	mu    sync.Mutex
	lines []net.Conn
	said  []string
}

func (r *rig) hasty(t *testing.T) *hasty {
	h := &hasty{people: people{Dir: t.TempDir()}}
	h.certify(t, r.lab.Authority, identity.Client, 12*time.Hour)
	h.certify(t, r.lab.Authority, identity.Operator, 12*time.Hour)
	h.nodes = r.reach(t, h.people, func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lines = append(h.lines, c)
		}
		return c, err
	})
	return h
}

// drop ends every connection, so that the next ones show what lies in the files now.
func (h *hasty) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.lines {
		c.Close()
	}
	h.lines = nil
}

// heard reports whether a line with that text was said.
func (h *hasty) heard(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(strings.Join(h.said, "\n"), text)
}

// run runs a drill, and calls at when its links are cut.
func (h *hasty) run(t *testing.T, id string, p drill.Plan, at func()) (drill.Result, *report.Report) {
	t.Helper()
	c := drill.Config{ID: id, Plan: p, Dir: t.TempDir(), Nodes: h.nodes, Confirmed: true, Controller: "test", Clock: regions.NewSteadyClock(), Say: func(line string) {
		h.mu.Lock()
		h.said = append(h.said, line)
		h.mu.Unlock()
		if line == string(history.ProbePhase) {
			at()
		}
	}}
	result, err := drill.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	past, err := history.Open(filepath.Join(c.Dir, drill.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	return result, report.Judge(past)
}

// certificate: that of whoever runs the drill ends in the midst of the cut. The cut heals by
// its lease, and result and report say why and since when. A drill that would outlast it is
// refused.
func (r *rig) certificate(t *testing.T, p drill.Plan) {
	r.ready(t, p)
	h := r.hasty(t)
	p.Baseline, p.For, p.CatchUp = time.Second, 20*time.Second, 5*time.Second
	ends := h.certify(t, r.lab.Authority, identity.Operator, p.For+p.CatchUp)
	if _, err := drill.Try(t.Context(), &drill.Config{ID: "short", Plan: p, Confirmed: true, Nodes: h.nodes, Clock: regions.NewSteadyClock()}); err == nil ||
		!strings.Contains(err.Error(), `value="operator operator" (it ends at `+ends.UTC().Format(time.RFC3339)+", and the drill may last until ") {
		t.Errorf("with a certificate that ends before the drill: %v", err)
	}
	h.certify(t, r.lab.Authority, identity.Operator, time.Hour)
	result, judged := h.run(t, "ending", p, func() {
		ends = h.certify(t, r.lab.Authority, identity.Operator, 2*time.Second)
		h.drop()
	})
	why := "it ended " + ends.UTC().Format(time.RFC3339) + ": sign a new one"
	if result.Outcome != history.Uncontrolled || !strings.Contains(result.Why, why) || !h.heard("your certificate has ended") {
		t.Errorf("ended as %+v", result)
	}
	if judged.Verdict != report.Uncontrolled || !strings.Contains(judged.Line, why) || !judged.Cut.Lapsed {
		t.Errorf("the report: %s: %s", judged.Verdict, judged.Line)
	}
	r.clean(t, "ending", time.Minute)
	for name, n := range r.nodes {
		s, err := n.Admin.DrillStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if late := time.Unix(0, s.GetLast().GetAtUnixNano()).Sub(ends); s.GetLast().GetHow() != "lapsed" || late > 3*(p.Lease+time.Second) {
			t.Errorf("%s: %v, %s after the certificate", name, s.GetLast(), late)
		}
	}
}

// renewed: there is a new certificate in its place before the lease ends, and the drill goes
// on with it.
func (r *rig) renewed(t *testing.T, p drill.Plan) {
	r.ready(t, p)
	h := r.hasty(t)
	p.Baseline, p.For, p.Lease = time.Second, 20*time.Second, 15*time.Second
	put := make(chan error, 1)
	result, _ := h.run(t, "renewed", p, func() {
		h.certify(t, r.lab.Authority, identity.Operator, 2*time.Second)
		h.drop()
		go func() {
			put <- lab.Poll(t.Context(), time.Minute, func() error {
				if !h.heard("your certificate has ended") {
					return errors.New("no renewal was refused")
				}
				return nil
			})
			h.certify(t, r.lab.Authority, identity.Operator, time.Hour)
		}()
	})
	if err := <-put; err != nil || result.Outcome != history.Completed {
		t.Errorf("%+v %v", result, err)
	}
	r.clean(t, "renewed", time.Minute)
}
