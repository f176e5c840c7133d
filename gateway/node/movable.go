package node

import (
	"context"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/placement"
)

// movable reports whether the authority decides who owns a log, by a manifest.
func (b *logBook) movable(id api.LogID, f *regions.Federation) bool {
	topic, ok := f.Topic(id.Topic)
	return ok && topic.Movable() && b.placer != nil
}

// opening is what a log that may move is opened as when its region's turn begins.
type opening struct {
	role  regions.Role
	epoch api.Epoch // of a home
}

// openingOf decides that by what the store holds, nil for nothing, and by what is known of
// the placement, nil for nothing. copied: the manifest puts the log elsewhere, and a copy
// here. A log that is on the move, or whose store has another role than the placement, is
// not opened: who carries moves out does it.
func openingOf(self, first string, copied bool, held *fabric.Holding, placed *placement.Log) opening {
	isHome := held != nil && held.Role == regions.RoleHome
	switch {
	case placed != nil && placed.Home == self:
		if isHome && placed.Status == placement.Active && !(held.Ended && held.Epoch == placed.Epoch) {
			return opening{regions.RoleHome, placed.Epoch}
		}
	case placed != nil:
		if !isHome && (copied || first == self) {
			return opening{role: regions.RoleCopy}
		}
	case isHome && !held.Ended && held.Epoch != api.Epoch{}:
		return opening{regions.RoleHome, held.Epoch}
	case isHome && !held.Ended, held == nil && first == self:
		return opening{regions.RoleHome, api.StaticEpoch(self)}
	case !isHome && copied:
		return opening{role: regions.RoleCopy}
	}
	return opening{}
}

// openMovable opens a log that may move as what it is here, if that is settled.
func (b *logBook) openMovable(ctx context.Context, id api.LogID, f *regions.Federation) error {
	first, ok := f.FirstHome(id)
	if !ok {
		return nil
	}
	var held *fabric.Holding
	h, has, err := b.fabric.Held(ctx, id)
	if err != nil {
		return err
	}
	if has {
		held = &h
		b.placer.Named(id, h.Incarnation)
	}
	var placed *placement.Log
	if l, known := b.placer.Log(id); known {
		placed = &l
	}
	c := b.config(id, f)
	as := openingOf(b.self, first, f.Role(id, b.self) == regions.RoleCopy, held, placed)
	switch as.role {
	case regions.RoleHome:
		c.Epoch = as.epoch
		err = b.openHome(ctx, c, f)
	case regions.RoleCopy:
		_, err = b.openCopy(ctx, c)
	}
	if api.CodeOf(err) == api.StaleEpoch {
		return nil // it has moved on since this was known: the authority will tell
	}
	return err
}
