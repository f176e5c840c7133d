package link_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// Every certificate that is not right keeps the link down, at both ends, with what is
// wrong in the status of the end that can see it, and carries no record.
func TestB55_WrongCertificateIsRefusedAtBothEnds(t *testing.T) {
	t.Parallel()
	foreign := must(identity.NewCA("shop", time.Now(), time.Hour))
	for name, c := range map[string]struct {
		identity func(l *lab) *identity.Identity
		says     string // at the other end, which dials it
	}{
		"of a foreign authority": {func(l *lab) *identity.Identity { return l.identity(foreign, identity.Region, "us-east", time.Hour) }, "not signed by an authority that is trusted here"},
		"expired":                {func(l *lab) *identity.Identity { return l.identity(l.ca, identity.Region, "us-east", -time.Second) }, "certificate expired"},
		"not valid yet": {func(l *lab) *identity.Identity {
			cert, key, err := l.ca.Issue(identity.Region, "us-east", time.Now().Add(20*time.Minute), 30*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return must(identity.New(cert, key, l.ca.CertPEM(), regions.NewSteadyClock()))
		}, "certificate not valid yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 1, "eu-west", "us-east")
			l.remake("us-east", func(r *region) { r.config.Identity = c.identity(l) })
			l.start("eu-west")
			l.start("us-east")
			l.await("eu-west", "us-east", "refused for the certificate", refusedWith(api.PermissionDenied, c.says))
			l.await("us-east", "eu-west", "refused for the certificate", func(s regions.LinkStatus) bool {
				return !s.Up && s.Code == api.PermissionDenied && strings.Contains(s.Reason, "certificate")
			})
			o := newOutcomes(t)
			for a, b := range map[string]string{"eu-west": "us-east", "us-east": "eu-west"} {
				l.regions[a].Forward(b, record(a, 1), o.done(a))
				if s := l.regions[a].link(b); s.Up || s.Hello != nil || s.OutProven || s.InProven {
					t.Errorf("%s: %+v", a, s)
				}
			}
			for id, r := range o.await(2) {
				if api.CodeOf(r.err) != api.HomeUnreachable {
					t.Errorf("a record of %s left: %v", id, r.err)
				}
			}
		})
	}
}

// B17: another region answers at the address.
func TestB17_AnotherRegionAtTheAddressIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east", "ap-south")
	l.remake("us-east", func(r *region) { r.config.Peers["eu-west"] = []string{l.addr["ap-south"]} })
	l.start("ap-south")
	l.start("us-east")
	l.await("us-east", "eu-west", "refused for the name", refusedWith(api.PermissionDenied, "expected region eu-west"))
}

// B17: one region is reached under two names: the peer's manifest calls it otherwise than
// its certificate and its own manifest do. Both ends refuse, say so, and carry nothing.
func TestB17_TheSameRegionUnderAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("us-east", func(r *region) { r.config.Peers = map[string][]string{"eu-central": {l.addr["eu-west"]}} })
	l.start("eu-west")
	l.start("us-east")
	l.await("us-east", "eu-central", "refused for the name", refusedWith(api.PermissionDenied, "expected region eu-central", "region/eu-west"))
	l.await("eu-west", "us-east", "refused by a peer that knows no such region", refusedWith(api.PermissionDenied, "the peer refused our certificate or name"))
	o := newOutcomes(t)
	l.regions["us-east"].Forward("eu-central", record("one", 1), o.done("one"))
	l.regions["eu-west"].Forward("us-east", record("two", 1), o.done("two"))
	for id, r := range o.await(2) {
		if api.CodeOf(r.err) != api.HomeUnreachable {
			t.Errorf("record %s left: %v", id, r.err)
		}
	}
	for name, peer := range map[string]string{"us-east": "eu-central", "eu-west": "us-east"} {
		if s := l.regions[name].link(peer); s.Hello != nil {
			t.Errorf("%s has taken a hello of %s: %+v", name, peer, s.Hello)
		}
	}
}

// onDisk is a region whose certificate and authorities are files that change.
type onDisk struct {
	t     *testing.T
	name  string
	files identity.Files
}

func (d onDisk) put(by *identity.Authority, trusted ...*identity.Authority) {
	d.t.Helper()
	d.trust(trusted...)
	d.renew(by)
}

