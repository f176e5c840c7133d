package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"domicile/api"
)

// Pauses between tries grow from the first to the longest, with jitter.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// trial is what is known of one record that was sent one or more times.
type trial struct {
	sent  int
	retry api.Retry // what the next try says of those before
	last  error
}

// failed notes the outcome of a try and says whether, and when, to try again.
func (t *trial) failed(err error, attempts int) (pause time.Duration, again bool) {
	t.sent++
	t.last = err
	code := api.CodeOf(err)
	var e *api.Error
	errors.As(err, &e)
	if code.Stored() == api.StoredUnknown {
		t.retry.Again = true
		if t.retry.Log == (api.LogID{}) && e != nil {
			t.retry.Log = e.Log
		}
	}
	if !code.Retryable() || attempts > 0 && t.sent >= attempts {
		return 0, false
	}
	pause = backoff(t.sent)
	if e != nil && e.RetryAfter > pause {
		pause = min(e.RetryAfter, longestPause)
	}
	return pause, true
}

// backoff is the pause before try number tries+1.
func backoff(tries int) time.Duration {
	d := longestPause
	if tries < 6 {
		d = firstPause << (tries - 1)
	}
	return d/2 + rand.N(d/2+1)
}

// verdict is the outcome of a record that was not acknowledged. A refusal says only
// that the last try stored nothing: if an earlier one may have, the outcome stays
// unknown.
func (t *trial) verdict() error {
	if t.last == nil && !t.retry.Again {
		return &api.Error{Code: api.NotReady, Op: "publish", Hint: "no address of the region took the record in time; nothing was sent"}
	}
	var e *api.Error
	if !t.retry.Again || errors.As(t.last, &e) && e.Code == api.OutcomeUnknown && e.Log == t.retry.Log {
		return t.last
	}
	return &api.Error{Code: api.OutcomeUnknown, Op: "publish", Log: t.retry.Log, Err: t.last, Hint: "an earlier try may have been stored; send it again with the same id"}
}

// sleep waits, or returns false when ctx ends first or would end before.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
