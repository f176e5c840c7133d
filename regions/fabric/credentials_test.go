package fabric_test

import (
	"crypto/tls"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// Issue 3, links: the authority of one node's certificate is taken back while the region is
// up. Its siblings end the connections that they have with it, whoever opened them, and go on
// without it; trusted again, it comes back by itself.
func TestB55_SiblingNoLongerTrustedIsCutOff(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	var distrusted atomic.Bool
	var third []byte // the third node's certificate
	r := fabrictest.NewTrio(t, func(c *fabric.Config) {
		own, err := c.Cluster.TLS.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if third = own.Certificate[0]; c.Cluster.Node == "c" {
			return
		}
		check := c.Cluster.TLS.VerifyConnection
		c.Cluster.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			if distrusted.Load() && slices.Equal(s.PeerCertificates[0].Raw, third) {
				return errors.New("not trusted any more")
			}
			return check(s)
		}
	})
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 50)
	seatTo(t, r, "a")
	hears := func(node, other string) bool {
		for _, m := range r.Node(node).Members() {
			if m.Node == other {
				return m.Up
			}
		}
		return false
	}
	eventually(t, "all hear c", func() bool { return hears("a", "c") && hears("b", "c") && hears("c", "a") && hears("c", "b") })
	distrusted.Store(true)
	eventually(t, "nobody hears c", func() bool { return !hears("a", "c") && !hears("b", "c") && !hears("c", "a") && !hears("c", "b") })
	stored = append(stored, d.append(50, 100)...)
	if !hears("a", "b") {
		t.Error("a does not hear b")
	}
	distrusted.Store(false)
	eventually(t, "c is back", func() bool { return hears("a", "c") && hears("b", "c") && hears("c", "a") })
	checkLog(t, d.log(), append(stored, d.append(100, 120)...))
}