func (d onDisk) trust(trusted ...*identity.Authority) {
	d.t.Helper()
	var all bytes.Buffer
	for _, ca := range trusted {
		all.Write(ca.CertPEM())
	}
	if err := identity.SavePublic(d.files.CA, all.Bytes()); err != nil {
		d.t.Fatal(err)
	}
}

func (d onDisk) renew(by *identity.Authority) {
	d.t.Helper()
	cert, key, err := by.Issue(identity.Region, d.name, time.Now(), 2*time.Hour)
	if err == nil {
		err = identity.SaveKey(d.files.Key, key)
	}
	if err == nil {
		err = identity.SavePublic(d.files.Cert, cert)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// The authority of a federation is replaced under load and without a restart, in the
// three steps of DESIGN.md: trust both, renew the certificates, trust the new one only.
// Every record is acknowledged by its home at last; no step but the last touches the
// link, and that one only for as long as a new session takes.
func TestB55_AuthorityIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	old, next := l.ca, must(identity.NewCA("shop", time.Now(), 3*time.Hour)) // and its certificates longer, too
	disks := map[string]onDisk{}
	for _, name := range []string{"eu-west", "us-east"} {
		dir := t.TempDir()
		d := onDisk{t, name, identity.Files{Cert: dir + "/cert.pem", Key: dir + "/key.pem", CA: dir + "/ca.pem"}}
		d.put(old, old)
		disks[name] = d
		l.remake(name, func(r *region) { r.config.Identity = must(identity.Load(d.files, regions.NewSteadyClock())) })
		l.start(name)
	}
	l.await("us-east", "eu-west", "up", isUp)
	l.await("eu-west", "us-east", "up", isUp)
	since := l.regions["us-east"].link("eu-west").Since
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var load sync.WaitGroup
	var acked atomic.Int64
	load.Go(func() { l.publish(ctx, "us-east", "eu-west", &acked) })
	beats := func(n int) { // the link is looked at with each of them
		t.Helper()
		never(t, time.Duration(n)*time.Second, "the link went down", func() bool {
			s := l.regions["us-east"].link("eu-west")
			return !s.Up || !s.Since.Equal(since)
		})
	}
	for _, d := range disks {
		d.trust(old, next)
	}
	beats(2)
	told := l.regions["us-east"].link("eu-west").Hello.CertificateEnds
	for _, d := range disks {
		d.renew(next)
	}
	l.await("us-east", "eu-west", "told of the renewed certificate", func(s regions.LinkStatus) bool { return s.Hello.CertificateEnds.After(told) })
	beats(1)
	for _, d := range disks {
		d.trust(next)
	}
	l.awaitFor(30*time.Second, "us-east", "eu-west", "up with the new authority", func(s regions.LinkStatus) bool { return s.Up && s.Since.After(since) })
	l.awaitFor(30*time.Second, "eu-west", "us-east", "up with the new authority", isUp)
	stop()
	load.Wait()
	if acked.Load() == 0 {
		t.Error("nothing was acknowledged")
	}
	cfg := l.identity(old, identity.Region, "us-east", time.Hour).ClientTLS(identity.Region, "eu-west")
	cfg.ServerName, cfg.VerifyConnection = "control.us-east.link.domicile", nil // the caller takes any server
	if err := knock(t, l.addr["eu-west"], cfg); err == nil || !strings.Contains(err.Error(), "tls:") {
		t.Errorf("a certificate of the old authority was told %v", err)
	}
}

// publish forwards one record after the other, each until it is acknowledged, and counts
// them. Only retryable answers are taken for one.
func (l *lab) publish(ctx context.Context, from, to string, acked *atomic.Int64) {
	type answer struct {
		ack api.Ack
		err error
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		said := make(chan answer, 1)
		id := fmt.Sprint("id-", acked.Load())
		l.regions[from].Forward(to, record(id, 100), func(ack api.Ack, err error) { said <- answer{ack, err} })
		switch a := <-said; {
		case a.err == nil && a.ack.ID == id:
			acked.Add(1)
		case a.err == nil:
			l.t.Errorf("%s was acknowledged as %s", id, a.ack.ID)
		case api.CodeOf(a.err) != api.OutcomeUnknown && api.CodeOf(a.err) != api.HomeUnreachable:
			l.t.Errorf("%s: %v", id, a.err)
		}
		<-tick.C
	}
}
