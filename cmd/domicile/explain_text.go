package main

import (
	"fmt"
	"strings"

	pb "domicile/api/domicile/v1"
	"domicile/policy/opa"
)

// explainView is one question's answer, from a node or from a directory.
type explainView struct {
	Allow       bool     `json:"allow"`
	Code        string   `json:"code,omitempty"`
	Regions     []string `json:"regions"`
	Destination string   `json:"destination,omitempty"`
	Reasons     []string `json:"reasons"`
	Floor       string   `json:"floor,omitempty"`
	Revision    string   `json:"revision"`
	Trace       string   `json:"trace,omitempty"`
}

func viewAnswer(r *pb.ExplainResponse) explainView {
	return explainView{
		Allow: r.GetAllow(), Code: r.GetCode(), Regions: r.GetRegions(), Destination: r.GetDestination(),
		Reasons: r.GetReasons(), Floor: r.GetFloor(), Revision: r.GetRevision(), Trace: r.GetTrace(),
	}
}

func viewExplanation(e *opa.Explanation) explainView {
	return explainView{
		Allow: e.Decision.Allow, Code: string(e.Decision.Code), Regions: e.Decision.Regions, Destination: e.Decision.Destination,
		Reasons: e.Because(), Floor: e.Floor, Revision: e.Revision, Trace: e.Trace,
	}
}

func renderExplain(v explainView, withTrace bool) string {
	var b strings.Builder
	verdict := "allowed"
	if !v.Allow {
		verdict = "denied: " + v.Code
	}
	fmt.Fprintf(&b, "%s (policy %s)\n", verdict, firstOf(v.Revision, unknown))
	rows := [][]string{}
	if len(v.Regions) > 0 {
		rows = append(rows, []string{"regions", strings.Join(v.Regions, ", ")})
	}
	if v.Destination != "" {
		rows = append(rows, []string{"goes to", v.Destination})
	}
	if v.Floor != "" {
		rows = append(rows, []string{"boundary", v.Floor})
	}
	for i, r := range v.Reasons {
		label := ""
		if i == 0 {
			label = "because"
		}
		rows = append(rows, []string{label, r})
	}
	table(&b, "  ", rows)
	if withTrace && v.Trace != "" {
		b.WriteString("\n" + strings.TrimRight(v.Trace, "\n") + "\n")
	}
	return b.String()
}
