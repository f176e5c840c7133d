package oracle

import (
	"context"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/drill/history"
)

// ask notes what a region says of its lags and links, until ctx ends. A question that is
// not answered in time is noted too: a region that says nothing is not one without lag.
func (o *Oracle) ask(ctx context.Context, r Region) {
	each(ctx, o.config.Every, func() {
		wait, cancel := context.WithTimeout(ctx, o.config.Patience)
		defer cancel()
		asked := o.config.History.Now()
		err := r.Admin.Lag(wait, &pb.LagRequest{}, func(m *pb.LagResponse) error {
			for _, l := range m.GetLogs() {
				o.gauge(r.Name, asked, l)
			}
			return nil
		})
		if err == nil {
			err = o.links(wait, r)
		}
		if err != nil && ctx.Err() == nil {
			o.note(history.Event{Region: r.Name, Silent: &history.Silent{Asked: asked, Text: err.Error()}})
		}
	})
}

func (o *Oracle) gauge(region string, asked time.Duration, l *pb.LogLag) {
	if l.GetHome() == l.GetTarget() || region != l.GetHome() && region != l.GetTarget() {
		return
	}
	g := &history.Gauge{
		Log: wire.LogFromProto(l.GetLog()).String(), Home: l.GetHome(), Target: l.GetTarget(), State: l.GetState(), Cause: l.GetCause(), Asked: asked,
		Staleness: known(l.GetStalenessKnown(), l.GetStalenessSeconds()), Trusted: l.GetSecondsTrusted(), Exposure: known(l.GetExposureKnown(), l.GetExposureSeconds()),
		Records: known(l.GetRecordsKnown(), l.GetRecords()), Bytes: known(l.GetBytesKnown(), l.GetBytes()),
		Knowledge: known(l.GetKnowledgeKnown(), l.GetKnowledgeAgeSeconds()), Head: l.GetHead(), Cursor: l.GetCursor(),
	}
	if l.GetStalenessKnown() {
		g.Error = l.GetStalenessErrorSeconds()
	}
	o.note(history.Event{Region: region, Gauge: g})
}

func (o *Oracle) links(ctx context.Context, r Region) error {
	m, err := r.Admin.Status(ctx)
	if err != nil {
		return err
	}
	for _, l := range m.GetLinks() {
		o.note(history.Event{Region: r.Name, Link: &history.Link{
			Peer: l.GetPeer(), State: l.GetState(), Direction: l.GetDirection(), Reason: l.GetReason(), Fault: l.GetFault(),
			Offset: known(l.GetOffsetKnown(), l.GetOffsetSeconds()), Error: known(l.GetOffsetKnown(), l.GetOffsetErrorSeconds()),
		}})
	}
	return nil
}

func known[T any](is bool, v T) *T {
	if !is {
		return nil
	}
	return &v
}
