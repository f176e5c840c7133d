package link_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/link"
)

// shelf is a region's signed policy: what it hands out, and what it got.
type shelf struct {
	mu     sync.Mutex
	serial int64
	data   []byte
	got    []byte
	err    error
	met    int
}

func (s *shelf) Kept(serial int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if serial != s.serial {
		return nil
	}
	return s.data
}

func (s *shelf) Met(ctx context.Context, _ string, h regions.Hello, fetch link.Fetch) {
	if h.SignedPolicy == 0 {
		return
	}
	got, err := fetch(ctx, h.SignedPolicy)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got, s.err = got, err
	s.met++
}

func (s *shelf) replace(serial int64, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial, s.data = serial, data
}

// TestR14b_APolicyComesInPartsWholeOrNotAtAll hands out a policy of many parts. The line is
// cut after each of the first ones, and the policy is replaced by a newer one between two of
// them: nothing but the whole is ever taken, and once the line holds it comes before
// records pass.
func TestR14b_APolicyComesInPartsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	whole := bytes.Repeat([]byte("0123456789abcdef"), 40<<10)
	eu, us := &shelf{serial: 7, data: whole}, &shelf{}
	var parts atomic.Int32
	var after atomic.Pointer[func(part int32)]
	l.remake("eu-west", func(r *region) {
		r.config.Policies = eu
		r.hello.SignedPolicy = 7
		r.config.Hooks.Sending = func(m proto.Message) {
			if _, ok := m.(*pb.PolicyResponse); ok {
				n := parts.Add(1)
				if f := after.Load(); f != nil {
					(*f)(n)
				}
			}
		}
	})
	l.remake("us-east", func(r *region) { r.config.Policies = us })
	var cutAt atomic.Int32
	gates := l.regions["eu-west"].Gates()
	cut := func(part int32) {
		if part == cutAt.Load() {
			_, _ = gates.Cut("us-east", bothPlanes, bothWays, link.Reject, time.Minute)
		}
	}
	after.Store(&cut)
	cutAt.Store(1)
	for name := range l.regions {
		l.start(name)
	}
	for n := range int32(4) {
		eventually(t, 30*time.Second, func() string {
			if len(gates.Active()) == 0 {
				return "no part was cut off"
			}
			return ""
		})
		us.mu.Lock()
		if len(us.got) != 0 || us.met > 0 && us.err == nil {
			t.Errorf("cut after part %d, %d bytes were taken: %v", n+1, len(us.got), us.err)
		}
		us.mu.Unlock()
		if s := l.regions["us-east"].link("eu-west"); s.Up {
			t.Error("the link is up without the policy")
		}
		parts.Store(0)
		cutAt.Store([]int32{2, 3, 4, -1}[n])
		for _, c := range gates.Active() {
			gates.Heal(c.ID)
		}
	}
	l.bothUp()
	us.mu.Lock()
	if !bytes.Equal(us.got, whole) || us.err != nil || parts.Load() < 5 {
		t.Errorf("%d of %d bytes came in %d parts: %v", len(us.got), len(whole), parts.Load(), us.err)
	}
	us.mu.Unlock()

	parts.Store(0)
	swap := func(part int32) {
		if part == 2 {
			eu.replace(8, bytes.ToUpper(whole))
		}
	}
	after.Store(&swap)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got, err := l.regions["us-east"].FetchPolicy(ctx, "eu-west", 7); api.CodeOf(err) != api.BadRequest {
		t.Errorf("replaced between two parts: %d bytes, %v", len(got), err)
	}
	if got, err := l.regions["us-east"].FetchPolicy(ctx, "eu-west", 8); err != nil || !bytes.Equal(got, bytes.ToUpper(whole)) {
		t.Errorf("the newer one: %d bytes, %v", len(got), err)
	}
}

// bothUp waits until each of the two regions sees the link up.
func (l *lab) bothUp() {
	l.t.Helper()
	l.await("us-east", "eu-west", "up", isUp)
	l.await("eu-west", "us-east", "up", isUp)
}
