package fabric

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// The broker checks a sibling's certificate when a connection is made and never again. So
// what was shown then is kept here and checked again once a beat, by the trust and the time of
// that moment: a connection must not outlive what opened it.
const (
	credentialsEvery = time.Second // at pace 1
	maxCredentials   = 64          // of each kind; a node has eight connections to its siblings
)

// credential is what the other end of a connection showed.
type credential struct {
	state tls.ConnectionState
	conn  net.Conn // of an accepted connection; of a dialed one only the broker has it
}

// credentials are those of a broker's connections, the latest of them.
type credentials struct {
	check func(tls.ConnectionState) error

	mu               sync.Mutex
	dialed, accepted []credential
}

// keep makes c one that notes what is shown to it.
func (k *credentials) keep(c *tls.Config) *tls.Config {
	k.check = c.VerifyConnection
	note := func(list *[]credential, conn net.Conn) func(tls.ConnectionState) error {
		return func(s tls.ConnectionState) error {
			if err := k.check(s); err != nil {
				return err
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			*list = append(*list, credential{s, conn})
			if n := len(*list) - maxCredentials; n > 0 {
				*list = append([]credential(nil), (*list)[n:]...)
			}
			return nil
		}
	}
	c = c.Clone()
	c.VerifyConnection = note(&k.dialed, nil)
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		accept := c.Clone()
		accept.GetConfigForClient = nil
		accept.VerifyConnection = note(&k.accepted, hello.Conn)
		return accept, nil
	}
	return c
}

// recheck closes the accepted connections that would not be accepted any more, and says how
// many those were and whether there may be such a dialed one.
func (k *credentials) recheck() (closed int, dialed bool) {
	if k.check == nil {
		return 0, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var still []credential
	for _, c := range k.accepted {
		if k.check(c.state) == nil {
			still = append(still, c)
			continue
		}
		_ = c.conn.Close()
		closed++
	}
	k.accepted = still
	for _, c := range k.dialed {
		dialed = dialed || k.check(c.state) != nil
	}
	if dialed {
		k.dialed = nil
	}
	return closed, dialed
}

// credentialsLoop ends connections to siblings that are not trusted any more.
func (f *Fabric) credentialsLoop() {
	for f.rest(f.ctx, credentialsEvery) == nil {
		b, err := f.running()
		if err != nil {
			continue
		}
		closed, dialed := b.shown.recheck()
		if dialed {
			err = b.redial()
		}
		if closed > 0 || dialed {
			f.cfg.Logger.Warn("connections to a sibling were ended: its certificate is not trusted any more", "accepted", closed, "dialed", dialed, "error", err)
		}
	}
}

// redial ends all connections that the broker dialed and has it dial again: which of them is
// the one that is not trusted only the broker knows, and it refuses that one now.
func (b *broker) redial() error {
	none := b.opts.Clone()
	none.Routes = nil
	if err := b.srv.ReloadOptions(none); err != nil {
		return err
	}
	return b.srv.ReloadOptions(b.opts.Clone())
}
