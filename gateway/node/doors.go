package node

import (
	"context"
	"errors"

	"domicile/api"
	"domicile/gateway/admin"
	"domicile/gateway/door"
)

// openDoors opens the door for producers and consumers and, on an address of its
// own, the desk for operators.
func (n *Node) openDoors(ctx context.Context) error {
	var err error
	if n.desk, err = n.openOne(ctx, "listen.admin", n.cfg.Listen.Admin, door.Config{Admin: n.admin, Placement: n.placings, Failover: n.moves,
		Divergence: &admin.Divergences{Desk: (*divergences)(n)}, Drill: &admin.Drills{Desk: n.drills, Node: n.cfg.Node, Caller: caller, Ask: n.permissions, Revision: func() string { return n.policyState().Revision }}}); err != nil {
		return err
	}
	n.onClose("operators' door", n.desk.Close)
	if n.door, err = n.openOne(ctx, "listen.door", n.cfg.Listen.Door, door.Config{Gateway: (*entrance)(n), Quotas: n.quotas,
		Refused: func(topic string, code api.Code) { n.admin.Published(topic, "", code) }}); err != nil {
		return err
	}
	n.onClose("door", n.door.Close)
	return nil
}

func (n *Node) openOne(ctx context.Context, field, address string, c door.Config) (*door.Server, error) {
	var err error
	if c.Listener, err = n.listen(ctx, field, address); err != nil {
		return nil, err
	}
	if !n.seams.Dev {
		c.Identity = n.identity
	}
	c.Rules, c.DevClass, c.Clock = n.cfg.Principals, n.cfg.DevClass, n.seams.Clock
	c.Region, c.Federation, c.Logger = n.cfg.Region, n.federation, n.logger
	s, err := door.New(c)
	if err != nil {
		return nil, errors.Join(err, c.Listener.Close())
	}
	return s, nil
}
