package fabric

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"domicile/regions"
)

// Cluster makes a fabric one of the three nodes of a quorum region. All of it is fixed
// when the region is created, but for addresses and certificates.
type Cluster struct {
	Node    string            // this node's name
	Members map[string]string // every node's name → the host:port at which its siblings reach it
	Listen  string            // host:port this node listens at for its siblings
	TLS     *tls.Config       // both ends; VerifyConnection has to tell that the other is of this region, and is asked again while a connection lasts. nil only on loopback
	// Rejoin lets the node take part although its disk lacks what it once had: it is filled
	// from its siblings, which both have to be up and whole. It is an operator's word, and
	// changes nothing for a node that lacks nothing.
	Rejoin bool
}

const directGet = "$JS.API.DIRECT.GET."

const (
	routePing    = 3 * time.Second // the broker's own check of a connection between nodes
	routeTLSWait = 5 * time.Second
)

func (c *Cluster) check() error {
	if len(c.Members) != regions.QuorumNodes {
		return refuse("members", strings.Join(c.names(), ", "), fmt.Sprintf("a quorum region has %d nodes, named in the manifest", regions.QuorumNodes), nil)
	}
	if _, ok := c.Members[c.Node]; !ok {
		return refuse("node", c.Node, "name one of the region's nodes: "+strings.Join(c.names(), ", "), nil)
	}
	for name, address := range c.Members {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' || r == '*' || r == '>' }) {
			return refuse("node", name, "a node's name is printable ASCII without dot, star and angle bracket", nil)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return refuse("members."+name, address, "give it as host:port", err)
		}
	}
	host, _, err := c.listen()
	if err != nil {
		return refuse("cluster.listen", c.Listen, "give it as host:port", err)
	}
	if ip := net.ParseIP(host); c.TLS == nil && (ip == nil || !ip.IsLoopback()) {
		return refuse("cluster.listen", c.Listen, "off loopback the nodes of a region need certificates", nil)
	}
	return nil
}

func (c *Cluster) names() []string { return slices.Sorted(maps.Keys(c.Members)) }

func (c *Cluster) listen() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// serverName is the broker's name of a node. It never changes: a renamed node would stay
// in the broker's count as one that is lost.
func serverName(region, node string) string { return region + "-" + node }

// join makes the broker one of a cluster's.
func (c *Cluster) join(o *server.Options, region string) error {
	host, port, err := c.listen()
	if err != nil {
		return err
	}
	o.ServerName = serverName(region, c.Node)
	o.SyncAlways = true // an acknowledgement of the cluster means: on disk on two of three
	// Without a listener for clients the broker does not open its routes either. This one
	// is on loopback, at any free port, and takes nothing but the secret made at start.
	o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT
	o.JetStreamMaxStore += controlBytes
	o.Cluster = server.ClusterOpts{Name: region, Host: host, Port: port, Advertise: c.Members[c.Node], NoAdvertise: true,
		TLSConfig: c.TLS, TLSTimeout: routeTLSWait.Seconds(), PingInterval: routePing, MaxPingsOut: 3}
	// The broker would give a direct read to any node's replica by chance, also to one that
	// lags behind or is gone; kept off the routes it is answered by this node's own.
	local := &server.SubjectPermission{Deny: []string{directGet + ">"}}
	o.Cluster.Permissions = &server.RoutePermissions{Import: local, Export: local}
	for _, name := range c.names() {
		if name != c.Node {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: c.Members[name]})
		}
	}
	return nil
}
