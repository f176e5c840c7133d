package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"domicile/chaos/canary"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// audit reads every disk and compares it with what producers were told.
func (r *run) audit(ctx context.Context) error {
	if err := r.breakFiles(); err != nil {
		return err
	}
	stores := map[string]*store{}
	for _, region := range r.lab.Regions() {
		s, err := readStore(ctx, r.lab.Federation, region.Name, region.Data())
		if err != nil {
			return err
		}
		stores[region.Name] = s
	}
	r.judgeLedger(stores)
	r.judgeWithheld(stores)
	r.judgeProbes(stores)
	r.judgeSyncs()
	r.watch.judgeSlopes()
	return r.judgeTokens(ctx)
}

// breakFiles plants the leak that a hook asks for.
func (r *run) breakFiles() error {
	if !r.o.Hooks.LeakOne {
		return nil
	}
	resident := r.tokens.Where(r.boundary(usRegion) + "/body")
	_, err := canary.Plant(r.lab.Region(cutRegion).Dir, r.tokens, resident[0], canary.Base64At1)
	return err
}

func (r *run) judgeLedger(stores map[string]*store) {
	entries := r.book.Entries()
	var shelves []ledger.Shelf
	for _, name := range r.regionNames() {
		shelves = append(shelves, stores[name].shelves...)
	}
	if r.o.Hooks.LoseOne {
		loseOne(entries, shelves)
	}
	sum := ledger.CheckShelves(entries, shelves)
	why := ""
	if !sum.Holds() {
		why = fmt.Sprintf("%d broken promises, the first: %s", len(sum.Broken), sum.Broken[0])
	}
	r.result.verdict(CheckLedger, sum.Holds(), why)
	wrong := r.traffic.surprises
	if len(wrong) > 0 {
		r.result.verdict(CheckLedger, false, fmt.Sprintf("%d wrong answers, the first: %s", len(wrong), wrong[0]))
	}
	r.result.verdict(CheckDedupe, sum.Twice == 0, fmt.Sprintf("%d records are stored twice", sum.Twice))
	res := &r.result
	res.Acked, res.Forwarded, res.Mirrored, res.Refused = sum.Acked, sum.Forwarded, sum.Mirrored, sum.Refused
	res.Unknown, res.Lost, res.Duplicates = sum.Unknown, sum.Lost, sum.Twice
	res.ResidentBytesOutside = sum.Outside
	for code, n := range sum.ByCode {
		res.Codes[code] += n
	}
	if r.reused != "" {
		res.Codes[r.reused]++
	}
	r.tellLedger(sum)
	r.judgeLinks(shelves)
}

// loseOne takes the first acknowledged record off every shelf.
func loseOne(entries []ledger.Entry, shelves []ledger.Shelf) {
	first := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Outcome == ledger.Acked })
	for i := range shelves {
		shelves[i].Items = slices.DeleteFunc(shelves[i].Items, func(i ledger.Item) bool { return i.ID == entries[first].ID })
	}
}

func (r *run) tellLedger(sum *ledger.Sum) {
	r.say("")
	r.say("The ledger:")
	r.say("  producers were told: %d acknowledged (%d of them stored by another region than the one", sum.Acked, sum.Forwarded)
	r.say("  asked), %d refused, %d still unknown; %d answers said that the record was there before", sum.Refused, sum.Unknown, sum.Repeats)
	r.tell("  ", "refused or unknown, by code: "+codeList(r.result.Codes))
	for _, name := range r.regionNames() {
		r.say("  rests in %-9s %6d records", name+":", sum.Rest[name])
	}
	r.say("  copies (record x region): %d; lost: %d; stored twice: %d; bytes of records outside: %d", sum.Mirrored, sum.Lost, sum.Twice, sum.Outside)
}

