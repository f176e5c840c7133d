package policy

import (
	"domicile/api"
	"domicile/regions/strict"
)

// Point is one of the five places on a record's walk at which policy is asked.
type Point uint8

// The points. The zero Point is none of them and is always refused.
const (
	Admit         Point = iota + 1 // where may this record rest, and where does it go
	Transit                        // may it pass through this region's memory
	MirrorEgress                   // may a copy leave for the target
	MirrorIngress                  // may a copy that arrived rest at the target
	Consume                        // may this reader have it
	points        = int(Consume) + 1
)

var pointNames = [points]string{"none", "admit", "transit", "mirror_egress", "mirror_ingress", "consume"}

// String is the name policies know the point by, for example "mirror_egress".
func (p Point) String() string {
	if int(p) < points {
		return pointNames[p]
	}
	return pointNames[0]
}

// ParsePoint reads what String writes. Anything else is refused with BadRequest.
func ParsePoint(s string) (Point, error) {
	for p := Admit; p <= Consume; p++ {
		if pointNames[p] == s {
			return p, nil
		}
	}
	return 0, &api.Error{Code: api.BadRequest, Op: "read point", Field: "point", Value: s,
		Hint: hintNearest("", s, pointNames[1:])}
}

// denial is the code people see when policy refuses at the point.
func (p Point) denial() api.Code {
	switch p {
	case Transit:
		return api.TransitDenied
	case Consume:
		return api.ReadDenied
	default:
		return api.ResidencyDenied
	}
}

// AsksWho reports whether the point has a principal.
func (p Point) AsksWho() bool { return p == Admit || p == Transit || p == Consume }

func hintNearest(prefix, word string, known []string) string {
	if near := strict.Nearest(word, known); near != "" {
		return prefix + `did you mean "` + near + `"?`
	}
	return prefix + "known: " + joinSome(known)
}
