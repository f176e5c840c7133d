package admin

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// Contract says in sentences what a topic promises: what an ack proves, what can be
// lost or repeated, what happens when a home is lost.
func Contract(f *regions.Federation, t *regions.Topic, resident bool) []string {
	out := []string{
		ackContract(f, t),
		"Producer: a refusal means that nothing was stored. " + string(api.OutcomeUnknown) + " means that nobody can say: send it again with the same id; within one log an id is stored once. An id the gateway made cannot be sent again.",
		"Ids are remembered for at least 10 minutes and the last million records of a log. The same id with another body is refused with " + string(api.IDReused) + ".",
	}
	if t.Writes == regions.WritesLocal {
		out = append(out, "Order per key and ids hold within one log. The topic has "+plural(len(t.Regions), "log")+" ("+strings.Join(t.Regions, ", ")+
			"): a record goes to the one of the region it is published in if it may rest there, else to the policy's destination. The same id or key in two logs is two records.")
		if t.Route == regions.RouteWithinBoundary {
			out = append(out, detourContract(f, t))
		}
	} else {
		out = append(out, "Order per key and ids hold for the whole topic: its one log is in "+t.Home+", and records published elsewhere are forwarded there, through memory only.")
	}
	if len(f.Targets(f.Logs(t)[0])) == 0 && len(t.Mirror) == 0 {
		out = append(out, "Copies: none. With the disk of a log its records are gone.")
	} else {
		out = append(out, "Copies: in "+strings.Join(t.Mirror, ", ")+", later than the ack and only of what the policy lets rest there. With the disk of a log, the records that no copy had confirmed are gone: the exposure in lag says how much that is.")
	}
	out = append(out, "Reader: at least once, from the position the reader keeps; a reader that goes on from an older position sees records again. What it may not see is counted, not shown.")
	out = append(out, retentionContract(t)...)
	return append(out, lossContract(f, t, resident)...)
}

// syncContract says what sync adds to an ack, and what it costs.
func syncContract(f *regions.Federation, t *regions.Topic) string {
	var sets []string
	for _, log := range f.Logs(t) {
		sets = append(sets, log.String()+" in "+strings.Join(f.SyncSet(log), " and "))
	}
	return "It is also on the disks of every other region that the ack names under copies (" + strings.Join(sets, "; ") + "), synced before the ack: it survives the loss of every disk but those of one of these " + plural(t.Sync.Copies, "region") +
		". Readers and other copies see a record once the whole set has it. While a region of the set is missing, records are refused with " + string(api.SyncShort) +
		"; what was stored at the home alone when it went missing is " + string(api.OutcomeUnknown) + ", and the same id is acknowledged once the set has it. " +
		"A record that was sent again and was stored before a region of the set missed records may be acknowledged without copies: then only its home is known to have it."
}

// detourContract says what route: within_boundary gives, and what it costs.
func detourContract(f *regions.Federation, t *regions.Topic) string {
	var areas []string
	for _, name := range f.Boundaries() {
		b, _ := f.Boundary(name)
		if logs := slices.DeleteFunc(slices.Clone(b.Regions), func(r string) bool { return !slices.Contains(t.Regions, r) }); len(logs) > 1 {
			areas = append(areas, name+": "+strings.Join(logs, ", "))
		}
	}
	return "Home cut off: a record that belongs to a log elsewhere whose home cannot be reached goes to the first other log of the same boundary that can be, and the ack names it (" + strings.Join(areas, "; ") +
		"). It never leaves the boundary, and what the policy does not let rest there is refused. Order per key then holds within each of the two logs, not over both; the same id in both is two records. " +
		"A retry after " + string(api.OutcomeUnknown) + " goes to the log that the error names: send that with it, as the Go client does. The gateway remembers such ids, and those of records that went another way, for 10 minutes and at most 65536 of them; " +
		"while it remembers no more, no record goes another way. It forgets them when it restarts or its region's seat moves: a retry that then comes without its log may become a second record in another log."
}

func retentionContract(t *regions.Topic) []string {
	text := fmt.Sprintf("Retention: records older than %s, or the oldest beyond %s of a log, are taken", regions.Span(t.Retention.MaxAge), regions.Bytes(int64(t.Retention.MaxBytes)))
	if t.Hold {
		text += ", but none before every copy has it: a log that is full until then refuses records with " + string(api.StorageFull) + " and names the copy."
	} else {
		text += ". A copy that is behind by more loses them and counts them as expired."
	}
	out := []string{text + " An operator may purge records, with a reason that is kept; a copy counts those it did not have as purged."}
	if !t.Quota.None() {
		out = append(out, "Quota: each door takes at most "+t.Fields()["quota"]+" of the topic; what is over it is refused with "+string(api.QuotaExceeded)+" and the time to wait (0: no bound).")
	}
	return out
}

