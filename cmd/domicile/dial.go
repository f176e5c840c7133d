package main

import (
	"domicile/api"
	"domicile/api/client"
	"domicile/regions"
	"domicile/regions/identity"
)

// dial opens a client for one of the two services of the node that flags,
// environment or context name. It connects with the first call.
func (a *app) dial(s service) (*client.Client, error) {
	t, err := a.resolve(s)
	if err != nil {
		return nil, err
	}
	c := client.Config{Addresses: t.Addresses}
	if t.CA != "" {
		id, err := identity.Load(identity.Files{Cert: t.Cert, Key: t.Key, CA: t.CA}, regions.NewSteadyClock())
		if err != nil {
			return nil, err
		}
		c.TLS = id.ClientTLS(identity.Region, "")
	}
	return client.New(c)
}

// unanswered is the error of a question that nobody answered: the state it asked for
// is unknown, which is another thing than bad.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

func asked(err error) error {
	if api.CodeOf(err) == api.NotReady {
		return unanswered{err}
	}
	return err
}
