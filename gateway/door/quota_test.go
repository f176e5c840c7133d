package door

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/regions"
)

// counting takes everything.
type counting struct{ n atomic.Int64 }

func (c *counting) Publish(_ context.Context, _ api.Record, _ regions.Principal, _ func(), done func(api.Ack, error)) {
	c.n.Add(1)
	done(api.Ack{}, nil)
}

func (c *counting) Read(context.Context, gateway.ReadRequest, regions.Principal, func(gateway.Batch) error) error {
	return nil
}

const quotaManifest = `
version: 1
federation: f
regions: {eu: {link: "a:1"}}
topics:
  slow: {writes: local, quota: {records_per_second: 10, bytes_per_second: 100KiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  free: {writes: local, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// RT2: a topic and an entry of principals are held to their quota, each refusal says
// when to come again, and nobody else is touched.
func TestRT2_QuotaAtTheDoor(t *testing.T) {
	f, err := regions.ParseManifest("federation.yaml", []byte(quotaManifest))
	if err != nil {
		t.Fatal(err)
	}
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	behind := &counting{}
	refused := map[string]int{}
	q := &metered{Gateway: behind, quotas: NewQuotas(f, nil, clock), refused: func(topic string, code api.Code) { refused[topic+" "+string(code)]++ }}
	publish := func(topic string, size, rule int, quota regions.Quota) *api.Error {
		ctx := context.WithValue(context.Background(), callerKey{}, &caller{rule: rule, quota: quota})
		var e *api.Error
		q.Publish(ctx, api.Record{Topic: topic, ID: "i", Body: make([]byte, size)}, regions.Principal{}, nil, func(_ api.Ack, err error) { e, _ = err.(*api.Error) })
		return e
	}
	none := regions.Quota{}
	burst := func(topic string, size, n, rule int, quota regions.Quota) (let int, last *api.Error) {
		for range n {
			if e := publish(topic, size, rule, quota); e != nil {
				last = e
			} else {
				let++
			}
		}
		return let, last
	}
	let, e := burst("slow", 10, 100, 0, none)
	if let != 10 || e.Code != api.QuotaExceeded || e.Field != "topics.slow.quota.records_per_second" || e.RetryAfter != 100*time.Millisecond {
		t.Fatalf("%d passed, then %v after %s", let, e, e.RetryAfter)
	}
	if let, _ := burst("free", 10, 1000, 0, none); let != 1000 {
		t.Fatalf("another topic was held back: %d", let)
	}
	clock.Advance(e.RetryAfter)
	if e := publish("slow", 10, 0, none); e != nil {
		t.Fatalf("after the time that was given: %v", e)
	}
	clock.Advance(time.Hour)
	if let, _ := burst("slow", 10, 100, 0, none); let != 10 {
		t.Fatalf("an hour's worth was saved up: %d", let)
	}
	clock.Advance(time.Second)
	if e := publish("slow", 300<<10, 0, none); e != nil {
		t.Fatalf("a record larger than a second's worth never passes: %v", e)
	}
	if e := publish("slow", 10, 0, none); e == nil || e.Field != "topics.slow.quota.bytes_per_second" || e.RetryAfter < 1900*time.Millisecond || e.RetryAfter > 2100*time.Millisecond {
		t.Fatalf("it is paid for afterwards: %v", e)
	}
	own := regions.Quota{Records: 3}
	if let, e := burst("free", 10, 50, 7, own); let != 3 || e.Field != "principals[7].quota.records_per_second" {
		t.Fatalf("%d passed, then %v", let, e)
	}
	if let, _ := burst("free", 10, 50, 8, none); let != 50 {
		t.Fatalf("another principal was held back: %d", let)
	}
	if refused["slow QUOTA_EXCEEDED"] == 0 || refused["free QUOTA_EXCEEDED"] != 47 {
		t.Errorf("counted %v", refused)
	}
	if want := int64(10 + 1000 + 1 + 10 + 1 + 3 + 50); behind.n.Load() != want {
		t.Errorf("%d reached the gateway, want %d", behind.n.Load(), want)
	}
}

// RT3: connections beyond the bound are closed at once; one that leaves makes room.
func TestRT3_ConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	turned := make(chan struct{}, 8)
	c := &crowd{Listener: l, most: 2, full: func() { turned <- struct{}{} }}
	accepted := make(chan net.Conn, 8)
	done := make(chan error, 1)
	go func() {
		for {
			conn, err := c.Accept()
			if err != nil {
				done <- err
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	var mine []net.Conn
	for range 2 {
		mine = append(mine, dial())
	}
	first := <-accepted
	second := <-accepted
	third := dial()
	wait("the third was let in", func() bool { return len(turned) == 1 })
	_ = third.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("the third is open")
	}
	_ = first.Close()
	_ = first.Close()
	fourth := dial()
	wait("there was no room for another", func() bool { return len(accepted) == 1 })
	for _, conn := range append(mine, third, fourth, second, <-accepted) {
		_ = conn.Close()
	}
	if n := c.open.Load(); n != 0 {
		t.Errorf("%d counted, none is open", n)
	}
	_ = l.Close()
	if err := <-done; err == nil {
		t.Error(fmt.Errorf("accept went on"))
	}
}
