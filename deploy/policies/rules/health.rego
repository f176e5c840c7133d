# Health records never leave their boundary and may not even pass through another
# region's memory: they are handed in where they may rest.
# METADATA
# scope: package
# labels:
#   owner: health data office
#   review_by: "2027-06-30"
package residency.rules.health

# METADATA
# labels:
#   article: GDPR Art. 9 and 44
permit contains {
	"rule": "in_boundary",
	"text": "a health record rests and is read inside its boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}

# METADATA
# labels:
#   article: GDPR Art. 9; decision 2026-8 of the health data office, no passing through
forbid contains {
	"rule": "never_in_transit",
	"text": "hand a health record in inside its own boundary; it may not pass through another region",
} if {
	input.point == "transit"
}

# METADATA
# labels:
#   article: GDPR Art. 9 (2) h and (3), professional secrecy
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
