package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// askWithin bounds every question to a node that it answers from memory.
const askWithin = 5 * time.Second

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what is wrong, what it means and what can be done",
		Long: `Asks one node, which answers from what it knows itself, also while every other region
is out of reach. A witness says how it votes, and no more. Exit code: 0 all is well, 3 degraded, 1 this node is failing, 4 nobody
answered.`,
		Example: "  domicile status --context us-east",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askWithin)
			defer cancel()
			c, err := a.dial(toAdmin)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.Status(ctx)
			if api.CodeOf(err) == api.BadRequest { // the address serves no such question
				if m, asking := c.Placements(ctx, "", ""); asking == nil && m.GetAuthority().GetWitness() {
					return a.witnessStatus(m)
				}
			}
			if err != nil {
				return asked(err)
			}
			if err := a.printStatus(s); err != nil {
				return err
			}
			return ended(levelCode(s.GetLevel()))
		},
	}
}

// witnessStatus is the status of a node that votes and does nothing else.
func (a *app) witnessStatus(m *pb.PlacementsResponse) error {
	s := m.GetAuthority()
	verdict, code := m.GetRegion()+" votes, and hears a leader", exitOK
	switch {
	case s.GetTrouble() != "":
		verdict, code = m.GetRegion()+" has a trouble", exitDegraded
	case s.GetLeader() == "":
		verdict, code = m.GetRegion()+" hears no leader of the voters: it helps nobody decide now", exitDegraded
	}
	if a.json() {
		if err := a.printJSON(viewAuthority(s)); err != nil {
			return err
		}
		return ended(code)
	}
	var b strings.Builder
	fmt.Fprintln(&b, verdict)
	table(&b, "  ", voterRows(s))
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return err
	}
	return ended(code)
}

func (a *app) printStatus(s *pb.StatusResponse) error {
	if a.json() {
		return a.printJSON(viewStatus(s))
	}
	_, err := io.WriteString(a.out, renderStatus(s, a.now()))
	return err
}

func levelCode(level string) exitCode {
	switch level {
	case "ok":
		return exitOK
	case "degraded":
		return exitDegraded
	case "failed":
		return exitFailure
	}
	return exitUnknown
}
