package link_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/link"
)

// talker tells as much of a log's tail as it may, and keeps what it hears.
type talker struct {
	mu    sync.Mutex
	began time.Time
	next  uint64
	asked int
	sent  int // bytes
	heard []regions.TailList
}

var shipments = api.LogID{Tenant: api.DefaultTenant, Topic: "shipments", Slot: api.HomeSlot}

func (t *talker) TellTail(ctx context.Context, _ string, budget int, send func(context.Context, regions.TailList) error) {
	t.mu.Lock()
	if t.asked++; t.began.IsZero() {
		t.began = time.Now()
	}
	l := regions.TailList{Log: shipments, Incarnation: "i", Epoch: api.StaticEpoch("eu-west"), Head: 1 << 40}
	for n := min((budget-128)/32, regions.MaxTailEntries); n > 0; n-- {
		t.next++
		l.Entries = append(l.Entries, regions.TailEntry{From: t.next, Sequence: t.next, ID: l.Key.Hash("o"), Time: t.began, Bytes: 100})
	}
	t.mu.Unlock()
	if len(l.Entries) > 0 && send(ctx, l) == nil {
		t.mu.Lock()
		t.sent += proto.Size(wire.TailToProto(&l))
		t.mu.Unlock()
	}
}

func (t *talker) HearTail(_ string, l regions.TailList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = append(t.heard, l)
}

func (t *talker) told() (asked, sent, heard int, rate float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked, t.sent, len(t.heard), float64(t.sent) / time.Since(t.began).Seconds()
}

// Issue 4, build 5: lists pass in order, and a peer that does not know them is neither
// sent any nor bothered by it.
func TestR14f_TailListsPassToPeersThatTakeThem(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace, "eu-west", "us-east", "ap-south")
	eu, us := &talker{}, &talker{}
	l.remake("eu-west", func(r *region) { r.config.Tails = eu })
	l.remake("us-east", func(r *region) { r.config.Tails = us })
	for name := range l.addr {
		l.start(name)
	}
	for _, peer := range []string{"us-east", "ap-south"} {
		l.await("eu-west", peer, "up", isUp)
	}
	eventually(t, 30*time.Second, func() string {
		if _, _, heard, _ := us.told(); heard < 3 {
			return "fewer than three lists have arrived"
		}
		return ""
	})
	us.mu.Lock()
	last := uint64(0)
	for _, list := range us.heard {
		for _, e := range list.Entries {
			if e.Sequence <= last {
				t.Errorf("%d after %d", e.Sequence, last)
			}
			last = e.Sequence
		}
	}
	us.mu.Unlock()
	if h := l.regions["eu-west"].link("ap-south").Hello; h == nil || h.TakesTails {
		t.Errorf("ap-south says %+v", h)
	}
	if s := l.regions["ap-south"].link("eu-west"); !s.Up {
		t.Errorf("%+v", s)
	}
}

// A talker that would fill the line gets 5 % of what it carries.
func checkTailShare(t *testing.T, name string, talker *talker) {
	t.Helper()
	asked, sent, heard, rate := talker.told()
	if asked == 0 || sent == 0 || heard == 0 {
		t.Errorf("%s: asked %d times, %d bytes told, %d lists heard", name, asked, sent, heard)
	}
	if most := 0.05*2*narrowLine + 512; rate > most { // a rate is measured up to twice too high
		t.Errorf("%s: %.0f bytes of tail lists a second, at most %.0f", name, rate, most)
	}
}

var _ link.Tails = (*talker)(nil)
