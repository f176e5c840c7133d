package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"domicile/api"
	"domicile/api/wire"
)

// lasts is how long a drill may go on from its preflight, by its plan. What the plan does
// not bound, the reconciling and the search, is reading only: a certificate renewed by then
// serves it.
func (r *run) lasts() time.Duration {
	p := &r.Plan
	d := p.Baseline + p.For + p.Lease + p.CatchUp
	if len(p.Exercise) > 0 {
		d += r.failbackWithin()
	}
	return d
}

// lasting refuses a drill under which a certificate ends, by the clock of the node that it
// is shown to. A node's ends its links, which nobody could tell from the cut; an operator's
// leaves the cut to the end of its lease, and the drill without a controller.
func (r *run) lasting(ctx context.Context) error {
	return all(ctx, r.found.everyone(), func(ctx context.Context, n *Node) error {
		s, err := n.Admin.Status(ctx)
		if err != nil {
			return err
		}
		until := wire.TimeFromProto(s.GetNowUnixNano()).Add(r.lasts())
		refuse := func(whose string, ends time.Time) error {
			return &api.Error{Code: api.NotReady, Op: "preflight", Region: n.Region, Field: "certificate", Value: whose,
				Hint: fmt.Sprintf("it ends at %s, and the drill may last until %s with its catch-up: replace it first, for which nothing has to be restarted", stamp(ends), stamp(until))}
		}
		for _, c := range s.GetCertificates() {
			if ends := wire.TimeFromProto(c.GetEndsUnixNano()); c.GetEndsUnixNano() != 0 && ends.Before(until) {
				return refuse(c.GetKind()+" "+c.GetName(), ends)
			}
		}
		for _, id := range n.Shown {
			if ends := id.Ends(); ends.Before(until) {
				return refuse(string(id.Name().Kind)+" "+id.Name().Name, ends)
			}
		}
		return nil
	})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// unheard is why a node was not renewed for a whole lease.
func unheard(err error) error {
	if certificateEnded(err) {
		return fmt.Errorf("the certificate of whoever runs the drill has ended, and the node takes no word of theirs: %w", err)
	}
	return fmt.Errorf("it was not reached for a whole lease: %w", err)
}

// certificateEnded reports whether a node refused a call for the end of the caller's
// certificate.
func certificateEnded(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.PermissionDenied && e.Value == api.CertificateExpired
}

// ended tells whoever runs the drill, once, that their certificate has ended.
func (h *hold) ended(err error) {
	if !certificateEnded(err) {
		return
	}
	h.told.Do(func() {
		h.run.Say("your certificate has ended, and renewals are refused: the cut heals by itself within its lease. " +
			"Put a new one in its place: the drill goes on with it, or, if the cut has ended, to its report")
	})
}
