package policy

import (
	"fmt"

	"domicile/api"
)

// None stands in a question for what does not apply: no place, no principal, no
// target, a dimension the topic does not use. No dimension, class or region may be
// called so.
const None = "none"

// Cell is all that policy ever sees of a record: ids of one generation's closed
// vocabularies. Cells are equal exactly when they are the same question to the same
// generation. The zero Cell is unknown and is refused.
type Cell struct {
	serial         int64
	combo          uint32 // of topic and tags, from 1
	point          Point
	class, place   uint8 // from 1; 0: none
	origin, target uint8 // from 1; 0: none
	outside        bool  // a value outside the vocabulary: always refused
}

// Combo is an allowed combination of tag values of one topic, an id of one
// generation. The zero Combo is none.
type Combo struct{ id uint32 }

// Question is a cell in words. Fields that do not apply to the point are None. The
// tags of a question that a Generation gave are shared: do not change them.
type Question struct {
	Point  Point
	Topic  string
	Tags   []api.Tag // one per dimension of the catalog, sorted by name
	Class  string    // of the principal
	Place  string    // of the principal: a region, or None
	Origin string    // region where the record was published, or whose log it is in
	Target string    // region the record would pass through, rest in or be read in
}

// String is the question on one line, for errors and reports.
func (q Question) String() string {
	return fmt.Sprintf("%s topic=%s tags=%s class=%s place=%s origin=%s target=%s",
		q.Point, q.Topic, api.TagString(q.Tags), q.Class, q.Place, q.Origin, q.Target)
}

// layout numbers the cells of a domain without holes per point, so that the table
// is an array and a look-up is one multiplication chain and one load.
type layout struct {
	combos, classes, places, regions uint32
	base                             [points + 1]uint32 // first index of each point
}

func newLayout(combos, classes, regions int) layout {
	l := layout{combos: uint32(combos), classes: uint32(classes), places: uint32(regions) + 1, regions: uint32(regions)}
	for p := Admit; p <= Consume; p++ {
		l.base[p+1] = l.base[p] + l.combos*l.perCombo(p)
	}
	return l
}

// perCombo is how many slots a point has for each combination.
func (l layout) perCombo(p Point) uint32 {
	switch p {
	case Admit, Transit:
		return l.classes * l.places * l.regions
	case MirrorEgress, MirrorIngress:
		return l.regions * l.regions
	case Consume:
		return l.classes * l.places * l.regions * l.regions
	}
	return 0
}

func (l layout) size() uint32 { return l.base[points] }

// domainSize is how many slots are real questions: a region does not mirror to itself.
func domainSize(combos, classes, regions uint64) uint64 {
	who := classes * (regions + 1)
	return combos * (2*who*regions + 2*regions*(regions-1) + who*regions*regions)
}

// index is the cell's place in the table. ok is false for anything that is not a
// cell of this layout.
func (l layout) index(c Cell) (i uint32, ok bool) {
	if c.outside || c.combo == 0 || c.combo > l.combos || uint32(c.target) > l.regions || uint32(c.origin) > l.regions {
		return 0, false
	}
	i = c.combo - 1
	if c.point.AsksWho() {
		if c.class == 0 || uint32(c.class) > l.classes || uint32(c.place) >= l.places {
			return 0, false
		}
		i = (i*l.classes+uint32(c.class)-1)*l.places + uint32(c.place)
	} else if c.class != 0 || c.place != 0 {
		return 0, false
	}
	switch c.point {
	case Admit:
		if c.origin == 0 || c.target != 0 {
			return 0, false
		}
		i = i*l.regions + uint32(c.origin) - 1
	case Transit:
		if c.origin != c.target || c.target == 0 {
			return 0, false
		}
		i = i*l.regions + uint32(c.target) - 1
	case MirrorEgress, MirrorIngress, Consume:
		if c.origin == 0 || c.target == 0 {
			return 0, false
		}
		i = (i*l.regions+uint32(c.origin)-1)*l.regions + uint32(c.target) - 1
	default:
		return 0, false
	}
	return l.base[c.point] + i, true
}

// cell is the inverse of index. ok is false for a slot that is no question.
func (l layout) cell(i uint32) (c Cell, ok bool) {
	for c.point = Consume; c.point > Admit && i < l.base[c.point]; {
		c.point--
	}
	i -= l.base[c.point]
	pop := func(n uint32) uint8 {
		v := i % n
		i /= n
		return uint8(v)
	}
	if c.point != Admit {
		c.target = pop(l.regions) + 1
	}
	switch c.point {
	case Transit:
		c.origin = c.target
	default:
		c.origin = pop(l.regions) + 1
	}
	if c.point.AsksWho() {
		c.place = pop(l.places)
		c.class = pop(l.classes) + 1
	} else if c.origin == c.target {
		return Cell{}, false
	}
	c.combo = i + 1
	return c, true
}
