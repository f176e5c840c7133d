package main

import (
	"fmt"
	"strings"
	"time"

	"domicile/api/wire"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

type divergenceView struct {
	Log     string            `json:"log"`
	Epoch   string            `json:"epoch"`
	Region  string            `json:"region"`
	End     uint64            `json:"end"`
	From    uint64            `json:"from"`
	To      uint64            `json:"to"`
	Count   uint64            `json:"sequences"`
	Records uint64            `json:"records"`
	Bytes   int64             `json:"bytes"`
	First   *time.Time        `json:"first,omitempty"`
	Last    *time.Time        `json:"last,omitempty"`
	Hash    string            `json:"hash"`
	Fates   map[string]uint64 `json:"fates"`
	Settled string            `json:"settled"`
	Who     string            `json:"who,omitempty"`
	Reason  string            `json:"reason,omitempty"`
}

func viewDivergence(d *pb.Divergence) divergenceView {
	v := divergenceView{Log: logName(d.GetLog()), Epoch: wire.EpochFromProto(d.GetEpoch()).String(), Region: d.GetRegion(), End: d.GetEnd(), From: d.GetFrom(), To: d.GetTo(),
		Count: d.GetCount(), Records: d.GetRecords(), Bytes: d.GetBytes(), Hash: d.GetHash(), Fates: map[string]uint64{}, Settled: firstOf(d.GetSettled(), "open"),
		Who: d.GetWho(), Reason: d.GetReason()}
	if n := d.GetFirstUnixNano(); n != 0 {
		first, last := nanoTime(n), nanoTime(d.GetLastUnixNano())
		v.First, v.Last = &first, &last
	}
	for _, f := range d.GetFates() {
		v.Fates[f.GetFate()] = f.GetRecords()
	}
	return v
}

func fateWords(v divergenceView) string {
	var said []string
	for _, fate := range []string{"open", "republished", "already present", "kept", "refused", "discarded"} {
		if n := v.Fates[fate]; n > 0 {
			said = append(said, fmt.Sprintf("%s %s", count(n), fate))
		}
	}
	return strings.Join(said, ", ")
}

// renderDivergences lists what is void. Unless the list is complete, nothing on it is not
// nothing.
func renderDivergences(views []divergenceView, complete bool) string {
	var b strings.Builder
	switch {
	case !complete:
		b.WriteString("UNKNOWN whether more is void here: the authority, which says where epochs ended, was not heard to the end; ask again\n")
	case len(views) == 0:
		b.WriteString("nothing is void in this region\n")
	}
	if len(views) == 0 {
		return b.String()
	}
	rows := [][]string{{"LOG", "EPOCH", "RECORDS", "SEQUENCES", "BYTES", "DECIDED", "HASH", "BECAME"}}
	for _, v := range views {
		rows = append(rows, []string{v.Log, v.Epoch, count(v.Records), fmt.Sprintf("%d to %d", v.From, v.To), regions.Bytes(uint64(v.Bytes)), v.Settled, v.Hash, fateWords(v)})
	}
	table(&b, "", rows)
	return b.String()
}

func (a *app) printDecision(d *pb.Divergence, preview, approve string) error {
	v := viewDivergence(d)
	if a.json() {
		out := map[string]any{"divergence": v}
		if preview != "" {
			out["dry_run"], out["approve"] = preview, approve
		}
		return a.printJSON(out)
	}
	var b strings.Builder
	b.WriteString(renderDivergences([]divergenceView{v}, true))
	if preview != "" {
		fmt.Fprintln(&b, "nothing was done:", preview)
		fmt.Fprintln(&b, "to do it, pass --hash", v.Hash)
	}
	if approve != "" {
		fmt.Fprintln(&b, "another person consents with: domicile divergence approve", approve)
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

type divergentView struct {
	Sequence uint64         `json:"sequence"`
	Time     time.Time      `json:"ingested"`
	Bytes    uint32         `json:"bytes"`
	Hash     string         `json:"id_hash"`
	Fate     string         `json:"fate"`
	Code     string         `json:"code,omitempty"`
	Where    string         `json:"where,omitempty"`
	Withheld bool           `json:"withheld,omitempty"`
	Record   map[string]any `json:"record,omitempty"`
}

// printDivergent prints records as they come, below one line that names the columns.
func (a *app) printDivergent(whole bool) func(*pb.DivergentRecord) error {
	const columns = "%-12v  %-30v  %-16v  %10v  %v\n"
	lines := 0
	return func(r *pb.DivergentRecord) error {
		v := viewDivergent(r)
		if a.json() || whole {
			return a.printJSON(v)
		}
		if lines++; lines == 1 {
			fmt.Fprintf(a.out, columns, "SEQUENCE", "STORED", "ID (HASH)", "BYTES", "BECAME")
		}
		_, err := fmt.Fprintf(a.out, columns, v.Sequence, v.Time.Format(time.RFC3339Nano), v.Hash, v.Bytes, strings.TrimSpace(strings.Join([]string{v.Fate, v.Code, v.Where}, " ")))
		return err
	}
}

func viewDivergent(r *pb.DivergentRecord) divergentView {
	v := divergentView{Sequence: r.GetSequence(), Time: nanoTime(r.GetIngestUnixNano()), Bytes: r.GetBytes(), Hash: r.GetIdHash(), Fate: r.GetFate(),
		Code: r.GetCode(), Where: r.GetWhere(), Withheld: r.GetWithheld()}
	m := r.GetRecord()
	if m == nil {
		return v
	}
	headers, tags := map[string]string{}, map[string]string{}
	for _, h := range m.GetHeaders() {
		headers[h.GetName()] = h.GetValue()
	}
	for _, t := range m.GetTags() {
		tags[t.GetName()] = t.GetValue()
	}
	v.Record = map[string]any{"id": m.GetId(), "key": m.GetKey(), "tags": tags, "headers": headers, "body": m.GetBody()}
	return v
}
