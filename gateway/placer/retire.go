package placer

import (
	"fmt"
	"maps"

	"domicile/api"
	"domicile/regions/placement"
)

// goneMark begins the lines of the names' file that name logs to retire. No log's name
// begins so.
const goneMark = "gone "

// Deleted notes that an incarnation of a log, of which this region is the home, is no more.
// The authority is told until it has let go of it, over restarts; it does nothing for what
// was never placed here. The log may be made anew at once.
func (p *Placer) Deleted(id api.LogID, incarnation string) {
	p.mu.Lock()
	p.gone(id, incarnation)
	p.rename()
	p.mu.Unlock()
	p.keepNames()
	signal(p.due)
}

// gone drops a name for good, and has what it named retired if this region is its home.
// p.mu is held.
func (p *Placer) gone(id api.LogID, incarnation string) {
	if incarnation == "" {
		return
	}
	if p.names.of[id] == incarnation {
		delete(p.names.of, id)
		p.names.dirty = true
	}
	if l, ok := p.placed[incarnation]; !ok || l.Home == p.cfg.Self {
		p.names.gone[incarnation], p.names.dirty = true, true
	}
}

// retirements are due of what is gone, and still placed. p.mu is held.
func (p *Placer) retirements() []placement.Command {
	var out []placement.Command
	for incarnation := range p.names.gone {
		l, ok := p.placed[incarnation]
		if !ok || l.Home != p.cfg.Self || l.Op != nil {
			continue
		}
		out = append(out, placement.Command{
			Verb: placement.Retire, ID: fmt.Sprintf("retire/%s/%d", incarnation, l.Version), Log: incarnation, Expect: l.Epoch,
			Region: p.cfg.Self, Actor: "region " + p.cfg.Self, Reason: "the log was deleted at its home",
		})
	}
	return out
}

// settleGone forgets what the authority, which was heard just now, no longer has. p.mu is
// held.
func (p *Placer) settleGone() {
	for incarnation := range p.names.gone {
		if l, ok := p.placed[incarnation]; p.authority != nil && (!ok || l.Home != p.cfg.Self) {
			delete(p.names.gone, incarnation)
			p.names.dirty = true
		}
	}
}

// Known lists the incarnations of the logs that this region can name.
func (p *Placer) Known() map[api.LogID]string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.names.of)
}
