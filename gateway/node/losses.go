package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/loss"
	"domicile/regions/placement"
	"domicile/regions/tail"
)

// partOfReport is how many bytes of a report one message holds.
const partOfReport = 1 << 20

// Report gives the signed report of what a forced move left behind: at the new home as it
// was at the cut, at the old home, which is given that one, held against what it has.
func (d *divergences) Report(ctx context.Context, req *pb.ReportLossRequest, send func(*pb.ReportLossResponse) error) error {
	if d.identity == nil {
		return &api.Error{Code: api.PermissionDenied, Op: "report loss", Region: d.cfg.Region, Field: "certificate", Hint: "a report is signed: start the node without --dev"}
	}
	t, err := d.holder("report loss")
	if err != nil {
		return err
	}
	var signed loss.Signed
	if len(req.GetFirst()) > 0 {
		signed, err = d.compare(ctx, req)
	} else {
		signed, err = t.reportAsked(req)
	}
	if err != nil {
		return err
	}
	text, err := signed.Encode()
	for rest := text; err == nil && len(rest) > 0; {
		n := min(len(rest), partOfReport)
		err = send(&pb.ReportLossResponse{Report: rest[:n]})
		rest = rest[n:]
	}
	return err
}

func (t *turn) reportAsked(req *pb.ReportLossRequest) (loss.Signed, error) {
	slot := req.GetSlot()
	if topic, ok := t.federation.Topic(req.GetTopic()); ok && slot == "" && topic.Writes == regions.WritesHome {
		slot = api.HomeSlot
	}
	return t.lossAtCut(api.LogID{Tenant: api.DefaultTenant, Topic: req.GetTopic(), Slot: slot}, wire.EpochFromProto(req.GetEpoch()))
}

// compare makes the second report of a first one that another region has signed.
func (d *divergences) compare(ctx context.Context, req *pb.ReportLossRequest) (loss.Signed, error) {
	first, err := loss.Parse(req.GetFirst())
	if err != nil {
		return first, err
	}
	if _, err := first.Verify(d.identity); err != nil {
		return first, err
	}
	m := &first.Report.Move
	wrong := func(field, value, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "report loss", Region: d.cfg.Region, Field: field, Value: value, Hint: hint}
	}
	t, tail, err := d.find(ctx, req.GetTopic(), req.GetSlot(), wire.EpochToProto(m.Old.Epoch))
	switch {
	case err != nil:
		return first, err
	case first.Report.Version != loss.AtCut:
		return first, wrong("version", fmt.Sprint(first.Report.Version), "pass the report that the new home made at the cut")
	case m.Old.Region != d.cfg.Region:
		return first, wrong("region", m.Old.Region, "ask that region: it was the home, and has the records")
	case m.Log != tail.Log.String() || m.Incarnation != tail.Incarnation:
		return first, wrong("log", m.Log, "the report is about another log")
	}
	second, err := t.voided.Report(ctx, tail, first.Report)
	if err != nil {
		return first, err
	}
	return loss.Sign(second, d.identity)
}

