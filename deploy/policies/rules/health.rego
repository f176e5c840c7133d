# Health records never leave their boundary and may not even pass through another
# region's memory: they are handed in where they may rest.
package residency.rules.health

permit contains {
	"rule": "in_boundary",
	"text": "a health record rests and is read inside its boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}

forbid contains {
	"rule": "never_in_transit",
	"text": "hand a health record in inside its own boundary; it may not pass through another region",
} if {
	input.point == "transit"
}

forbid contains {
	"rule": "not_for_operators",
	"text": "operators do not read health records",
} if {
	input.point == "consume"
	input.principal.class == "operator"
}

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"

destination contains "ap-south" if input.tags.residency == "in"
