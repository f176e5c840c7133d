package residency.tests.orders

import data.domicile.kernel.decision
import data.domicile.question

app := {"class": "app", "place": "us-east"}

eu := {"residency": "eu", "class": "order"}

everywhere := {"residency": "global", "class": "order"}

test_eu_order_rests_in_eu_only if {
	d := decision with input as question.admit("orders", eu, app, "us-east")
	d.allow
	d.regions == {"eu-west"}
	{x.finding | some x in d.destinations} == {"eu-west"}
}

test_eu_order_passes_through if {
	some region in ["us-east", "ap-south"]
	d := decision with input as question.transit("orders", eu, app, region)
	d.allow
}

test_us_order_does_not_pass_through if {
	d := decision with input as question.transit("orders", {"residency": "us", "class": "order"}, app, "eu-west")
	not d.allow
}

test_resident_order_is_never_mirrored_out if {
	every target in ["us-east", "ap-south"] {
		out := decision with input as question.mirror_egress("orders", eu, "eu-west", target)
		not out.allow
		back := decision with input as question.mirror_ingress("orders", eu, "eu-west", target)
		not back.allow
	}
}

test_global_order_is_mirrored_everywhere if {
	every target in ["us-east", "ap-south"] {
		d := decision with input as question.mirror_egress("orders", everywhere, "eu-west", target)
		d.allow
	}
}

test_reader_abroad_gets_no_eu_order if {
	d := decision with input as question.consume("orders", eu, app, "eu-west", "eu-west")
	not d.allow
}

test_reader_without_place_gets_no_eu_order if {
	d := decision with input as question.consume("orders", eu, {"class": "app", "place": "none"}, "eu-west", "eu-west")
	not d.allow
}

test_reader_in_eu_gets_eu_order if {
	d := decision with input as question.consume("orders", eu, {"class": "app", "place": "eu-west"}, "eu-west", "eu-west")
	d.allow
}

test_untagged_order_is_refused if {
	d := decision with input as question.admit("orders", {"class": "order"}, app, "us-east")
	not d.allow
}
