package invariant

import "strings"

// noOffer: no region's advice offers to move a log. This version has no failover at
// all, so none may be offered for any topic, least of all for a resident one; a line
// that says nothing can be done may say why.
func noOffer(e *evidence) {
	for i := range e.history.Events {
		a := e.history.Events[i].Advice
		if a == nil {
			continue
		}
		for _, line := range a.Lines {
			e.judged(NoOffer)
			text := strings.ToLower(line)
			for _, word := range []string{"failover", "fail over", "promote", "take over"} {
				if strings.Contains(text, word) && !strings.Contains(text, "nothing") {
					e.broken(Violation{Number: NoOffer, Region: a.Region, At: e.history.Events[i].At, Text: "its advice offers what no rule allows: " + word})
				}
			}
		}
	}
}
