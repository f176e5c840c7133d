package main

import (
	"github.com/spf13/cobra"
)

func (a *app) drillCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "drill", Short: "Cut a region off on purpose, and find out what holds",
		Long: `An isolation drill cuts the links of one region on a running federation. What is cut is a
lease in the memory of the nodes: it heals by itself whatever dies. federation.yaml says
whether drills are permitted (drills: {max_for: 15m, approvals: 1, windows: [Mon-Fri
09:00-16:00]}). The regions are those that the contexts name; of a region of three each node.

Exit codes: 0 all that was expected holds, 1 an expectation failed, 2 refused, 3 the drill
was not under control to its end, 4 nobody can say.`,
		Example: "  domicile drill matrix\n  domicile drill plan isolate eu-west --reason OPS-7\n  domicile drill run isolate-eu-west.yaml",
	}
	group.AddCommand(a.drillReport(), a.drillVerify(), a.drillMatrix(), a.drillPlan(), a.drillApprove(), a.drillSimulate(), a.drillBubble(), a.drillRun(), a.drillCanary(), a.drillStatus(),
		a.drillEnd("abort ID", "End a drill now, in every region", "Whoever runs it sees that it was healed, and goes on to its report.", "  domicile drill abort 20261130-100000-x2y3", true),
		a.drillEnd("heal [ID]", "Heal whatever drill is held, in every region", "For when nobody knows what is being held. Faults that are no drill's are left alone.", "  domicile drill heal", false))
	return group
}