// lossAtCut is the report of an epoch that a forced move ended, the zero epoch standing for
// the last one, as its new home, this region, knew it at the cut. It is made once.
func (t *turn) lossAtCut(id api.LogID, epoch api.Epoch) (loss.Signed, error) {
	refused := func(code api.Code, hint string) (loss.Signed, error) {
		return loss.Signed{}, &api.Error{Code: code, Op: "report loss", Topic: id.Topic, Region: t.cfg.Region, Field: "epoch", Value: epoch.String(), Hint: hint}
	}
	if t.placer == nil {
		return refused(api.BadRequest, "no log of this federation moves")
	}
	l, known := t.placer.Log(id)
	if !known {
		return refused(api.NotReady, "this region does not know yet where the log is")
	}
	ended, next := forcedEnd(&l, epoch)
	switch {
	case ended == nil:
		return refused(api.BadRequest, "no forced move ended it, as far as is known: see domicile placement history")
	case next.Region != t.cfg.Region:
		return refused(api.BadRequest, "ask "+next.Region+", which became the home")
	case !ended.EndKnown:
		return refused(api.NotReady, "where the epoch ended is not known yet: ask again when the log is open")
	}
	path := filepath.Join(t.cfg.Data, reportsFolder, fmt.Sprintf("%s-%s.json", l.Incarnation, ended.Epoch))
	text, err := os.ReadFile(path)
	if err == nil {
		return loss.Parse(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return loss.Signed{}, err
	}
	return t.makeReport(path, id, &l, ended, next)
}

// forcedEnd is the epoch that a forced move ended, and what came after it; nil: there is
// none.
func forcedEnd(l *placement.Log, epoch api.Epoch) (*placement.Ended, loss.Side) {
	next := loss.Side{Region: l.Home, Epoch: l.Epoch}
	for i := len(l.History) - 1; i >= 0; i-- {
		e := &l.History[i]
		if e.How == placement.ByForce && (epoch == e.Epoch || epoch == api.Epoch{}) {
			return e, next
		}
		next = loss.Side{Region: e.Home, Epoch: e.Epoch}
	}
	return nil, next
}

func (t *turn) makeReport(path string, id api.LogID, l *placement.Log, e *placement.Ended, next loss.Side) (loss.Signed, error) {
	in := loss.CutInput{By: t.cfg.Region, Now: t.seams.Clock.Now().UTC().Round(0), SafeTime: e.SafeTime,
		Move: loss.Move{Federation: t.federation.Name(), Log: id.String(), Incarnation: l.Incarnation, Proof: string(e.Proof),
			Old: loss.Side{Region: e.Home, Epoch: e.Epoch}, New: next, Cut: e.End, Compared: e.Compared}}
	if l.Op != nil {
		in.Move.Op, in.Move.Plan = l.Op.ID, l.Op.Plan
	}
	// Only a lease that ran out, or a marker, says when the old home stopped.
	stops := e.Proof == placement.Lapsed || e.Proof == placement.Marker
	if stops && !e.SafeTime.IsZero() && e.Lost != nil && e.Lost.Span != nil {
		in.Stopped = e.SafeTime.Add(*e.Lost.Span)
	}
	if lag, here := t.target.Lag(id); here && l.Home == t.cfg.Region && l.Status == placement.Opening && lag.Cursor == e.End {
		in.Below = &loss.Holes{Kept: lag.Ledger.Withheld, Damaged: lag.Ledger.Damaged}
	}
	if known := t.tails.Beyond(id, e.End); known.Incarnation == l.Incarnation && known.Epoch == e.Epoch {
		in.Head, in.Heard, in.Closed, in.Entries = known.Head, known.Heard, known.Closed, known.Entries
	}
	signed, err := loss.Sign(loss.Cut(in), t.identity)
	if err != nil {
		return signed, err
	}
	text, err := signed.Encode()
	if err == nil {
		err = regions.MakeFolder(filepath.Dir(path))
	}
	if err == nil {
		err = regions.WriteWhole(path, text)
	}
	return signed, err
}

// keepReport makes the report of the forced move by which a log comes here, before what it
// stands on is about another epoch. A move does not fail for it: it is made when it is asked
// for, from what is known then.
func (t *turn) keepReport(id api.LogID, epoch api.Epoch) {
	l, ok := t.placer.Log(id)
	if !ok || l.Epoch != epoch || len(l.History) == 0 || l.History[len(l.History)-1].How != placement.ByForce || t.identity == nil {
		return
	}
	if _, err := t.lossAtCut(id, l.History[len(l.History)-1].Epoch); err != nil {
		t.logger.Error("what a forced move left behind could not be put on record; ask for it again with domicile divergence report", "log", id.String(), "err", err)
	}
}

// Told is what this region was told of a log's records beyond the copy that it has, while
// this node holds the seat.
func (n *Node) Told(id api.LogID) tail.Known {
	t := n.turn.Load()
	if t == nil {
		return tail.Known{Log: id}
	}
	cursor := uint64(0)
	if log, _ := t.logs.find(id); log != nil {
		cursor = log.Head().Sequence
	}
	return t.tails.Beyond(id, cursor)
}
