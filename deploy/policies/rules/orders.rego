# Resident orders stay in their boundary. An EU order may be handed in elsewhere: it
# passes through that region's memory to eu-west and is stored only there.
# METADATA
# scope: package
# labels:
#   owner: data protection office
#   review_by: "2027-06-30"
package residency.rules.orders

# METADATA
# labels:
#   article: GDPR Art. 44; for India RBI 2018/153, payment data stay in the country
permit contains {
	"rule": "in_boundary",
	"text": "an order rests, moves and is read inside its boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
}

# METADATA
# labels:
#   article: GDPR Art. 44, decision 2026-7 of the data protection office on passing through memory
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