// ackContract says what an ack proves: that depends on the topic's class and on how many
// nodes the log's region has.
func ackContract(f *regions.Federation, t *regions.Topic) string {
	var one, three []string
	for _, log := range f.Logs(t) {
		home, _, _ := f.Home(log)
		if r, _ := f.Region(home); r.Quorum() {
			three = append(three, home)
		} else {
			one = append(one, home)
		}
	}
	const quorum = "on the disks of at least two of the three nodes of the region and log it names, synced before the ack (" + string(api.Disk2of3) +
		"). It survives a kill and a power cut of all three, and the loss of one node's disk."
	solo := "on the disk of the region and log it names, synced before the ack (" + string(api.Disk1) + "). It survives a kill of the process and a power cut."
	if t.Durability == regions.Relaxed {
		solo = "written by the region and log it names, and that a sync of their disk follows within about a second (" + string(api.OS1) +
			"). It survives a kill of the process; a power cut or a failed disk may take it, and its sequence is then given to another record under a new writer term. Readers and copies see it once it is synced. Where the ack says more, more was done."
	}
	text := "Producer: an ack means that the record is "
	switch {
	case len(three) == 0:
		text += solo
	case len(one) == 0:
		text += quorum
	default:
		text += "in " + strings.Join(one, ", ") + " " + solo + " In " + strings.Join(three, ", ") + " it is " + quorum
	}
	if t.Sync == nil {
		return text + " It says nothing about copies or readers."
	}
	return text + " " + syncContract(f, t)
}

func lossContract(f *regions.Federation, t *regions.Topic, resident bool) []string {
	var out []string
	if o := t.OnHomeLoss; o != nil {
		readers := map[string]string{
			"wait": "readers wait", "stop": "readers are stopped with " + string(api.HomeLost),
			"read_copy": "readers read a copy that is at most " + regions.Span(o.Consumers.MaxStaleness) + " old",
		}[o.Consumers.Mode]
		producers := "Home lost: producers are refused with " + string(api.HomeUnreachable)
		if t.Route == regions.RouteWithinBoundary {
			producers += " unless another log of the boundary can be reached"
		}
		out = append(out, producers+"; "+readers+". "+o.Owner+" says: "+o.Text)
	}
	switch {
	case t.Movable():
		return append(out, failoverContract(f, t)...)
	case resident:
		return append(out, "Failover: never. Records of a boundary do not leave it, whatever fails.")
	}
	return append(out, "Failover: never.")
}

// failoverContract says what moving a log costs, and what its home does while it is cut
// off. It never says that nothing is lost where copies are made later than the ack.
func failoverContract(f *regions.Federation, t *regions.Topic) []string {
	r := &t.Failover
	var logs []string
	for _, log := range f.Logs(t) {
		first, _ := f.FirstHome(log)
		logs = append(logs, log.String()+" to "+strings.Join(t.TargetsOf(first), " or "))
	}
	out := []string{"Failover: people may move a log (" + strings.Join(logs, "; ") + "), where the policy lets every record of it rest, and back. A planned move loses nothing and makes producers wait. " +
		"A forced one takes up to " + regions.Span(r.RTO) + " once they said so and is refused if more than " + regions.Span(r.RPO) + " could be lost when it is fixed where the old home ends, unless they override that by name. " +
		"What the old home had beyond the cut is void there: kept, counted, read by nobody. Sequences go on behind the cut, so a position keeps its meaning."}
	if r.FenceAfter > 0 {
		return append(out, "Home cut off: it takes no record of the topic any more "+regions.Span(r.FenceAfter)+" after the authority last renewed its right, with "+string(api.Fenced)+
			". So here a region that is cut off does not go on storing its own records: that is the price of never having two homes.")
	}
	return append(out, "Home cut off: it goes on, for as long as it takes. When the log was moved by force meanwhile, what it acknowledged behind the cut is void and has to be published again, however much that is. Its acks say that the authority did not confirm them, but for those of the first "+
		regions.Span(regions.ConfirmedFor)+": no producer is told at once.")
}
