package node_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/identity"
)

// Off loopback nothing is served without a certificate, the metrics page included.
func TestPagesOffLoopbackWantACertificate(t *testing.T) {
	w := newWorld(t)
	w.policy(1, soloRules)
	w.config.Listen.Metrics = "0.0.0.0:0"
	n := w.start(func(s *node.Seams) { s.Dev = false })
	_, port, err := net.SplitHostPort(n.Metrics())
	if err != nil {
		t.Fatal(err)
	}
	page := net.JoinHostPort("127.0.0.1", port) + "/metrics"

	plain := &http.Client{Timeout: 5 * time.Second}
	if body, err := fetch(plain, "http://"+page); err == nil && strings.Contains(body, "domicile_") {
		t.Error("the page was served in plain text")
	}
	cert, key, err := w.authority.Issue(identity.Operator, "scraper", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	scraper, err := identity.New(cert, key, w.authority.CertPEM(), regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: scraper.ClientTLS(identity.Region, "eu-west"), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	body, err := fetch(&http.Client{Timeout: 5 * time.Second, Transport: transport}, "https://"+page)
	if err != nil || !strings.Contains(body, "domicile_policy_active 1") {
		t.Errorf("an operator does not get the page: %v %.200q", err, body)
	}
}

func fetch(c *http.Client, url string) (string, error) {
	defer c.CloseIdleConnections()
	r, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}
