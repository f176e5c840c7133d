package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// The topics of the story, as in the example federation.
const (
	orders  = "orders"
	catalog = "catalog.updates"
	health  = "health.records"
)

// ware is one sort of record that a region's producers publish.
type ware struct {
	topic, class, residency string
	local                   bool // goes into the asked region's own log
}

// wares is what each region publishes in turn.
var wares = map[string][]ware{
	"eu-west": {
		{orders, "order", "eu", true}, {orders, "order", "global", true}, {catalog, "catalog", "global", true},
		{orders, "order", "eu", true}, {health, "health", "eu", true},
	},
	"us-east": {
		{orders, "order", "eu", false}, {orders, "order", "us", true}, {orders, "order", "global", true},
		{health, "health", "us", true}, {orders, "order", "global", true},
	},
	"ap-south": {
		{orders, "order", "eu", false}, {catalog, "catalog", "global", false}, {orders, "order", "in", true},
		{orders, "order", "global", true}, {health, "health", "in", true},
	},
}

// slip is a mistake that producers make now and then, and the code they must get.
type slip struct {
	ware
	want api.Code
}

// slips is who makes which mistake.
var slips = map[string][]slip{
	"us-east": {
		{ware{health, "health", "eu", false}, api.TransitDenied},
		{ware{orders, "order", "EU", false}, api.UnknownTag},
	},
	"ap-south": {
		{ware{orders, "order", "", false}, api.MissingTag},
		{ware{"ordres", "order", "global", false}, api.UnknownTopic},
	},
}

// parcel is a record on its way to a door, and what is noted about it.
type parcel struct {
	record api.Record
	entry  ledger.Entry
	tokens []int    // of the record: in id, key, a header and the body
	want   api.Code // the refusal it must get; "" for a record that should be taken
	local  bool     // for the asked region's own log
}

// shop makes the records of one region's producers. One goroutine uses it.
type shop struct {
	region     string
	federation *regions.Federation
	tokens     *canary.Set
	customers  map[string]*customers // by residency
	count      int
}

// customers order again and again: their keys are tokens too.
type customers struct {
	keys   []string
	tokens []int
	next   int
}

// customersEach is how many keys a region has per residency.
const customersEach = 8

func newShop(region string, f *regions.Federation, tokens *canary.Set) *shop {
	return &shop{region: region, federation: f, tokens: tokens, customers: map[string]*customers{}}
}

// next is the next record of the round. With closed true the region writes nothing
// into its own logs; ok is false when that leaves nothing to publish this time.
func (s *shop) next(closed bool) (parcel, bool) {
	list := wares[s.region]
	w := list[s.count%len(list)]
	s.count++
	if closed && w.local {
		return parcel{}, false
	}
	return s.pack(w), true
}

// mistakes is one record of each mistake this region makes.
func (s *shop) mistakes() []parcel {
	var parcels []parcel
	for _, m := range slips[s.region] {
		p := s.pack(m.ware)
		p.want = m.want
		parcels = append(parcels, p)
	}
	return parcels
}

// pack makes a record. Whatever is bound to a boundary carries a token in every
// place that a producer fills in.
func (s *shop) pack(w ware) parcel {
	var p parcel
	mark := func(token, place string) string {
		if w.residency != regions.GlobalResidency {
			p.tokens = append(p.tokens, s.tokens.Add(token, boundaryOf(w.residency)+"/"+place))
		}
		return token
	}
	key, keyToken := s.customer(w.residency)
	if keyToken >= 0 {
		p.tokens = append(p.tokens, keyToken)
	}
	body := fmt.Sprintf("%s %d from %s, %s. Note: %s. ", w.class, s.count, s.region, w.residency, mark(canary.Awkward(), "body"))
	p.record = api.Record{
		ID:      mark(canary.Plain(), "id"),
		Topic:   w.topic,
		Key:     key,
		Headers: []api.Header{{Name: "X-Customer", Value: mark(canary.Awkward(), "header")}},
		Body:    []byte(body + strings.Repeat(".", 160)),
	}
	for _, t := range []api.Tag{{Name: "class", Value: w.class}, {Name: regions.ResidencyTag, Value: w.residency}} {
		if t.Value != "" {
			p.record.Tags = append(p.record.Tags, t)
		}
	}
	p.entry, p.local = s.note(&p.record, w), w.local
	return p
}

func (s *shop) note(r *api.Record, w ware) ledger.Entry {
	return ledger.Entry{
		ID: r.ID, Hash: ledger.Hash(r.Body), Key: r.Key, Topic: r.Topic, Residency: w.residency,
		Size: r.Size(), Asked: s.region, Rests: rests(s.federation, w.topic, w.residency, s.region),
	}
}

func (s *shop) customer(residency string) (key string, token int) {
	c := s.customers[residency]
	if c == nil {
		c = &customers{}
		for range customersEach {
			k, t := canary.Plain(), -1
			if residency != regions.GlobalResidency {
				t = s.tokens.Add(k, boundaryOf(residency)+"/key")
			}
			c.keys, c.tokens = append(c.keys, k), append(c.tokens, t)
		}
		s.customers[residency] = c
	}
	c.next = (c.next + 1) % customersEach
	return c.keys[c.next], c.tokens[c.next]
}

// boundaryOf is the boundary that a token belongs to. A record whose residency is
// not valid is meant for nobody, so its tokens may be found nowhere.
func boundaryOf(residency string) string {
	if residency == "" {
		return "none"
	}
	return residency
}

// rests is where a record must be once it has been accepted and the mirrors have
// caught up: by the map alone, worked out apart from the policy that is on trial.
func rests(f *regions.Federation, topic, residency, asked string) []string {
	t, ok := f.Topic(topic)
	floor := f.Floor(residency)
	if !ok || len(floor) == 0 {
		return nil
	}
	log := api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: api.HomeSlot}
	if t.Writes == regions.WritesLocal {
		log.Slot = asked
		if !slices.Contains(floor, asked) {
			log.Slot = floor[0]
		}
	}
	home, _, _ := f.Home(log)
	list := []string{home}
	for _, target := range f.Targets(log) {
		if slices.Contains(floor, target) {
			list = append(list, target)
		}
	}
	slices.Sort(list)
	return list
}

// pace is the time between two records of one of n regions at a total rate a second.
func pace(rate, n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(rate)
}
