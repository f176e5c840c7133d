package link_test

import (
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// wrongClock is a steady clock that is off, and that can be set while it runs, as the
// clock of a machine that was suspended is.
type wrongClock struct {
	*regions.SteadyClock
	off atomic.Int64
}

func newWrongClock(off time.Duration) *wrongClock {
	c := &wrongClock{SteadyClock: regions.NewSteadyClock()}
	c.off.Store(int64(off))
	return c
}

func (c *wrongClock) Now() time.Time { return c.SteadyClock.Now().Add(time.Duration(c.off.Load())) }

// longLived is an identity that is valid by any of these clocks.
func (l *lab) longLived(ca *identity.Authority, name string, clock regions.Clock) *identity.Identity {
	l.t.Helper()
	cert, key, err := ca.Issue(identity.Region, name, time.Now().Add(-6*time.Hour), 12*time.Hour)
	if err != nil {
		l.t.Fatal(err)
	}
	return must(identity.New(cert, key, ca.CertPEM(), clock))
}

func measured(off time.Duration) func(regions.LinkStatus) bool {
	return func(s regions.LinkStatus) bool {
		return s.Up && s.OffsetOK && (s.Offset-off).Abs() < time.Second && s.OffsetErr < time.Second
	}
}

// B03: a clock that is an hour off, or that is set by an hour while the link is up,
// takes the link down for no longer than a new session needs; the offset is measured
// at both ends, and after the step it is the new one and not the old.
func TestB03_ClockAnHourOffAndStepping(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 1, "eu-west", "us-east")
			ca := must(identity.NewCA("shop", time.Now().Add(-12*time.Hour), 24*time.Hour))
			wrong := newWrongClock(off)
			for name, clock := range map[string]regions.Clock{"eu-west": regions.NewSteadyClock(), "us-east": wrong} {
				l.remake(name, func(r *region) {
					r.config.Clock, r.config.Identity = clock, l.longLived(ca, name, clock)
				})
				l.start(name)
			}
			l.await("eu-west", "us-east", "up and measured", measured(off))
			l.await("us-east", "eu-west", "up and measured", measured(-off))
			since := l.regions["eu-west"].link("us-east").Since
			never(t, 4*time.Second, "the link went down", func() bool {
				s := l.regions["eu-west"].link("us-east")
				return !s.Up || !s.Since.Equal(since)
			})
			o := newOutcomes(t)
			l.regions["us-east"].Forward("eu-west", record("id", 1), o.done("id"))
			if r := o.await(1)["id"]; r.err != nil {
				t.Errorf("a forward between the two: %v", r.err)
			}
			for _, to := range []time.Duration{-off, 0} {
				wrong.off.Store(int64(to))
				l.awaitFor(30*time.Second, "eu-west", "us-east", "measured anew", measured(to))
				l.awaitFor(30*time.Second, "us-east", "eu-west", "measured anew", measured(-to))
			}
		})
	}
}

// A certificate is judged by the clock of the node that judges: one hour behind, it has
// not begun.
func TestB55_CertificateIsJudgedByTheNodesOwnClock(t *testing.T) {
	t.Parallel()
	for off, says := range map[time.Duration]string{-2 * time.Hour: "certificate not valid yet", 3 * time.Hour: "certificate expired"} {
		l := newLab(t, 1, "eu-west", "us-east")
		ca := must(identity.NewCA("shop", time.Now().Add(-12*time.Hour), 24*time.Hour))
		now := func(name string, clock regions.Clock) func(*region) {
			return func(r *region) {
				cert, key, err := ca.Issue(identity.Region, name, time.Now(), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				r.config.Clock, r.config.Identity = clock, must(identity.New(cert, key, ca.CertPEM(), clock))
			}
		}
		l.remake("eu-west", now("eu-west", newWrongClock(off)))
		l.remake("us-east", now("us-east", regions.NewSteadyClock()))
		l.start("eu-west")
		l.start("us-east")
		l.await("eu-west", "us-east", "refused", refusedWith(api.PermissionDenied, says))
		if s := l.regions["us-east"].link("eu-west"); s.Up {
			t.Error("the other end takes the link for up")
		}
	}
}
