package main

import (
	"net"
	"strings"

	"github.com/spf13/cobra"
)

// Addresses of a node that was set up without changing anything.
const (
	defaultDoor  = "127.0.0.1:7400"
	defaultAdmin = "127.0.0.1:7402"
)

// targetFlags say which node a command speaks to, and as whom.
type targetFlags struct {
	context, server string
	ca, cert, key   string
}

func (t *targetFlags) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.context, "context", "", "named context to use (see domicile context)")
	flags.StringVar(&t.server, "server", "", "host:port to speak to, several with commas: the door for publish and tail, else the admin address")
	flags.StringVar(&t.ca, "ca", "", "PEM file of the federation's certificate authority")
	flags.StringVar(&t.cert, "cert", "", "PEM file of your certificate")
	flags.StringVar(&t.key, "key", "", "PEM file of your certificate's key")
}

// service is one of the two addresses a node has for people and programs.
type service int

const (
	toDoor  service = iota // publish and tail
	toAdmin                // operators
)

// target is the node a command speaks to. Without certificates the connection is
// plain, which only a --dev node on this machine accepts.
type target struct {
	Addresses     []string
	CA, Cert, Key string
}

// resolve finds the node, in this order: flags, environment, the named or current
// context, the default node on this machine.
func (a *app) resolve(s service) (target, error) {
	c, err := a.chosenContext()
	if err != nil {
		return target{}, err
	}
	t := target{CA: c.CA, Cert: c.Cert, Key: c.Key}
	address, environment, fallback := c.Door, a.env("DOMICILE_SERVER"), defaultDoor
	if s == toAdmin {
		address, fallback = c.Admin, defaultAdmin
		if own := a.env("DOMICILE_ADMIN"); own != "" {
			environment = own
		}
		if c.AdminCert != "" {
			t.Cert, t.Key = c.AdminCert, c.AdminKey
		}
	}
	// A context asked for by name wins over the environment, not over a flag.
	if a.target.context != "" {
		environment = ""
	}
	chosen := firstOf(a.target.server, environment, address, fallback)
	t.Addresses = strings.Split(strings.ReplaceAll(chosen, " ", ""), ",")
	if a.target.ca != "" || a.target.cert != "" || a.target.key != "" {
		t.CA, t.Cert, t.Key = a.target.ca, a.target.cert, a.target.key
	}
	return t, t.check()
}

func (t target) check() error {
	given := 0
	for _, f := range []string{t.CA, t.Cert, t.Key} {
		if f != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return usage("--ca, --cert and --key belong together")
	}
	for _, address := range t.Addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return usage("address %q: write host:port", address)
		}
		if given == 0 && !loopback(host) {
			return usage("%s is not on this machine: give --ca, --cert and --key, or a context that holds them", address)
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
