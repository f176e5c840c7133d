# Whole questions for authors' tests: `decision.allow with input as question.admit(...)`.
# A tag that is left out is "none"; a principal is {"class": ..., "place": ...}.
package domicile.question

import data.domicile.facts

admit(topic, tags, principal, origin) := ask("admit", topic, tags, principal, origin, "none")

transit(topic, tags, principal, region) := ask("transit", topic, tags, principal, region, region)

mirror_egress(topic, tags, origin, target) := ask("mirror_egress", topic, tags, nobody, origin, target)

mirror_ingress(topic, tags, origin, target) := ask("mirror_ingress", topic, tags, nobody, origin, target)

consume(topic, tags, principal, origin, target) := ask("consume", topic, tags, principal, origin, target)

nobody := {"class": "none", "place": "none"}

ask(point, topic, tags, principal, origin, target) := {
	"point": point,
	"topic": topic,
	"tags": object.union(facts.no_tags, tags),
	"principal": {"class": principal.class, "place": principal.place, "boundary": boundary(principal.place)},
	"origin": {"region": origin, "boundary": boundary(origin)},
	"target": {"region": target, "boundary": boundary(target)},
}

boundary(region) := object.get(facts.boundary_of, region, "unknown")
