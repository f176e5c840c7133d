# The product's own part of every policy. It joins what the authors' packages say
# about one question: anything unknown denies, a forbid wins over every permit, and
# no permit reaches outside the record's boundary.
package domicile.kernel

import data.domicile.facts

decision := {
	"allow": allow,
	"regions": regions,
	"destinations": destinations,
	"reasons": reasons,
	"permits": permits,
	"forbids": forbids,
	"requires": requires,
}

packages contains p if some p in facts.topics[input.topic].packages

permits contains {"by": p, "finding": f} if {
	some p in packages
	some f in data.residency.rules[p].permit
}

forbids contains {"by": p, "finding": f} if {
	some p in packages
	some f in data.residency.rules[p].forbid
}

requires contains {"by": p, "finding": f} if {
	some p in packages
	some f in data.residency.rules[p].require
}

destinations contains {"by": p, "finding": f} if {
	some p in packages
	some f in data.residency.rules[p].destination
}

# Written as what must hold, not as what must not: a field that is missing makes this
# undefined, so false, where a `not` over it would be skipped.
default all_known := false

all_known if {
	facts.values.point[input.point]
	facts.topics[input.topic]
	facts.values["principal.class"][input.principal.class]
	facts.boundary_of[input.principal.place] == input.principal.boundary
	facts.boundary_of[input.origin.region] == input.origin.boundary
	facts.boundary_of[input.target.region] == input.target.boundary
	every name, values in facts.tags {
		values[input.tags[name]]
	}
}

floor := {r | some r in facts.floor[input.tags.residency]}

permitted := {r | some x in permits; some r in x.finding.regions}

banned := {r | some x in forbids; some r in object.get(x.finding, "regions", facts.regions)}

# Transit has no floor: passing through is a rule's to permit.
within := permitted if input.point == "transit"

within := permitted & floor if input.point != "transit"

default regions := set()

regions := within - banned if {
	all_known
	count(requires) == 0
}

default reader_inside := false

reader_inside if input.tags.residency == "global"

reader_inside if input.principal.place in floor

default allow := false

allow if {
	input.point == "admit"
	count(regions) > 0
}

allow if {
	input.point in {"transit", "mirror_egress", "mirror_ingress"}
	input.target.region in regions
}

allow if {
	input.point == "consume"
	input.target.region in regions
	reader_inside
}

# Regions the question is about: for admit every region, else the target.
default asked := set()

asked := {r | some r in facts.regions} if input.point == "admit"

asked := {input.target.region} if input.point != "admit"

reasons contains {"code": "D101_PERMITTED", "rule": rule_name(x), "text": text(x)} if {
	some x in permits
	some r in x.finding.regions
	r in asked
}

reasons contains {"code": "D201_FORBIDDEN", "rule": rule_name(x), "text": text(x)} if {
	some x in forbids
	some r in object.get(x.finding, "regions", facts.regions)
	r in asked
}

reasons contains {"code": "D406_OBLIGATION", "rule": rule_name(x), "text": "this version performs no obligations, so what requires one is refused"} if {
	some x in requires
}

reasons contains {"code": "D202_OUTSIDE_BOUNDARY", "rule": "", "text": "a record rests in its boundary only"} if {
	count((permitted & asked) - within) > 0
}

reasons contains {"code": "D301_NO_PERMIT", "rule": "", "text": sprintf("no rule of %s permits it", [concat(", ", packages)])} if {
	count(permitted & asked) == 0
}

reasons contains {"code": "D203_READER_PLACE", "rule": "", "text": "a resident record goes to readers with a place in its boundary only"} if {
	input.point == "consume"
	not reader_inside
}

reasons contains {"code": "D304_UNKNOWN_VALUE", "rule": "", "text": "a field holds a value outside the vocabulary"} if {
	not all_known
}

rule_name(x) := sprintf("%s/%s", [x.by, x.finding.rule])

text(x) := object.get(x.finding, "text", "")
