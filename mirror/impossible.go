package mirror

import (
	"time"

	"domicile/api"
	"domicile/regions"
)

// errImpossible: the record lay in a region where it may not lie. No policy leads there: it is
// kept out whatever the rules say of this region, and says that the other's guard is broken.
var errImpossible = &api.Error{Code: api.HomeOutsideBoundary}

// verdict is this region's judgement of a record that comes from another; nil: it may rest here.
func (c *copied) verdict(pass Pass, r *api.Record, from string) error {
	err := pass.Ingress(r, from, c.target.cfg.Self)
	if err != nil {
		if _, wait := denial(err); wait {
			return err
		}
	}
	if pass.Lawful(r, from) {
		return err
	}
	return errImpossible
}

// otherMap reports whether a region goes by another manifest than this one: its boundaries may
// be others, which says nothing of it, and passes.
func (t *Target) otherMap(peer string) bool {
	link, _ := t.cfg.Link(peer)
	return link.Hello != nil && link.Hello.ManifestDigest != t.cfg.Federation.Digest()
}

// since is when the policy of a revision came into force here; of the first in this run, when
// the run began, since boundaries change with a start alone.
func (t *Target) since(revision string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revision != revision {
		if t.revision != "" {
			t.judging = t.cfg.Clock.Now()
		}
		t.revision = revision
	}
	return t.judging
}

// earlier reports whether a record that may not lie where it came from may have come to lie there
// by an earlier policy or map: it was admitted under another revision than the one in force here,
// and stamped before that came into force, and not before what the copy has already, since
// stamps never go back within a log.
func (in *judged) earlier(it *regions.Item) bool {
	return it.Revision != in.revision && !it.Time.After(in.since) && !it.Time.Before(in.stamped)
}
