package admin

import (
	"fmt"
	"slices"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// slowCatchUp is how old a copy may be while it catches up before that is worth a
// line in a status.
const slowCatchUp = 10 * time.Second

// troubles lists what is wrong, log by log: first logs that this region cannot
// reach or whose copy here is behind, then logs of this region whose copies
// elsewhere are.
func troubles(v *View) []*pb.LogTrouble {
	if !v.Seat.Open {
		return nil // nothing is known of any log here, and the verdict says so
	}
	var here, away []*pb.LogTrouble
	for _, topic := range v.Federation.Topics() {
		t, _ := v.Federation.Topic(topic)
		for _, id := range v.Federation.Logs(t) {
			home, _, _ := v.Placement.Home(id)
			if home == v.Region {
				away = append(away, originTroubles(v, t, id)...)
			} else if x := copyTrouble(v, t, id, home); x != nil {
				here = append(here, x)
			}
		}
	}
	return append(here, away...)
}

func (v *View) link(peer string) (l regions.LinkStatus, linked bool) {
	for _, l := range v.Links {
		if l.Peer == peer {
			return l, true
		}
	}
	return l, false
}

func inTrouble(l *regions.Lag) bool {
	if l.Loss.Soon || len(l.Lost) > 0 {
		return true
	}
	switch l.State {
	case regions.LagHome, regions.LagCaughtUp:
		return false
	case regions.LagCatchingUp:
		return l.StalenessKnown && l.Staleness > slowCatchUp || l.ExposureKnown && l.Exposure > slowCatchUp
	}
	return true
}

// copyTrouble is about a log whose home is another region.
func copyTrouble(v *View, t *regions.Topic, id api.LogID, home string) *pb.LogTrouble {
	link, linked := v.link(home)
	if !linked {
		return nil // the map has no way there: not a trouble but how it was built
	}
	var lag *regions.Lag
	for i := range v.Lags {
		if v.Lags[i].Log == id && v.Lags[i].Target == v.Region {
			lag = &v.Lags[i]
		}
	}
	if link.Up && (lag == nil || !inTrouble(lag)) {
		return nil
	}
	x := trouble(t, id, home)
	x.State = string(regions.LagLinkDown)
	if lag != nil {
		x.Lag = lagToProto(lag)
		if link.Up {
			x.State = string(lag.State)
		}
	}
	x.Producers = "accepted: they are forwarded to " + home
	if !link.Up {
		x.Producers = "refused at once with " + string(api.HomeUnreachable) + ", or as the policy refuses them anyway; nothing is stored; the same id may be sent again later"
		if t.Route == regions.RouteWithinBoundary {
			x.Producers = "stored in another log of the boundary if one can be reached and may keep them, which the ack names; else " + x.Producers
		}
	}
	x.Consumers = consumers(t, link.Up, lag)
	x.Room = copyRoom(t, link.Up, lag)
	return x
}

func trouble(t *regions.Topic, id api.LogID, home string) *pb.LogTrouble {
	x := &pb.LogTrouble{Log: wire.LogToProto(id), Home: home}
	if o := t.OnHomeLoss; o != nil {
		x.Owner, x.Text = o.Owner, o.Text
	}
	return x
}

func consumers(t *regions.Topic, up bool, lag *regions.Lag) string {
	switch {
	case lag == nil:
		return "no copy here"
	case up:
		return "the copy here, with its age in every batch"
	case t.OnHomeLoss == nil:
		return "stopped"
	}
	switch c := t.OnHomeLoss.Consumers; {
	case c.Mode == "wait":
		return "wait until the home is back"
	case c.Mode != "read_copy":
		return "stopped with " + string(api.HomeLost)
	case lag.StalenessKnown && lag.Staleness <= c.MaxStaleness:
		return "read the copy here, which is " + regions.Span(lag.Staleness) + " old; it may be " + regions.Span(c.MaxStaleness)
	case lag.StalenessKnown:
		return "stopped with " + string(api.HomeLost) + ": the copy is older than " + regions.Span(c.MaxStaleness)
	default:
		return "stopped with " + string(api.HomeLost) + ": the age of the copy is unknown, at most " + regions.Span(c.MaxStaleness) + " may be read"
	}
}

// copyRoom is what is left until readers are refused.
func copyRoom(t *regions.Topic, up bool, lag *regions.Lag) string {
	if up || t.OnHomeLoss == nil || t.OnHomeLoss.Consumers.Mode != "read_copy" || lag == nil || !lag.StalenessKnown {
		return ""
	}
	if left := t.OnHomeLoss.Consumers.MaxStaleness - lag.Staleness; left > 0 {
		return "readable for another " + regions.Span(left)
	}
	return "none: readers are refused"
}

// originTroubles is about copies, elsewhere, of a log whose home is this region.
func originTroubles(v *View, t *regions.Topic, id api.LogID) []*pb.LogTrouble {
	var out []*pb.LogTrouble
	for i := range v.Lags {
		lag := &v.Lags[i]
		if lag.Log != id || lag.Home != v.Region || lag.Target == v.Region || !inTrouble(lag) {
			continue
		}
		x := trouble(t, id, v.Region)
		x.State, x.Lag = string(lag.State), lagToProto(lag)
		x.Producers = "stored and acknowledged here as usual"
		if set := v.Federation.SyncSet(id); slices.Contains(set, lag.Target) && lag.State != regions.LagCatchingUp && lag.State != regions.LagCaughtUp {
			x.Producers = "refused with " + string(api.SyncShort) + ": an ack waits for " + lag.Target + " too; what was on its way is unknown"
		}
		x.Consumers = "all records here; the copy in " + lag.Target + " does not move"
		if lag.State == regions.LagCaughtUp {
			x.Consumers = "all records here; the copy in " + lag.Target + " goes on, without what was gone before it came"
		}
		if link, _ := v.link(lag.Target); !link.Up {
			x.Producers += "; in " + lag.Target + " refused with " + string(api.HomeUnreachable)
		}
		x.Room = originRoom(v, t, id, lag)
		out = append(out, x)
	}
	return out
}

// originRoom is what is left until retention takes records that the copy does not
// have yet. It never stops publishing here.
func originRoom(v *View, t *regions.Topic, id api.LogID, lag *regions.Lag) string {
	age := "age unknown"
	switch {
	case t.Hold:
		age = "retention waits for the copy"
	case lag.ExposureKnown:
		if lag.Exposure == 0 && len(lag.Lost) == 0 {
			return "nothing is waiting for the copy"
		}
		if left := t.Retention.MaxAge - lag.Exposure; left > 0 {
			age = regions.Span(left) + " until retention by age takes records the copy does not have"
		} else {
			age = "retention by age is taking records the copy does not have"
		}
	}
	if f, ok := v.Holdings[id.String()]; ok {
		age += fmt.Sprintf("; %s of %s of the log used", regions.Bytes(f.Bytes), regions.Bytes(int64(t.Retention.MaxBytes)))
	}
	switch lag.Loss.State {
	case regions.LossAhead:
		age += "; at the present rates retention overtakes the copy in " + regions.Span(lag.Loss.In)
	case regions.LossRefusal:
		age += "; at the present rates appends are refused with " + string(api.StorageFull) + " in " + regions.Span(lag.Loss.In)
	}
	for _, g := range lag.Lost {
		age += "; " + lostText(g)
	}
	return age
}
