package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
)

// moments are the instants of a cut at which permissions are asked, counted from its
// begin, each with its name for every topic that it means something to.
func moments(p *history.Plan) (at []time.Duration, names map[time.Duration]map[string]string) {
	var longest time.Duration
	for _, t := range p.Topics {
		longest = max(longest, t.RPO)
	}
	if longest == 0 {
		longest = p.For / 4
	}
	names = map[time.Duration]map[string]string{}
	for _, t := range p.Topics {
		rpo := t.RPO
		if rpo == 0 { // it never moves: asked along with the others
			rpo = longest
		}
		for name, d := range map[string]time.Duration{history.AtCut: 0, history.HalfRPO: rpo / 2, history.AtRPO: rpo, history.TwiceRPO: 2 * rpo} {
			if d >= p.For {
				continue // the cut ends before
			}
			if names[d] == nil {
				names[d] = map[string]string{}
				at = append(at, d)
			}
			names[d][t.Name] = name
		}
	}
	slices.Sort(at)
	return at, names
}

// probes asks at every moment of the cut but the first, until the cut is over.
func (r *run) probes(ctx context.Context) error {
	at, _ := moments(r.plan)
	for _, d := range at {
		if d == 0 {
			continue
		}
		if err := pass(ctx, d-r.Clock.Now().Sub(r.cutAt)); err != nil {
			return unlessOver(err)
		}
		if err := r.probe(ctx, d); err != nil {
			return unlessOver(err)
		}
	}
	<-ctx.Done()
	return unlessOver(context.Cause(ctx))
}

// unlessOver is nil for the planned end of the cut.
func unlessOver(err error) error {
	if errors.Is(err, errTime) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (r *run) probe(ctx context.Context, at time.Duration) error {
	_, names := moments(r.plan)
	return r.ask(ctx, "", names[at])
}

// ask asks every region what may fail over to it, and notes the answers under a moment:
// the same for every topic, or each topic's own. A region that does not answer is noted as
// silent.
func (r *run) ask(ctx context.Context, moment string, names map[string]string) error {
	var group sync.WaitGroup
	for _, name := range r.found.regions() {
		group.Go(func() {
			asked := r.history.Now()
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			m, err := atSeat(ctx, r, name, func(c *client.Client) (*pb.PermissionsResponse, error) { return c.Permissions(ctx, "") })
			if err != nil {
				r.note(history.Event{Region: name, Silent: &history.Silent{Asked: asked, Text: err.Error()}})
				return
			}
			for _, p := range m.GetLogs() {
				of := moment
				if of == "" {
					of = names[p.GetLog().GetTopic()]
				}
				if of != "" {
					r.note(history.Event{Region: name, Probe: r.probeOf(p, m, of)})
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// whys are the history's words for the verdicts that it has others for.
var whys = map[string]string{"never": "declared", "target": "declared", "allowed": ""}

func (r *run) probeOf(p *pb.Permission, m *pb.PermissionsResponse, moment string) *history.Probe {
	out := &history.Probe{Topic: p.GetLog().GetTopic(), Log: p.GetLog().GetTopic() + "@" + p.GetLog().GetSlot(), Home: p.GetHome(), Target: m.GetRegion(), Kind: "forced", Moment: moment,
		Allowed: p.GetAllowed(), Rule: p.GetRule(), Code: api.Code(p.GetCode()), Why: p.GetVerdict(), Text: strings.ToValidUTF8(p.GetText(), ""), Revision: m.GetPolicyRevision()}
	if word, ok := whys[out.Why]; ok {
		out.Why = word
	}
	if p.GetLossKnown() {
		span := time.Duration(p.GetLossNano()).Seconds()
		out.Span = &span
	}
	if r.cutAt.IsZero() {
		out.Since = -1
	} else {
		out.Since = r.Clock.Now().Sub(r.cutAt)
	}
	return out
}
