package lab

import (
	"context"
	"errors"
	"fmt"

	"domicile/api/client"
	"domicile/gateway/node"
	"domicile/regions"
)

// Witness is the lab's voter that is in no region. Its methods are for one goroutine.
type Witness struct {
	at   *Gateway // where it is: folder, addresses, certificate
	node *node.Witness
}

// Witness is the one that the manifest names; nil: there is none.
func (l *Lab) Witness() *Witness { return l.witness }

// Desk opens a client for operators. The caller closes it.
func (w *Witness) Desk() (*client.Client, error) {
	if w.node == nil {
		return nil, errors.New("the witness is not running")
	}
	return client.New(client.Config{Addresses: []string{w.node.Admin()}})
}

// Data is the directory of its disk.
func (w *Witness) Data() string { return w.at.Data() }

// Node is the witness itself; nil while it is not running.
func (w *Witness) Node() *node.Witness { return w.node }

// Start starts it on the files it has. It does nothing when it runs already.
func (w *Witness) Start(ctx context.Context) (err error) {
	g := w.at
	if w.node != nil {
		return nil
	}
	if err = g.openLog(); err != nil {
		return err
	}
	f, err := regions.LoadManifest(g.region.manifest())
	if err == nil {
		w.node, err = node.NewWitness(g.config(), f, g.seams())
	}
	if err == nil {
		err = w.node.Start(ctx)
	}
	if err != nil {
		w.node = nil
		return errors.Join(fmt.Errorf("start %s: %w", g.title(), err), g.log.Close())
	}
	return nil
}

// Stop stops it gracefully. It does nothing when it is not running.
func (w *Witness) Stop(ctx context.Context) error {
	if w.node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := w.node.Close(ctx)
	w.node = nil
	return errors.Join(err, w.at.log.Close())
}
