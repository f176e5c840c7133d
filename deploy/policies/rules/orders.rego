# Resident orders stay in their boundary. An EU order may be handed in elsewhere: it
# passes through that region's memory to eu-west and is stored only there.
package residency.rules.orders

permit contains {
	"rule": "in_boundary",
	"text": "an order rests, moves and is read inside its boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}

permit contains {
	"rule": "eu_in_transit",
	"text": "an EU order may pass through memory on its way home",
	"regions": {"us-east", "ap-south"},
} if {
	input.point == "transit"
	input.tags.residency == "eu"
}

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"

destination contains "ap-south" if input.tags.residency == "in"