// judgeWithheld: in each copy egress has left out exactly the records that may not
// rest there, and arrival none but the probes.
func (r *run) judgeWithheld(stores map[string]*store) {
	for _, region := range r.lab.Regions() {
		for _, log := range region.Copies() {
			r.judgeCopy(stores, region.Name, log)
		}
	}
}

func (r *run) judgeCopy(stores map[string]*store, region, log string) {
	origin := stores[r.homeOf(log)]
	must := 0
	for sequence := uint64(1); sequence <= origin.cursor[log]; sequence++ {
		if tag, here := origin.tags[place{log, sequence}]; here && !r.lab.Federation.MayRest(tag, region) {
			must++
		}
	}
	probes := 0
	for _, p := range r.probing.probes {
		if p.place.log == log && p.target == region {
			probes++
		}
	}
	left, refused := stores[region].withheld(log, "egress"), stores[region].withheld(log, "ingress")
	r.result.verdict(CheckEgressWithheld, left == must-probes && refused <= probes,
		fmt.Sprintf("%s in %s: %d withheld on leaving and %d on arrival, want %d and at most %d", log, region, left, refused, must-probes, probes))
}

func (r *run) judgeSyncs() {
	entries := r.book.Entries()
	for _, name := range r.regionNames() {
		early, acks := r.recorders[name].judge(name, entries)
		r.result.verdict(CheckAckAfterSync, early == 0 && acks > 0,
			fmt.Sprintf("%s: %d of %d acks left before their record was known to be on disk", name, early, acks))
	}
}

// judgeTokens scans every file of every region: the tokens of other boundaries must
// not be there, those of acknowledged records at home must.
func (r *run) judgeTokens(ctx context.Context) error {
	home := r.tokensAtHome()
	var files int
	var bytes int64
	for _, region := range r.lab.Regions() {
		report, err := canary.Scan(ctx, region.Dir, r.tokens)
		if err != nil {
			return err
		}
		files, bytes = files+report.Files, bytes+report.Bytes
		r.judgeScan(region.Name, report, home[region.Name])
	}
	r.say("  canary scan: %d tokens from the ids, keys, headers and bodies of resident records,", r.tokens.Len())
	r.say("  looked for in every file of every region: %d files, %.1f MB; bytes outside: %d", files, float64(bytes)/1e6, r.leaked)
	return nil
}

func (r *run) judgeScan(region string, report *canary.Report, home []int) {
	own := r.boundary(region) + "/"
	for _, f := range report.Findings {
		if place := r.tokens.Place(f.Token); !strings.HasPrefix(place, own) {
			r.leaked += r.tokens.Size(f.Token)
			r.result.verdict(CheckCanary, false, fmt.Sprintf("%s holds a token of %s: %s", region, place, f))
		}
	}
	foreign := report.Hits - report.Among(r.tokens.Where(own))
	r.result.verdict(CheckCanary, foreign == 0, fmt.Sprintf("%d foreign tokens in the files of %s", foreign, region))
	// A record that is stored outside counts whole already; its tokens are part of it.
	r.result.ResidentBytesOutside = max(r.result.ResidentBytesOutside, r.leaked)
	missing := report.Missing(home)
	r.result.verdict(CheckCanaryAtHome, len(home) > 0 && len(missing) == 0,
		fmt.Sprintf("%s: %d of %d tokens of acknowledged records are in no file", region, len(missing), len(home)))
}

// tokensAtHome lists, per region, the tokens of the records that it acknowledged.
func (r *run) tokensAtHome() map[string][]int {
	home := map[string][]int{}
	for _, e := range r.book.Entries() {
		if e.Outcome == ledger.Acked && e.Residency != regions.GlobalResidency {
			home[e.Region] = append(home[e.Region], r.traffic.tokens[e.ID]...)
		}
	}
	if r.o.Hooks.LoseToken {
		lost := r.tokens.Add(canary.Plain(), r.boundary(cutRegion)+"/body")
		home[cutRegion] = append(home[cutRegion], lost)
	}
	return home
}
