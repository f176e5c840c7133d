package placer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// names says which incarnation each log has. The authority knows incarnations only, so
// each region keeps the names to itself.
type names struct {
	of    map[api.LogID]string
	gone  map[string]bool      // incarnations that are to be retired
	heard map[api.LogID]string // from a log's home, and not placed yet, while another incarnation is
	dirty bool                 // the file is older
}

// readNames reads the file; none is no names. A damaged one is as good as none: what is in
// it is learned again from the logs.
func readNames(path string) (names, error) {
	n := names{of: map[api.LogID]string{}, gone: map[string]bool{}, heard: map[api.LogID]string{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read the names of placed logs: %w", err)
	}
	var text map[string]string
	if json.Unmarshal(data, &text) != nil {
		return n, nil
	}
	for log, incarnation := range text {
		if gone, ok := strings.CutPrefix(log, goneMark); ok {
			n.gone[gone] = true
		} else if id, err := api.ParseLogID(log); err == nil {
			n.of[id] = incarnation
		}
	}
	return n, nil
}

// keepNames writes the file, if it is older than what is known.
func (p *Placer) keepNames() {
	p.mu.Lock()
	if !p.names.dirty {
		p.mu.Unlock()
		return
	}
	p.names.dirty = false
	text := map[string]string{}
	for id, incarnation := range p.names.of {
		text[id.String()] = incarnation
	}
	for incarnation := range p.names.gone {
		text[goneMark+incarnation] = ""
	}
	p.mu.Unlock()
	data, err := json.Marshal(text)
	if err == nil {
		err = regions.WriteWhole(p.cfg.Names, data)
	}
	if err != nil {
		p.cfg.Log.Error("the names of placed logs cannot be written: after a start they are known once the logs are open", "err", err)
		p.mu.Lock()
		p.names.dirty = true
		p.mu.Unlock()
	}
}

// Named notes the incarnation of a log, as its home or this region's own store says it. It
// does nothing for "" and for what is known.
func (p *Placer) Named(id api.LogID, incarnation string) {
	p.mu.RLock()
	known := incarnation == "" || p.names.of[id] == incarnation
	p.mu.RUnlock()
	if known {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.names.of[id]; was != "" {
		p.gone(id, was) // made anew
	}
	p.names.of[id], p.names.dirty = incarnation, true
	p.rename()
	signal(p.due)
}

// Heard notes the incarnation of a log as another region says it that is the log's home.
// While a different one is placed it waits until this one is too: a home that lost its disk
// begins its log anew before it hears better.
func (p *Placer) Heard(id api.LogID, incarnation string) {
	p.mu.Lock()
	_, placed := p.placed[p.names.of[id]]
	_, taken := p.placed[incarnation]
	if placed && !taken && incarnation != "" {
		p.names.heard[id] = incarnation
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.Named(id, incarnation)
}

// takeHeard takes over the incarnations that are placed by now, or whose forerunners are
// not any more. p.mu is held.
func (p *Placer) takeHeard() {
	for id, incarnation := range p.names.heard {
		_, placed := p.placed[p.names.of[id]]
		if _, taken := p.placed[incarnation]; taken || !placed {
			p.names.of[id], p.names.dirty = incarnation, true
			delete(p.names.heard, id)
		}
	}
}

// Log is what the authority was last heard to say of a log; false: nothing is known.
func (p *Placer) Log(id api.LogID) (placement.Log, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	l, ok := p.named[id]
	return l, ok
}

// Placements is what the authority was last heard to say of the logs that this region can
// name, and a channel that is closed when that is another. The map is read only.
func (p *Placer) Placements() (map[api.LogID]placement.Log, <-chan struct{}) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.named, p.changed
}

// rename makes what others see of the placement anew, and lays it over the manifest.
// p.mu is held.
func (p *Placer) rename() {
	p.named = map[api.LogID]placement.Log{}
	over := map[api.LogID]regions.Placed{}
	for id, incarnation := range p.names.of {
		if l, ok := p.placed[incarnation]; ok {
			p.named[id] = l
			over[id] = regions.Placed{Home: l.Home, Epoch: l.Epoch}
		}
	}
	p.cfg.Federation.Place(over)
	close(p.changed)
	p.changed = make(chan struct{})
}
