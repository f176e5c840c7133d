package link_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// journal is a log that a test can search.
type journal struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.String()
}

func (j *journal) into(r *region) { r.config.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// remake replaces a region that was not started yet.
func (l *lab) remake(name string, change func(*region)) *region {
	l.t.Helper()
	closeNow(l.regions[name])
	eventually(l.t, 5*time.Second, func() string { return l.relisten(name) })
	return l.prepare(name, change)
}

func refusedWith(code api.Code, says ...string) func(regions.LinkStatus) bool {
	return func(s regions.LinkStatus) bool {
		for _, text := range says {
			if !strings.Contains(s.Reason, text) {
				return false
			}
		}
		return !s.Up && s.Code == code
	}
}

func TestLinkRefusesWireVersionsThatDoNotOverlap(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.regions["us-east"].setHello(func(h *regions.Hello) { h.WireVersion, h.OldestWire = 7, 5 })
	l.start("eu-west")
	l.start("us-east")
	for a, b := range map[string]string{"eu-west": "us-east", "us-east": "eu-west"} {
		l.await(a, b, "refused for the versions", refusedWith(api.VersionMismatch, "speaks 5 to 7", "speaks 1 to 2"))
	}
}

func TestLinkRefusesAnotherFederation(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.regions["us-east"].setHello(func(h *regions.Hello) { h.Federation = "shop2" })
	l.start("eu-west")
	l.start("us-east")
	for a, b := range map[string]string{"eu-west": "us-east", "us-east": "eu-west"} {
		l.await(a, b, "refused for the federation", refusedWith(api.ManifestMismatch, "shop2"))
	}
}

// Two fabrics under one name: the one that is connected stays, the newcomer gets no
// traffic, and both ends of the attempt say why.
func TestB42_SecondFabricOfOneNameIsRefused(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	var seen journal
	real := l.regions["eu-west"]
	l.listen["eu-west"] = must(net.Listen("tcp", "127.0.0.1:0"))
	impostor := l.prepare("eu-west", func(r *region) {
		r.hello.FabricID = "fabric-of-another"
		seen.into(r)
	})
	l.start("eu-west")
	l.await("eu-west", "us-east", "refused", refusedWith(api.PermissionDenied, "fabric-of-another"))
	never(t, 4*beat, "the newcomer got through", func() bool {
		return impostor.link("us-east").Up || !real.link("us-east").Up || l.regions["us-east"].link("eu-west").Hello.FabricID != "fabric-eu-west"
	})
	if s := l.regions["us-east"].link("eu-west"); !s.Up {
		t.Errorf("the region that was there first lost its link: %+v", s)
	}
	if !strings.Contains(seen.text(), "two fabrics carry one name") {
		t.Errorf("the newcomer's log does not say why:\n%s", seen.text())
	}
}

func TestB42_CopiedDataFolderIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east", "ap-south")
	l.regions["ap-south"].setHello(func(h *regions.Hello) { h.FabricID = "fabric-eu-west" })
	l.start("eu-west")
	l.start("us-east")
	l.await("us-east", "eu-west", "up", isUp)
	l.start("ap-south")
	l.await("ap-south", "eu-west", "refused by its double", refusedWith(api.PermissionDenied, "copied"))
	l.await("ap-south", "us-east", "refused by who knows its double", refusedWith(api.PermissionDenied, "copied"))
}

func TestHelloChangeReachesThePeer(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	l.regions["eu-west"].setHello(func(h *regions.Hello) {
		h.PolicySerial, h.PolicyRevision, h.ManifestDigest = 12, "12-feed", "m2"
		h.TopicDigests = map[string]string{"orders": "d1"}
		h.TopicFields = map[string]map[string]string{"orders": {"writes": "local"}}
	})
	l.regions["eu-west"].HelloChanged()
	l.await("us-east", "eu-west", "told", func(s regions.LinkStatus) bool {
		h := s.Hello
		return s.Up && h.PolicySerial == 12 && h.PolicyRevision == "12-feed" && h.ManifestDigest == "m2" &&
			h.TopicDigests["orders"] == "d1" && h.TopicFields["orders"]["writes"] == "local" && !h.CertificateEnds.IsZero()
	})
	eventually(t, 5*time.Second, func() string {
		l.regions["us-east"].mu.Lock()
		defer l.regions["us-east"].mu.Unlock()
		last := l.regions["us-east"].statuses[len(l.regions["us-east"].statuses)-1]
		if last.Hello == nil || last.Hello.PolicySerial != 12 {
			return "the node was not told"
		}
		return ""
	})
}

