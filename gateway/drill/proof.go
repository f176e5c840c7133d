package drill

import (
	"context"
	"fmt"
	"strconv"
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

// Measured is a log's move as a drill that has passed has carried it out.
type Measured struct {
	Topic string        `json:"topic"`
	Drill string        `json:"-"`
	At    time.Time     `json:"-"`
	RTO   time.Duration `json:"rto_ns"` // the last ack before it to the first after it
	RPO   time.Duration `json:"rpo_ns"` // age of the oldest record that was left behind
}

// maxMeasured is more than a drill moves logs.
const maxMeasured = 200

// Prove notes, in the audit first, that the drill which was held here last, and was healed
// by word, has passed, and what moves it has measured. That it did is the word of who says
// so.
func (d *Desk) Prove(ctx context.Context, who, id, chain string, moves []Measured) (State, error) {
	const hash = 64
	if err := d.Verifier.Rules.Has(who, approval.Operator, approval.Incident); err != nil {
		return State{}, err
	}
	if len(chain) != hash {
		return State{}, &api.Error{Code: api.BadRequest, Op: "prove drill", Field: "chain", Hint: "the last hash of the drill's history"}
	}
	if len(moves) > maxMeasured {
		return State{}, &api.Error{Code: api.BadRequest, Op: "prove drill", Field: "moves", Value: strconv.Itoa(len(moves)), Hint: fmt.Sprintf("at most %d", maxMeasured)}
	}
	for i := range moves {
		if _, ok := d.Federation.Topic(moves[i].Topic); !ok || moves[i].RTO < 0 || moves[i].RPO < 0 {
			return State{}, &api.Error{Code: api.BadRequest, Op: "prove drill", Field: fmt.Sprintf("moves[%d]", i), Hint: "a topic of the federation, and times"}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.ID != id || d.last.How != Healed {
		return State{}, d.gone(id)
	}
	if d.proof.ID != id {
		if err := d.Proven(ctx, id, chain, moves); err != nil {
			return State{}, err
		}
		d.proof = Proof{ID: id, By: who, Chain: chain, At: d.Clock.Now()}
		for _, m := range moves {
			m.Drill, m.At = id, d.proof.At
			d.measured[m.Topic] = m
		}
	}
	return d.state(), nil
}
