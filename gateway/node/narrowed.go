package node

import (
	"cmp"
	"slices"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/policy"
	"domicile/regions"
)

// placeOf is a log, or a copy of one, in a region.
type placeOf struct {
	log    api.LogID
	region string
}

// narrowed lists the logs and copies in which records may lie that could not come there any
// more, from the questions that a policy answers with less than the one before.
func (n *Node) narrowed(questions []policy.Question) []*pb.NarrowedLog {
	found, now := map[placeOf]*pb.NarrowedLog{}, n.gate.Current()
	for _, q := range questions {
		t, ok := n.federation.Topic(q.Topic)
		if !ok || q.Point == policy.Transit || q.Point == policy.Consume {
			continue
		}
		id, region := logAt(t, q.Origin), q.Target
		home, _, ok := n.federation.Home(id)
		if !ok || !n.federation.MayRest(residency(q.Tags), home) {
			continue // no such record is in it
		}
		if q.Point == policy.Admit {
			if d, err := now.Ask(q); err == nil && d.Allow && slices.Contains(d.Regions, home) {
				continue // it may still come there
			}
			region = home
		} else if home != q.Origin || !slices.Contains(n.federation.Targets(id), region) {
			continue // nothing is mirrored that way
		}
		at := placeOf{id, region}
		if found[at] == nil {
			found[at] = n.narrowedLog(at)
		}
		if tags := api.TagString(withoutNone(q.Tags)); !slices.Contains(found[at].Tags, tags) {
			found[at].Tags = append(found[at].Tags, tags)
		}
	}
	out := make([]*pb.NarrowedLog, 0, len(found))
	for _, l := range found {
		slices.Sort(l.Tags)
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *pb.NarrowedLog) int {
		return cmp.Or(cmp.Compare(a.GetLog().GetTopic(), b.GetLog().GetTopic()), cmp.Compare(a.GetLog().GetSlot(), b.GetLog().GetSlot()), cmp.Compare(a.GetRegion(), b.GetRegion()))
	})
	return out
}

// logAt is the log of a topic that has its home in a region.
func logAt(t *regions.Topic, region string) api.LogID {
	id := api.LogID{Tenant: api.DefaultTenant, Topic: t.Name, Slot: region}
	if t.Writes == regions.WritesHome {
		id.Slot = api.HomeSlot
	}
	return id
}

func (n *Node) narrowedLog(at placeOf) *pb.NarrowedLog {
	l := &pb.NarrowedLog{Log: wire.LogToProto(at.log), Region: at.region}
	t := n.turn.Load()
	if t == nil || at.region != n.cfg.Region {
		return l
	}
	for _, log := range t.logs.ofTopic(at.log.Topic) {
		if head := log.Head(); log.ID() == at.log {
			l.Known, l.Records, l.Bytes = true, head.Records, head.Bytes
		}
	}
	return l
}

func residency(tags []api.Tag) string {
	r := api.Record{Tags: tags}
	return r.Tag(regions.ResidencyTag)
}

func withoutNone(tags []api.Tag) []api.Tag {
	return slices.DeleteFunc(slices.Clone(tags), func(t api.Tag) bool { return t.Value == policy.None })
}