// A hello that tells of another log only is news too: a region without a copy of it learns
// from it where the log is.
func TestR14g_HelloOfANewLogReachesThePeer(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	moved := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	l.regions["eu-west"].setHello(func(h *regions.Hello) { h.Incarnations = map[api.LogID]string{moved: "abcd"} })
	l.regions["eu-west"].HelloChanged()
	l.await("us-east", "eu-west", "told", func(s regions.LinkStatus) bool {
		return s.Up && s.Hello.Incarnations[moved] == "abcd"
	})
}

// knock dials a link port with a certificate and says what came of it.
func knock(t *testing.T, address string, cfg *tls.Config) error {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	conn := tls.Client(c, cfg)
	if err := conn.Handshake(); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 a refusal comes after the handshake
	return err
}

func TestLinkPortRefusesEveryOtherCertificate(t *testing.T) {
	t.Parallel()
	foreign := must(identity.NewCA("shop", time.Now(), time.Hour))
	otherFederation := must(identity.NewCA("bank", time.Now(), time.Hour))
	for name, c := range map[string]struct {
		caller func(l *lab) *identity.Identity
		server string
		says   string
	}{
		"a client's":     {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Client, "us-east", time.Hour) }, "control.us-east", "a certificate of kind client is not taken here"},
		"an operator's":  {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Operator, "us-east", time.Hour) }, "control.us-east", "a certificate of kind operator is not taken here"},
		"a foreign CA's": {func(l *lab) *identity.Identity { return l.identity(foreign, identity.Region, "us-east", time.Hour) }, "control.us-east", "not signed by an authority"},
		"another fleet's": {func(l *lab) *identity.Identity {
			return l.identity(otherFederation, identity.Region, "us-east", time.Hour)
		}, "control.us-east", "not signed by an authority"},
		"an expired one":   {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Region, "us-east", -time.Second) }, "control.us-east", "certificate expired"},
		"another region's": {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Region, "ap-south", time.Hour) }, "data.us-east", "expected region us-east"},
		"a stranger's":     {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Region, "sa-east", time.Hour) }, "data.sa-east", "UNKNOWN_REGION"},
		"no lane named":    {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Region, "us-east", time.Hour) }, "eu-west", "for links between regions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 1, "eu-west", "us-east", "ap-south")
			var seen journal
			l.remake("eu-west", seen.into)
			l.start("eu-west")
			cfg := c.caller(l).ClientTLS(identity.Region, "eu-west")
			cfg.ServerName = c.server + ".link.domicile"
			cfg.VerifyConnection = nil // the caller takes any server: it is the server that must refuse
			if err := knock(t, l.addr["eu-west"], cfg); err == nil || !strings.Contains(err.Error(), "tls:") {
				t.Errorf("the caller was told %v", err)
			}
			eventually(t, 5*time.Second, func() string {
				if !strings.Contains(seen.text(), c.says) {
					return fmt.Sprintf("the log does not say %q:\n%s", c.says, seen.text())
				}
				return ""
			})
		})
	}
}

func TestPlainTCPOnTheLinkPortIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	var seen journal
	l.remake("eu-west", seen.into)
	l.start("eu-west")
	c := must(net.Dial("tcp", l.addr["eu-west"]))
	defer c.Close()
	fmt.Fprint(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 64)
	for {
		if n, err := c.Read(b); err != nil {
			if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
				t.Fatal("the connection stays open")
			}
			break
		} else if strings.Contains(string(b[:n]), "SETTINGS") {
			t.Fatal("it was answered in plain text")
		}
	}
	eventually(t, 5*time.Second, func() string {
		if !strings.Contains(seen.text(), "does not speak TLS") {
			return "the log does not say why:\n" + seen.text()
		}
		return ""
	})
}

