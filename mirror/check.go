package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// What no log comes near: a copy at such a place could never follow its home again.
const (
	maxPlace = 1 << 50              // of sequences and terms
	maxAhead = 366 * 24 * time.Hour // of stamps, beyond this region's clock
	maxWord  = 128                  // bytes of what a region says besides records
)

// checkLog holds what a region says of a log against what a log can be.
func checkLog(incarnation string, epoch api.Epoch, head uint64) *api.Error {
	switch {
	case !api.IsWord(incarnation, maxWord):
		return invalid("incarnation", "it is no word of at most 128 characters")
	case head > maxPlace:
		return invalid("head", "no log is that long")
	}
	return checkEpoch(epoch)
}

// check holds a batch against what any region may send. A record was checked at the door of the
// region that sends it, so what does not pass here has not come through one.
func (s *Sink) check(b *regions.MirrorBatch) *api.Error {
	switch {
	case len(b.Items) == 0 || len(b.Items) > regions.MaxBatchRecords:
		return invalid("items", fmt.Sprintf("a batch holds 1 to %d", regions.MaxBatchRecords))
	case b.Serial < 0:
		return invalid("policy_serial", "it is below zero")
	case !optional(b.Revision):
		return invalid("policy_revision", "it is no word of at most 128 characters")
	}
	latest := s.copied.target.cfg.Clock.Now().Add(maxAhead)
	for i := range b.Items {
		it := &b.Items[i]
		if first(it) != s.next {
			return invalid(fmt.Sprintf("items[%d].sequence", i), "it does not follow what was sent on this stream before")
		}
		s.next = it.Sequence + 1
		if err := s.checkItem(it, latest); err != nil {
			return of(fmt.Sprintf("items[%d].", i), err)
		}
	}
	return nil
}

func (s *Sink) checkItem(it *regions.Item, latest time.Time) *api.Error {
	switch {
	case it.Sequence == 0 || it.Sequence > maxPlace:
		return invalid("sequence", "no log is that long")
	case it.Term > maxPlace:
		return invalid("term", "no log had that many writers")
	case it.Time.After(latest):
		return invalid("time", "it was stamped more than a year ahead of this region's clock")
	case !optional(it.Revision):
		return invalid("policy_revision", "it is no word of at most 128 characters")
	}
	if err := checkEpoch(it.Epoch); err != nil {
		return err
	}
	if s.lender == "" && it.Epoch != s.copied.epoch && it.Epoch.Compare(s.copied.epoch) >= 0 {
		return invalid("epoch", "the log is in epoch "+s.copied.epoch.String())
	}
	if it.Gap != nil {
		return checkGap(it)
	}
	return s.checkRecord(it)
}

func (s *Sink) checkRecord(it *regions.Item) *api.Error {
	r := &it.Record
	switch {
	case r.Topic != s.copied.id.Topic:
		return invalid("record.topic", "it is of another topic than the log")
	case it.Time.Unix() <= 0:
		return invalid("time", "a record has the time at which its home took it")
	case r.ID == "":
		return invalid("record.id", "a stored record has an id")
	case !inForm(r.Tags):
		return invalid("record.tags", "they are not as a door writes them: words, each name once, sorted by name")
	}
	if e := (*api.Error)(nil); errors.As(r.Check(), &e) {
		return of("record.", e)
	}
	return nil
}

// inForm: the tags read back as they are from the text that is stored.
func inForm(tags []api.Tag) bool {
	for i, t := range tags {
		if !api.IsWord(t.Name, maxWord) || !api.IsWord(t.Value, maxWord) || i > 0 && t.Name <= tags[i-1].Name {
			return false
		}
	}
	again, err := api.ParseTagString(api.TagString(tags))
	return err == nil && slices.Equal(tags, again)
}

func checkGap(it *regions.Item) *api.Error {
	g := it.Gap
	switch {
	case g.From == 0 || g.From > g.To || g.To != it.Sequence:
		return invalid("gap.range", "it does not end at the item's sequence")
	case !slices.Contains([]regions.GapKind{regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged}, g.Kind):
		return invalid("gap.kind", "this version does not know it")
	case !optional(string(g.Code)) || g.Code == "-":
		return invalid("gap.code", "it is no word of at most 128 characters")
	case g.Side != "" && g.Side != sideEgress && g.Side != sideIngress:
		return invalid("gap.side", "it is egress, ingress or left out")
	case !optional(g.Revision) || g.Revision == "-":
		return invalid("gap.policy_revision", "it is no word of at most 128 characters")
	}
	return nil
}

func checkEpoch(e api.Epoch) *api.Error {
	if e.Term == 0 || e.Counter == 0 || e.Counter > maxPlace || !api.IsWord(e.Issuer, maxWord) {
		return invalid("epoch", "no authority gave it")
	}
	return nil
}

func optional(s string) bool { return s == "" || api.IsWord(s, maxWord) }

func invalid(field, hint string) *api.Error {
	return &api.Error{Code: api.BadRequest, Op: "take mirror batch", Field: field, Hint: hint}
}

// of says of what part of a batch an error is. Nothing of what a record holds is in it.
func of(part string, e *api.Error) *api.Error {
	named := *e
	named.Field = part + e.Field
	return &named
}

// from is the region that sends the batches.
func (s *Sink) from() string { return cmp.Or(s.lender, s.copied.home) }

// distrust refuses what no region sends that is whole: all of it, and the region is named. What
// it sends later is taken as always.
func (c *copied) distrust(peer string, lane regions.Lane, e *api.Error) regions.MirrorReply {
	c.target.cfg.Refused.Add(peer, lane, regions.Malformed)
	c.inTrouble(trouble{regions.LagStalled, peer + " sent what no region may send, and nothing of it was taken: " + e.Field + ": " + e.Hint})
	return refuse(api.BadRequest, e.Field, e.Hint)
}

// claims reports and counts a peer that speaks as the home of a log that is another region's, or in
// an epoch that it never had. Of a log that may move, or has, it may only be late to hear of that, and under
// another manifest it may be right.
func (t *Target) claims(peer string, lane regions.Lane, id api.LogID, epoch api.Epoch) bool {
	home, at, ok := t.cfg.Federation.Home(id)
	if !ok || home == peer && epoch == at || t.moves(id) || at != api.StaticEpoch(home) || t.otherMap(peer) {
		return false
	}
	t.cfg.Refused.Add(peer, lane, regions.NotTheirs)
	return true
}
