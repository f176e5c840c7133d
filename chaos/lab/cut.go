package lab

import (
	"fmt"
	"time"

	"domicile/regions"
	"domicile/regions/link"
)

// cut is one fault that the lab holds at one region's gate.
type cut struct {
	region string
	id     uint64
}

// Cut cuts a region off from all others, all planes and both directions, at its own
// gate. It heals by itself when the lease ends.
func (l *Lab) Cut(region string, mode link.Mode, lease time.Duration) error {
	for _, peer := range l.others(region) {
		if err := l.CutLink(region, peer, mode, lease); err != nil {
			return err
		}
	}
	return nil
}

// CutLink cuts one link, at region's gate.
func (l *Lab) CutLink(region, peer string, mode link.Mode, lease time.Duration) error {
	id, err := l.Region(region).Node().Gates().Cut(peer, link.Planes(), []regions.Direction{regions.In, regions.Out}, mode, lease)
	if err != nil {
		return fmt.Errorf("cut %s from %s: %w", region, peer, err)
	}
	l.cuts = append(l.cuts, cut{region, id})
	return nil
}

// Heal ends every cut the lab holds.
func (l *Lab) Heal() {
	for _, c := range l.cuts {
		if n := l.Region(c.region).Node(); n != nil {
			n.Gates().Heal(c.id)
		}
	}
	l.cuts = nil
}
