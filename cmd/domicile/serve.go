package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/gateway/node"
)

// closeWithin bounds a graceful stop: what is in flight is finished and told, then
// the node goes.
const closeWithin = 30 * time.Second

func (a *app) serveCommand() *cobra.Command {
	var path string
	var dev, rejoin bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run this region's node",
		Long: `Runs until it is told to stop (SIGTERM or Ctrl-C): then it takes no new record,
finishes those in flight and closes its logs. SIGHUP reads
federation.yaml and the policy directory again.
With --dev the door and the admin address need no certificates and take everybody as
the caller dev; that is for this machine only. Links between regions are always
encrypted.
A node of a region of three whose disk lacks what it once had takes no part. With
--rejoin it is filled from the other two nodes, which both have to be up and whole;
status says what it waits for. Leave the flag away at the next start.
If node.yaml names the witness of federation.yaml as its region, this runs a witness: it
votes on where logs are, and has no store, no policy and no door.`,
		Example: "  domicile serve -c ./federation/eu-west/node.yaml",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, f, err := loadNode(path, dev)
			if err != nil {
				return err
			}
			if err := disableCoreDumps(); err != nil {
				return err
			}
			logger := c.Log.Logger()
			seams := node.Seams{Logger: logger, Dev: dev, Rejoin: rejoin, Version: version().Version}
			if c.Witness(f) {
				w, err := node.NewWitness(c, f, seams)
				if err != nil {
					return err
				}
				return serve(cmd.Context(), w, logger)
			}
			n, err := node.New(c, f, seams)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), n, logger)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "path of node.yaml")
	cmd.Flags().BoolVar(&dev, "dev", false, "no certificates at door and admin; this machine only")
	cmd.Flags().BoolVar(&rejoin, "rejoin", false, "the node's data is lost: have it filled by the region's other two nodes")
	return needs(cmd, "config")
}

// runner is the node as serve drives it.
type runner interface {
	Start(ctx context.Context) error
	Reload(ctx context.Context) error
	Close(ctx context.Context) error
}

// serve runs the node until ctx ends. A second signal during the graceful stop ends
// the process at once: acknowledged records are on disk at any moment.
func serve(ctx context.Context, n runner, logger *slog.Logger) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	startErr := n.Start(ctx)
	for startErr == nil && ctx.Err() == nil {
		select {
		case <-reload:
			if err := n.Reload(ctx); err != nil {
				logger.Warn("what was in force stays", "err", err)
			}
		case <-ctx.Done():
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	again, forget := signal.NotifyContext(stop, os.Interrupt, syscall.SIGTERM)
	defer forget()
	logger.Info("stopping: no new record is taken")
	closeErr := n.Close(again)
	if closeErr == nil {
		logger.Info("stopped")
	}
	if startErr != nil && interrupted(ctx, startErr) {
		startErr = nil
	}
	if errors.Is(closeErr, context.DeadlineExceeded) || errors.Is(closeErr, context.Canceled) {
		closeErr = &api.Error{Code: api.ShuttingDown, Op: "stop", Err: closeErr, Hint: "acknowledged records are on disk; what was in flight is unknown to its producers"}
	}
	return errors.Join(startErr, closeErr)
}
