package node

import (
	"context"
	"errors"
	"fmt"
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
type closers []func(context.Context) error

// close runs them all. No part may use up more than half of the time that is left:
// whatever hangs before the part that was opened first must not leave that one unclean.
func (c closers) close(ctx context.Context) error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		step, cancel := half(ctx)
		if i == 0 {
			step = ctx
		}
		if err := c[i](step); err != nil {
			errs = append(errs, err)
		}
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
