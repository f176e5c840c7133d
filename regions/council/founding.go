package council

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// Consent is what people agreed to when a region founded the authority anew.
type Consent struct {
	Region     string   // that goes on, alone
	Before     string   // the authority that it goes on from, as it knew that
	Generation uint32   // of that authority
	Version    uint64   // of that authority
	Others     []string // who voted before, and is taken for lost
	Actor      string
	Approvals  []placement.Approval
}

// founding proves a later founding, whoever shows it: people agreed that a region goes on, and
// that region signed which authority it founded. No region has another one give its own
// authority up by its word alone.
type founding struct {
	Authority string
	Consent
	identity.Signed
}

func (f *founding) digest() []byte {
	text, err := json.Marshal(struct {
		Authority string
		Consent
	}{f.Authority, f.Consent})
	if err != nil {
		panic("council: " + err.Error()) // only texts and numbers
	}
	sum := sha256.Sum256(append([]byte("domicile placement founding 1\n"), text...))
	return sum[:]
}

// proves refuses an authority of a later generation that was not shown to be founded so.
func (f *founding) proves(authority string, generation uint32, trust identity.Trust, may func(Consent) error) error {
	refuse := func(hint string) error {
		return &api.Error{Code: api.PermissionDenied, Op: "found authority", Field: "founding", Value: authority, Hint: hint}
	}
	switch {
	case f == nil:
		return refuse("nothing shows that people let this authority be founded anew")
	case f.Authority != authority || generation < 2 || f.Generation != generation-1:
		return refuse("what it shows is the founding of another authority")
	case may == nil:
		return refuse("nobody here can tell who may found one anew")
	}
	if _, err := f.Verify(trust, f.digest(), f.Region, identity.Region); err != nil {
		return fmt.Errorf("the region that founded it did not sign that: %w", err)
	}
	return may(f.Consent)
}

// consent is what people agreed to when this voter was made; nil: it founded nothing anew.
func (m *mark) consent() (*Consent, error) {
	if len(m.Founding) == 0 {
		return nil, nil
	}
	c, err := placement.DecodeCommand(m.Founding, placement.CommandVersion)
	if err != nil || c.Founding == nil || len(c.Founding.Cache) == 0 {
		return nil, err
	}
	s, err := placement.Restore(c.Founding.Cache)
	if err != nil {
		return nil, err
	}
	return &Consent{Region: c.Founding.Region, Before: s.Authority(), Generation: s.Generation(), Version: s.Version(), Others: m.Others,
		Actor: c.Actor, Approvals: c.Approvals[:min(2, len(c.Approvals))]}, nil // a greeting is bounded
}

// founded is the proof of this voter's own authority: its own, or as the founder showed it.
func (v *Voter) founded() *founding {
	if v.consent == nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.shown
	}
	f := &founding{Authority: v.mark.Authority, Consent: *v.consent}
	var err error
	if f.Signed, err = identity.SignWith(v.cfg.Identity, f.digest()); err != nil {
		v.cfg.Log.Error("the founding of this authority cannot be shown to others", "err", err)
		return nil
	}
	return f
}

// keepFounding keeps the proof of this voter's own authority for those who ask when the founder
// is gone.
func (v *Voter) keepFounding(f *founding) {
	v.mu.Lock()
	known := v.shown
	v.mu.Unlock()
	same := f != nil && known != nil && len(known.Certificates) > 0 && len(f.Certificates) > 0 && string(known.Certificates[0]) == string(f.Certificates[0])
	if v.consent != nil || f == nil || same || f.proves(v.mark.Authority, f.Generation+1, v.cfg.Identity, v.cfg.MayFound) != nil {
		return
	}
	v.mu.Lock()
	v.shown = f
	v.mu.Unlock()
	text, err := json.Marshal(f)
	if err == nil {
		err = v.store.put([]byte(foundingKey), text)
	}
	if err != nil {
		v.cfg.Log.Warn("the proof of the founding is not kept", "err", err)
	}
}

const foundingKey = "founding"

// loadFounding reads what keepFounding kept. A damaged one is heard anew.
func (v *Voter) loadFounding() error {
	text, err := v.store.Get([]byte(foundingKey))
	if err != nil || len(text) == 0 {
		return err
	}
	var f founding
	if json.Unmarshal(text, &f) == nil {
		v.shown = &f
	}
	return nil
}

// doubt is why another authority is not believed to be there: one of this voter's generation or
// a later one has to be proven. A first founding has nothing to show, and counts in believes.
func (v *Voter) doubt(h hello) error {
	if h.Generation < 2 || h.Generation < v.greeting().Generation {
		return nil
	}
	if own, f := v.founded(), h.Founding; own != nil && f != nil && own.Authority != h.Authority &&
		own.Region == f.Region && own.Before == f.Before && own.Generation == f.Generation && own.Version == f.Version {
		return &api.Error{Code: api.PermissionDenied, Op: "found authority", Field: "founding", Value: h.Authority,
			Hint: "what people agreed to stands for the authority of this voter already"}
	}
	return h.Founding.proves(h.Authority, h.Generation, v.cfg.Identity, v.cfg.MayFound)
}

// believes reports whether another authority is there: a later founding was proven, of a first
// one more than one region speaks. v.mu is held.
func (v *Voter) believes(r Rival) bool {
	says := 0
	for _, other := range v.rivals {
		if other.Authority == r.Authority {
			says++
		}
	}
	return r.Generation > 1 || says > 1
}

// check refuses a greeting that no correct node sends.
func (h *hello) check() error {
	for _, name := range []string{h.Authority, h.Born} {
		if name != "" && regions.CheckName(name) != nil {
			return fmt.Errorf("%w: a name", errMalformed)
		}
	}
	if h.Roll != "" {
		for region := range strings.SplitSeq(h.Roll, ",") {
			if regions.CheckRegionName(region) != nil {
				return fmt.Errorf("%w: who votes", errMalformed)
			}
		}
	}
	if h.After > furthestLog || h.Generation > furthestGeneration {
		return fmt.Errorf("%w: version %d of generation %d", errMalformed, h.After, h.Generation)
	}
	return nil
}
