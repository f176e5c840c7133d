package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
)

// askWithin bounds every question to a node that it answers from memory.
const askWithin = 5 * time.Second

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what is wrong, what it means and what can be done",
		Long: `Asks one node, which answers from what it knows itself, also while every other region
is out of reach. Exit code: 0 all is well, 3 degraded, 1 this node is failing, 4 nobody
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
