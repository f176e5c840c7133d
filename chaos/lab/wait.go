package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"domicile/regions"
)

// The names of what the lab reads on metrics pages.
const (
	LagSeconds      = "domicile_mirror_lag_seconds"
	SafeTimeSeconds = "domicile_mirror_safe_time_seconds"
	PendingRecords  = "domicile_mirror_pending_records"
	MirrorState     = "domicile_mirror_state"
	SeatHeld        = "domicile_seat_held"
	LinkUp          = "domicile_link_up"
	PolicyActive    = "domicile_policy_active"
)

const (
	pollEvery = 50 * time.Millisecond
	linkedIn  = 3 * time.Minute
	// mostQuiets bounds what moves and does not come to its end.
	mostQuiets = 5
)

// Linked waits until every running region has a policy and sees all its links to
// other running regions up, for at most three minutes: a busy machine compiles policies that long.
func (l *Lab) Linked(ctx context.Context) error {
	return Poll(ctx, linkedIn, func() error {
		for _, r := range l.Regions() {
			if r.Node() == nil {
				continue
			}
			if err := r.linked(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Region) linked(ctx context.Context) error {
	page, err := r.Metrics(ctx)
	if err != nil {
		return err
	}
	up := map[string]bool{}
	active := false
	for _, m := range page {
		switch m.Name {
		case LinkUp:
			up[m.Labels["peer"]] = m.Value == 1
		case PolicyActive:
			active = m.Value == 1
		}
	}
	if !active {
		return fmt.Errorf("%s has no policy; its log says why", r.Name)
	}
	for _, peer := range r.lab.Federation.Peers(r.Name) {
		if r.lab.regions[peer].Node() != nil && !up[peer] {
			return fmt.Errorf("the link of %s to %s is not up", r.Name, peer)
		}
	}
	return nil
}

// CaughtUp waits until every copy in a running region is complete up to an instant,
// by the region's own exported safe time, for at most within.
func (l *Lab) CaughtUp(ctx context.Context, instant time.Time, within time.Duration) error {
	return Poll(ctx, within, func() error {
		for _, r := range l.Regions() {
			if r.Node() == nil {
				continue
			}
			if err := r.caughtUp(ctx, instant); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Region) caughtUp(ctx context.Context, instant time.Time) error {
	page, err := r.Metrics(ctx)
	if err != nil {
		return err
	}
	safe := map[string]float64{}
	for _, m := range page {
		if m.Name == SafeTimeSeconds && m.Labels["target"] == r.Name {
			safe[m.Labels["log"]] = m.Value
		}
	}
	for _, log := range r.Copies() {
		at, known := safe[log]
		if want := float64(instant.UnixMicro()) / 1e6; !known || at < want {
			return fmt.Errorf("%s in %s is complete up to %.3f (known: %v), want %.3f", log, r.Name, at, known, want)
		}
	}
	return nil
}

// Copies lists the logs of which this region gets copies, by the manifest.
func (r *Region) Copies() []string { return Copies(r.lab.Federation, r.Name) }

// Copies lists the logs of which a region gets copies, by the manifest.
func Copies(f *regions.Federation, region string) []string {
	var copies []string
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, log := range f.Logs(topic) {
			if slices.Contains(f.Targets(log), region) {
				copies = append(copies, log.String())
			}
		}
	}
	return copies
}

// Poll asks until the answer is nil, within a bound. Its error holds the last answer.
func Poll(ctx context.Context, within time.Duration, ask func() error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-bounded.Done():
			return errors.Join(context.Cause(bounded), err)
		case <-ticker.C:
		}
	}
}

// PollMoving is Poll for what takes as long as the machine takes: it gives up once there was
// no answer for quiet that had not been given before, and after mostQuiets times that in any
// case.
func PollMoving(ctx context.Context, quiet time.Duration, ask func() error) error {
	var still error
	seen, last := map[string]bool{}, time.Now()
	err := Poll(ctx, mostQuiets*quiet, func() error {
		err := ask()
		if err == nil {
			return nil
		}
		if text := err.Error(); !seen[text] {
			seen[text], last = true, time.Now()
		}
		if time.Since(last) > quiet {
			still = fmt.Errorf("nothing moved for %s: %w", quiet, err)
			return nil
		}
		return err
	})
	if still != nil {
		return still
	}
	return err
}

// Pass lets d go by. It ends early, with the cause, when ctx ends.
func Pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
