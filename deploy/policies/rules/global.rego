# Records that are resident nowhere: they may be stored, sent and read everywhere.
package residency.rules.global

permit contains {
	"rule": "everywhere",
	"text": "a global record may be in every region",
	"regions": data.federation.regions,
} if {
	input.tags.residency == "global"
}
