package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
)

func (a *app) lagCommand() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "lag [TOPIC]",
		Short: "Show in seconds how far behind every copy is",
		Long: `LAG is the age of the copy at its target. EXPOSURE is what would be lost with the
origin. Both are counted from what this node knows; "unknown" is never zero.`,
		Example: "  domicile lag --watch",
		Args:    arguments(0, 1, "at most a TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && interval < 100*time.Millisecond {
				return usage("--interval %s: at least 100ms", interval)
			}
			request := &pb.LagRequest{Watch: watch, IntervalNano: int64(interval)}
			if len(args) == 1 {
				request.Topic = args[0]
			}
			return a.lag(cmd.Context(), request)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "with --watch: how often")
	return cmd
}

func (a *app) lag(ctx context.Context, request *pb.LagRequest) error {
	if !request.GetWatch() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askWithin)
		defer cancel()
	}
	c, err := a.dial(toAdmin)
	if err != nil {
		return err
	}
	defer c.Close()
	first := true
	err = c.Lag(ctx, request, func(r *pb.LagResponse) error {
		defer func() { first = false }()
		return a.printLag(r, first)
	})
	if request.GetWatch() && interrupted(ctx, err) {
		return nil
	}
	return asked(err)
}

// lagAnswer is the JSON of one answer.
type lagAnswer struct {
	Now    *time.Time `json:"now"`
	Region string     `json:"region"`
	From   string     `json:"from,omitempty"` // the node that knows, if it is another than was asked
	Logs   []*lagView `json:"logs"`
}

func (a *app) printLag(r *pb.LagResponse, first bool) error {
	if a.json() {
		answer := lagAnswer{Now: timeView(r.GetNowUnixNano()), Region: r.GetRegion(), From: r.GetFrom(), Logs: []*lagView{}}
		for _, l := range r.GetLogs() {
			answer.Logs = append(answer.Logs, viewLag(l))
		}
		return a.printJSON(answer)
	}
	text := renderLag(r)
	switch {
	case first:
	case terminal(a.out):
		if _, err := io.WriteString(raw(a.out), "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	default:
		text = "\n" + text
	}
	_, err := io.WriteString(a.out, text)
	return err
}
