# Records that are resident nowhere: they may be stored, sent and read everywhere.
# METADATA
# scope: package
# labels:
#   owner: data protection office
#   review_by: "2027-06-30"
package residency.rules.global

# METADATA
# labels:
#   article: no personal data, so no rule on transfers applies
permit contains {
	"rule": "everywhere",
	"text": "a global record may be in every region",
	"regions": data.federation.regions,
} if {
	input.tags.residency == "global"
}
