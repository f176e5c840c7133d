package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// steps open something, part by part.
type steps []struct {
	name string
	run  func(context.Context) error
}

// run takes the steps in order and stops at the first that fails.
func (s steps) run(ctx context.Context) error {
	for _, step := range s {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("start %s: %w", step.name, err)
		}
	}
	return nil
}

// closers close what was opened, last first.
type closers []struct {
	name string
	run  func(context.Context) error
}

// add notes how to close one more part.
func (c *closers) add(name string, run func(context.Context) error) {
	*c = append(*c, struct {
		name string
		run  func(context.Context) error
	}{name, run})
}

// close runs them all. No part may use up more than half of the time that is left:
// whatever hangs before the part that was opened first must not leave that one unclean.
func (c closers) close(ctx context.Context, logger *slog.Logger) error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		step, cancel := half(ctx)
		if i == 0 {
			step = ctx
		}
		errs = append(errs, awaited(logger, c[i].name, func() error { return c[i].run(step) }))
		cancel()
	}
	return errors.Join(errs...)
}

// half is a context with half of the time that ctx has left.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// slowEnd is how long a part may take to end before the log says that it is waited for.
const slowEnd = 2 * time.Second

// awaited runs what ends a part. As long as that takes, the log names the part; its error
// does too, with the time.
func awaited(logger *slog.Logger, part string, run func() error) error {
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- run() }()
	tick := time.NewTicker(slowEnd)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			logger.Warn("waiting for a part to end", "part", part, "since", time.Since(began).Round(time.Millisecond))
		case err := <-ended:
			took := time.Since(began).Round(time.Millisecond)
			if took >= slowEnd {
				logger.Warn("a part took long to end", "part", part, "took", took, "err", err)
			}
			if err != nil {
				return fmt.Errorf("end %s, after %s: %w", part, took, err)
			}
			return nil
		}
	}
}
