package residency.tests.health

import data.domicile.kernel.decision
import data.domicile.question

app := {"class": "app", "place": "eu-west"}

eu := {"residency": "eu", "class": "health"}

test_health_record_rests_at_home if {
	d := decision with input as question.admit("health.records", eu, app, "eu-west")
	d.allow
	d.regions == {"eu-west"}
}

test_health_record_passes_through_nowhere if {
	every region in data.federation.regions {
		d := decision with input as question.transit("health.records", eu, app, region)
		not d.allow
	}
}

test_health_record_is_never_mirrored_out if {
	d := decision with input as question.mirror_egress("health.records", eu, "eu-west", "us-east")
	not d.allow
}

test_operator_reads_no_health_record if {
	d := decision with input as question.consume("health.records", eu, {"class": "operator", "place": "eu-west"}, "eu-west", "eu-west")
	not d.allow
}
