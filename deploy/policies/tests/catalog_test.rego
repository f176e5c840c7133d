package residency.tests.catalog

import data.domicile.kernel.decision
import data.domicile.question

app := {"class": "app", "place": "us-east"}

tags := {"residency": "global", "class": "catalog"}

test_update_may_be_everywhere if {
	d := decision with input as question.admit("catalog.updates", tags, app, "us-east")
	d.allow
	d.regions == {"ap-south", "eu-west", "us-east"}
}

test_update_passes_through if {
	d := decision with input as question.transit("catalog.updates", tags, app, "us-east")
	d.allow
}

test_update_is_read_without_a_place if {
	d := decision with input as question.consume("catalog.updates", tags, {"class": "app", "place": "none"}, "eu-west", "us-east")
	d.allow
}
