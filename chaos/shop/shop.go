// Package shop makes the records of a drill's producers: for each region of the example
// federation a round of resident and global ones for its own logs and for others',
// with unique tokens wherever a record is bound to a boundary, and the mistakes that
// producers make. Next to each record it notes where the map alone lets it rest.
package shop

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// The topics of the story, as in the example federation.
const (
	Orders  = "orders"
	Catalog = "catalog.updates"
	Health  = "health.records"
)

// Ware is one sort of record that a region's producers publish.
type Ware struct {
	Topic, Class, Residency string
	Local                   bool // goes into the asked region's own log
}

// wares is what each region publishes in turn.
var wares = map[string][]Ware{
	"eu-west": {
		{Orders, "order", "eu", true}, {Orders, "order", "global", true}, {Catalog, "catalog", "global", true},
		{Orders, "order", "eu", true}, {Health, "health", "eu", true},
	},
	"us-east": {
		{Orders, "order", "eu", false}, {Orders, "order", "us", true}, {Orders, "order", "global", true},
		{Health, "health", "us", true}, {Orders, "order", "global", true},
	},
	"ap-south": {
		{Orders, "order", "eu", false}, {Catalog, "catalog", "global", false}, {Orders, "order", "in", true},
		{Orders, "order", "global", true}, {Health, "health", "in", true},
	},
}

// slip is a mistake that producers make now and then, and the code they must get.
type slip struct {
	Ware
	want api.Code
}

// slips is who makes which mistake.
var slips = map[string][]slip{
	"us-east": {
		{Ware{Health, "health", "eu", false}, api.TransitDenied},
		{Ware{Orders, "order", "EU", false}, api.UnknownTag},
	},
	"ap-south": {
		{Ware{Orders, "order", "", false}, api.MissingTag},
		{Ware{"ordres", "order", "global", false}, api.UnknownTopic},
	},
}

// Parcel is a record on its way to a door, and what is noted about it.
type Parcel struct {
	Record api.Record
	Entry  ledger.Entry // all but the answer
	Tokens []int        // of the record: in id, key, a header and the body
	Want   api.Code     // the refusal it must get; "" for a record that should be taken
	Local  bool         // for the asked region's own log
}

// Shop makes the records of one region's producers. One goroutine uses it.
type Shop struct {
	Region     string // whose producers sell here
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

// New opens the shop of a region. The tokens it makes go into the set.
func New(region string, f *regions.Federation, tokens *canary.Set) *Shop {
	return &Shop{Region: region, federation: f, tokens: tokens, customers: map[string]*customers{}}
}

// Next is the next record of the round. With closed true the region writes nothing
// into its own logs; ok is false when that leaves nothing to publish this time.
func (s *Shop) Next(closed bool) (Parcel, bool) {
	list := wares[s.Region]
	w := list[s.count%len(list)]
	s.count++
	if closed && w.Local {
		return Parcel{}, false
	}
	return s.Pack(w), true
}

// Mistakes is one record of each mistake this region makes.
func (s *Shop) Mistakes() []Parcel {
	var parcels []Parcel
	for _, m := range slips[s.Region] {
		p := s.Pack(m.Ware)
		p.Want = m.want
		parcels = append(parcels, p)
	}
	return parcels
}

// Pack makes a record. Whatever is bound to a boundary carries a token in every
// place that a producer fills in.
func (s *Shop) Pack(w Ware) Parcel {
	var p Parcel
	mark := func(token, place string) string {
		if w.Residency != regions.GlobalResidency {
			p.Tokens = append(p.Tokens, s.tokens.Add(token, boundaryOf(w.Residency)+"/"+place))
		}
		return token
	}
	key, keyToken := s.customer(w.Residency)
	if keyToken >= 0 {
		p.Tokens = append(p.Tokens, keyToken)
	}
	body := fmt.Sprintf("%s %d from %s, %s. Note: %s. ", w.Class, s.count, s.Region, w.Residency, mark(canary.Awkward(), "body"))
	p.Record = api.Record{
		ID:      mark(canary.Plain(), "id"),
		Topic:   w.Topic,
		Key:     key,
		Headers: []api.Header{{Name: "X-Customer", Value: mark(canary.Awkward(), "header")}},
		Body:    []byte(body + strings.Repeat(".", 160)),
	}
	for _, t := range []api.Tag{{Name: "class", Value: w.Class}, {Name: regions.ResidencyTag, Value: w.Residency}} {
		if t.Value != "" {
			p.Record.Tags = append(p.Record.Tags, t)
		}
	}
	p.Entry, p.Local = s.note(&p.Record, w), w.Local
	return p
}

func (s *Shop) note(r *api.Record, w Ware) ledger.Entry {
	return ledger.Entry{
		ID: r.ID, Hash: ledger.Hash(r.Body), Key: r.Key, Topic: r.Topic, Residency: w.Residency,
		Size: r.Size(), Asked: s.Region, Rests: rests(s.federation, w.Topic, w.Residency, s.Region),
	}
}

func (s *Shop) customer(residency string) (key string, token int) {
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
