package policy

import (
	"maps"
	"slices"

	"domicile/api"
	"domicile/regions"
)

// comboKey holds a value id (from 1) per dimension of the catalog, 0 for a tag that
// is not there.
type comboKey [MaxDimensions]uint8

// numbered gives the words of a closed set their ids, from 1.
type numbered struct {
	words []string
	ids   map[string]uint8
}

func number(words []string) numbered {
	n := numbered{words: words, ids: make(map[string]uint8, len(words))}
	for i, w := range words {
		n.ids[w] = uint8(i + 1)
	}
	return n
}

// word is the word of an id, None for 0.
func (n numbered) word(id uint8) string {
	if id == 0 {
		return None
	}
	return n.words[id-1]
}

// vocabulary is a catalog and the region names, numbered.
type vocabulary struct {
	dims    numbered
	values  []numbered // per dimension
	classes numbered
	regions numbered
	topics  map[string]topicWords
	combos  []combo // by id-1
}

type topicWords struct {
	uses   []uint8 // dimension ids, sorted by name
	combos map[comboKey]uint32
}

type combo struct {
	topic     string
	tags      []api.Tag // every dimension of the catalog, None for those the topic does not use
	residency string
}

// newVocabulary numbers a catalog that has passed Check.
func newVocabulary(c *Catalog, f *regions.Federation) *vocabulary {
	v := &vocabulary{
		dims:    number(slices.Sorted(maps.Keys(c.Dimensions))),
		classes: number(slices.Sorted(slices.Values(c.Classes))),
		regions: number(f.Regions()),
		topics:  map[string]topicWords{},
	}
	for _, d := range v.dims.words {
		v.values = append(v.values, number(slices.Sorted(slices.Values(c.Dimensions[d]))))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Topics)) {
		t := topicWords{combos: map[comboKey]uint32{}}
		for _, d := range slices.Sorted(maps.Keys(c.Topics[name].Allow[0])) {
			t.uses = append(t.uses, v.dims.ids[d])
		}
		for _, entry := range c.Topics[name].Allow {
			v.addCombos(name, t, entry, comboKey{}, t.uses)
		}
		v.topics[name] = t
	}
	return v
}

// addCombos numbers every combination of an entry's values.
func (v *vocabulary) addCombos(topic string, t topicWords, entry map[string][]string, key comboKey, left []uint8) {
	if len(v.combos) > MaxCells {
		return // already more than the domain may hold: Build refuses it
	}
	if len(left) == 0 {
		if _, known := t.combos[key]; known {
			return
		}
		v.combos = append(v.combos, v.combo(topic, key))
		t.combos[key] = uint32(len(v.combos))
		return
	}
	d := left[0] - 1
	for _, value := range slices.Sorted(slices.Values(entry[v.dims.words[d]])) {
		key[d] = v.values[d].ids[value]
		v.addCombos(topic, t, entry, key, left[1:])
	}
}

func (v *vocabulary) combo(topic string, key comboKey) combo {
	c := combo{topic: topic}
	for d, name := range v.dims.words {
		value := v.values[d].word(key[d])
		c.tags = append(c.tags, api.Tag{Name: name, Value: value})
		if name == regions.ResidencyTag {
			c.residency = value
		}
	}
	return c
}

// classify finds the combination of a record's tags. Errors never repeat what the
// record carried: they name the dimension and the valid value that was meant.
func (v *vocabulary) classify(topic string, tags []api.Tag) (Combo, error) {
	t, ok := v.topics[topic]
	if !ok {
		return Combo{}, &api.Error{Code: api.UnknownTopic, Op: "classify", Field: "topic",
			Hint: hintNearest("", topic, slices.Sorted(maps.Keys(v.topics)))}
	}
	var key comboKey
	for _, tag := range tags {
		d, ok := v.dims.ids[tag.Name]
		if !ok {
			return Combo{}, refuseTag(api.UnknownTag, topic, "tags", "no dimension of the catalog; "+meant(tag.Name, v.dims.words))
		}
		if key[d-1] != 0 {
			return Combo{}, refuseTag(api.BadTag, topic, "tags."+v.dims.word(d), "the tag is given twice: one value per dimension")
		}
		id, ok := v.values[d-1].ids[tag.Value]
		if !ok {
			return Combo{}, refuseTag(api.UnknownTag, topic, "tags."+v.dims.word(d), "not a value of the dimension; "+meant(tag.Value, v.values[d-1].words))
		}
		key[d-1] = id
	}
	if id, ok := t.combos[key]; ok {
		return Combo{id}, nil
	}
	return Combo{}, v.whyNot(topic, t, key)
}

// whyNot says what is wrong with tags that are each valid.
func (v *vocabulary) whyNot(topic string, t topicWords, key comboKey) error {
	for _, d := range t.uses {
		if key[d-1] == 0 {
			return refuseTag(api.MissingTag, topic, "tags."+v.dims.word(d), "give one of: "+joinSome(v.takes(topic, v.dims.word(d))))
		}
	}
	for i, name := range v.dims.words {
		if key[i] != 0 && !slices.Contains(t.uses, uint8(i+1)) {
			return refuseTag(api.CombinationNotAllowed, topic, "tags."+name, "the topic takes no such tag: leave it out")
		}
	}
	for _, d := range t.uses {
		name := v.dims.word(d)
		if takes := v.takes(topic, name); !slices.Contains(takes, v.values[d-1].word(key[d-1])) {
			return refuseTag(api.CombinationNotAllowed, topic, "tags."+name, "the topic takes: "+joinSome(takes))
		}
	}
	return refuseTag(api.CombinationNotAllowed, topic, "tags", "each value is taken, but not together: see the topic's allow in catalog.yaml")
}

// takes lists the values of a dimension that a topic takes in some combination.
func (v *vocabulary) takes(topic, dimension string) []string {
	var values []string
	for _, c := range v.combos {
		for _, t := range c.tags {
			if c.topic == topic && t.Name == dimension && !slices.Contains(values, t.Value) {
				values = append(values, t.Value)
			}
		}
	}
	return values
}

func refuseTag(code api.Code, topic, field, hint string) error {
	return &api.Error{Code: code, Op: "classify", Topic: topic, Field: field, Hint: hint}
}
