package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// RA4: of a stop that takes too long, log and error say which part it waited for, and for
// how long; the log says so already while it waits. The part that was opened first still
// has its time.
func TestRA4_AStopNamesThePartItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
		defer cancel()
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var c closers
		left := time.Duration(0)
		c.add("store", func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return nil
		})
		waiting := ""
		c.add("mirror", func(ctx context.Context) error {
			<-ctx.Done()
			synctest.Wait()
			waiting = log.String()
			return ctx.Err()
		})
		c.add("door", func(context.Context) error { return nil })
		err := c.close(ctx, logger)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "end mirror, after 10.5s") {
			t.Errorf("the stop says: %v", err)
		}
		if !strings.Contains(waiting, "part=mirror since=10s") || !strings.Contains(log.String(), "part=mirror took=10.5s") {
			t.Errorf("the log says:\n%s", log.String())
		}
		if strings.Contains(log.String(), "part=door") || strings.Contains(log.String(), "part=store") {
			t.Errorf("the log accuses who was quick:\n%s", log.String())
		}
		if left < 10*time.Second {
			t.Errorf("the store has %s left", left)
		}
	})
}
