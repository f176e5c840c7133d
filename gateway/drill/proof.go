package drill

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions/approval"
)

// Proof is the last drill that has passed here: evidence, which ages. The zero Proof is
// none.
type Proof struct {
	ID, By string
	Chain  string // last hash of its history, for whoever wants to see it
	At     time.Time
}

// Prove notes, in the audit first, that the drill which was held here last, and was healed
// by word, has passed. That it did is the word of who says so.
func (d *Desk) Prove(ctx context.Context, who, id, chain string) (State, error) {
	const hash = 64
	if err := d.Verifier.Rules.Has(who, approval.Operator, approval.Incident); err != nil {
		return State{}, err
	}
	if len(chain) != hash {
		return State{}, &api.Error{Code: api.BadRequest, Op: "prove drill", Field: "chain", Hint: "the last hash of the drill's history"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.ID != id || d.last.How != Healed {
		return State{}, d.gone(id)
	}
	if d.proof.ID != id {
		if err := d.Proven(ctx, id, chain); err != nil {
			return State{}, err
		}
		d.proof = Proof{ID: id, By: who, Chain: chain, At: d.Clock.Now()}
	}
	return d.state(), nil
}
