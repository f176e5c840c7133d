package admin

import (
	"slices"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// heals lists what needs nobody.
func heals(v *View, m *pb.StatusResponse) []string {
	var out []string
	if s := v.Storage; s != nil && (s.Full != "" || s.Passes) {
		out = append(out, "the store takes records again once the disk takes writes and has room; nothing has to be started")
	}
	for _, l := range m.Links {
		if v.Seat.Open && l.State != linkIsUp {
			out = append(out, "the link to "+l.Peer+" is dialled again at least every 5 s")
		}
	}
	filled := func(n Sibling) bool { return n.Lacks != "" && !n.Failed }
	if slices.ContainsFunc(v.Seat.Nodes, filled) && !v.Seat.belowQuorum() {
		out = append(out, "a node that may lack records is filled from the others once it is connected to them")
	}
	for _, x := range m.Troubles {
		switch regions.LagState(x.GetState()) {
		case regions.LagLinkDown, regions.LagCatchingUp, regions.LagUnknown, regions.LagStalled:
			out = append(out, "copies go on from their last record once the link is up; nothing is sent twice")
		case regions.LagTargetFull:
			out = append(out, "a full copy goes on once its retention has made room")
		case regions.LagPolicySkew:
			out = append(out, "flows that wait for a newer policy go on once the other region has it")
		}
	}
	return unique(out)
}

// advice lists what a person may do: a command, or nothing where residency leaves
// nothing to do. It never offers to move what may not move.
func advice(v *View, m *pb.StatusResponse) []string {
	var out []string
	switch s := v.Storage; {
	case s == nil:
	case s.Full != "", s.Passes:
		out = append(out, "free space under "+s.Path+", or on the volume it lies on")
	case !s.Healthy:
		out = append(out, "repair the disk under "+s.Path+", then restart: domicile serve -c node.yaml")
	}
	for _, n := range v.Seat.Nodes {
		if !n.Up {
			out = append(out, "bring node "+n.Name+" of this region back: look at its machine and its log, then, there: domicile serve -c node.yaml")
		}
		if n.Failed && !n.Self {
			out = append(out, "look at the disk of node "+n.Name+": replace it, unless the cause is known and gone; then, there: domicile serve -c node.yaml, with --rejoin if what was on it is lost or damaged")
		}
		if n.Lacks != "" {
			out = append(out, "stop no other node of this region until node "+n.Name+" holds what it should")
		}
	}
	if len(filesApart(v)) > 0 {
		out = append(out, "give the nodes of "+v.Region+" the same federation.yaml and policy, then, at each: domicile config reload, domicile policy reload")
	}
	if !v.Policy.Active || v.Policy.Problem != "" {
		out = append(out, "find out what is wrong with the policy: domicile policy check DIR --federation FILE")
	}
	if v.Policy.Candidate != "" {
		out = append(out, "load the changed policy directory: domicile policy reload")
	}
	for _, p := range m.Policies {
		if p.Known && !p.ManifestEqual {
			out = append(out, "give "+p.Region+" and "+v.Region+" the same federation.yaml, then: domicile config check")
		}
		if p.Known && p.Region != v.Region && v.Policy.Active && p.Serial < v.Policy.Serial {
			out = append(out, "bring the policy of "+p.Region+" up to date, there: domicile policy reload")
		}
		if p.Known && v.Policy.Active && p.Serial > v.Policy.Serial {
			out = append(out, "bring the policy of "+v.Region+" up to date with "+p.Region+"'s: domicile policy reload")
		}
	}
	for _, c := range m.Certificates {
		if c.DaysLeft < warnDays {
			out = append(out, "renew certificate "+c.Name+": domicile certs request, domicile certs sign --kind "+c.Kind)
		}
	}
	if v.Clock.Doubt {
		out = append(out, "the clock: "+v.Clock.Clears)
	}
	for _, l := range v.Links {
		if l.OffsetOK && l.Offset.Abs() > time.Second {
			out = append(out, "set the clock that is wrong, in "+l.Peer+" or in "+v.Region+", and start the nodes there again: a step alone is not applied")
		}
	}
	for _, x := range m.Troubles {
		out = append(out, adviceFor(v, x))
	}
	out = unique(out)
	if len(out) == 0 && m.Level != "ok" && !v.Seat.Hands {
		out = []string{"nothing here: look at the other side of the links"}
	}
	return out
}

func adviceFor(v *View, x *pb.LogTrouble) string {
	log := api.LogID{Tenant: x.GetLog().GetTenant(), Topic: x.GetLog().GetTopic(), Slot: x.GetLog().GetSlot()}
	switch regions.LagState(x.GetState()) {
	case regions.LagIncarnation, regions.LagCursorAhead:
		return log.String() + ": a person decides; do not delete either side; ask " + x.GetOwner()
	case regions.LagManifestDiffers, regions.LagPolicySkew:
		return "" // said above, with the region
	}
	if x.GetHome() == v.Region {
		return "" // stored here as usual: nothing to do for it
	}
	if v.Resident[log.Topic] {
		return log.String() + ": nothing: residency"
	}
	return log.String() + ": nothing: its failover rule is never; ask " + x.GetOwner()
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