// Something else listens where the peer should be.
func TestLinkSaysWhatItMetInsteadOfThePeer(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	closeNow(l.regions["eu-west"])
	eventually(t, 5*time.Second, func() string { return l.relisten("eu-west") })
	echo := l.listen["eu-west"]
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail.example\r\n")
			c.Close()
		}
	})
	l.start("us-east")
	l.await("us-east", "eu-west", "met by a mail server", refusedWith(api.PermissionDenied, "does not speak TLS"))
	echo.Close()
	wg.Wait()
	l.await("us-east", "eu-west", "refused by nobody at home", func(s regions.LinkStatus) bool { return strings.Contains(s.Reason, "refused") && s.Code == "" })
}

// B55: open connections do not outlive the certificate; new files are taken without
// a restart.
func TestB55_CertificateExpiresOnALivingLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	dir := t.TempDir()
	files := identity.Files{Cert: dir + "/cert.pem", Key: dir + "/key.pem", CA: dir + "/ca.pem"}
	write := func(validity time.Duration) {
		cert, key, err := l.ca.Issue(identity.Region, "us-east", time.Now(), validity)
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{files.Cert: cert, files.CA: l.ca.CertPEM()} {
			if err := identity.SavePublic(path, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := identity.SaveKey(files.Key, key); err != nil {
			t.Fatal(err)
		}
	}
	write(8 * time.Second)
	l.remake("us-east", func(r *region) { r.config.Identity = must(identity.Load(files, regions.NewSteadyClock())) })
	l.start("eu-west")
	l.start("us-east")
	l.await("eu-west", "us-east", "up", isUp)
	l.await("eu-west", "us-east", "down for the certificate", func(s regions.LinkStatus) bool { return !s.Up && strings.Contains(s.Reason, "expired") })
	write(time.Hour)
	l.await("eu-west", "us-east", "up with the new certificate", isUp)
	l.await("us-east", "eu-west", "up with the new certificate", isUp)
}

func TestLinkConfigIsChecked(t *testing.T) {
	l := newLab(t, 1, "eu-west", "us-east")
	good := l.regions["eu-west"].config
	for field, change := range map[string]func(*link.Config){
		"certificate": func(c *link.Config) { c.Self = "us-east"; c.Peers = nil },
		"peers":       func(c *link.Config) { c.Peers = map[string][]string{"eu-west": {"x:1"}} },
		"Clock":       func(c *link.Config) { c.Clock = nil },
		"identity":    func(c *link.Config) { c.Identity = l.identity(l.ca, identity.Client, "eu-west", time.Hour) },
	} {
		if field == "identity" {
			field = "certificate"
		}
		c := good
		change(&c)
		_, err := link.New(c)
		if e, _ := err.(*api.Error); e == nil || e.Code != api.ConfigInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, ok := l.regions["eu-west"].Status("nowhere"); ok {
		t.Error("a status of a link that does not exist")
	}
	l.regions["eu-west"].Close(context.Background())
	l.regions["eu-west"].Close(context.Background())
}

// Watermarks come every beat, also when idle, all logs first; what the node hands
// over arrives whole and in order.
func TestR14d_WatermarksComeEveryBeatAndWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace, "eu-west", "us-east")
	var mu sync.Mutex
	round := 0
	l.regions["eu-west"].marks = func(peer string, all bool) regions.Watermarks {
		mu.Lock()
		defer mu.Unlock()
		w := regions.Watermarks{Issued: time.Now(), Instant: time.Now(), All: all}
		if all {
			round = 0
		}
		round++
		n := 0
		if all {
			n = 1700
		}
		for i := range n {
			w.Logs = append(w.Logs, regions.LogMark{Log: api.LogID{Tenant: "default", Topic: fmt.Sprint("t", i), Slot: "eu-west"}, Head: uint64(round), Digest: "d"})
		}
		w.Refused = round // a mark of the round
		return w
	}
	l.start("eu-west")
	l.start("us-east")
	began := time.Now()
	us := l.regions["us-east"]
	eventually(t, 10*time.Second, func() string {
		us.mu.Lock()
		defer us.mu.Unlock()
		if len(us.rounds) < 6 {
			return fmt.Sprintf("%d rounds", len(us.rounds))
		}
		return ""
	})
	if took := time.Since(began); took < 4*beat || took > 12*beat {
		t.Errorf("six rounds in %s", took)
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	for i, w := range us.rounds[:6] {
		if w.All != (i == 0) || w.Refused != i+1 || (len(w.Logs) == 1700) != (i == 0) {
			t.Errorf("round %d: all %t, %d logs, number %d", i, w.All, len(w.Logs), w.Refused)
		}
	}
}
