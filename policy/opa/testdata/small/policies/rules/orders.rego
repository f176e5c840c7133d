package residency.rules.orders

permit contains {
	"rule": "in_boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
