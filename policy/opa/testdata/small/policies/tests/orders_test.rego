package residency.tests.orders

import data.domicile.kernel.decision
import data.domicile.question

test_eu_order_rests_in_eu_only if {
	d := decision with input as question.admit("orders", {"residency": "eu", "class": "order"}, {"class": "app", "place": "us-east"}, "us-east")
	d.allow
	d.regions == {"eu-west"}
}
