package fabric_test

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RA5, RD1: on a disk or a broker that is slower than every deadline, with callers who
// retry the same ids at once, each id is stored at most once, and all that was
// acknowledged is there, at the place that was told.
func TestRA5_SlowDiskAndRetriesStoreOnce(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, change := range map[string]func(*fabric.Config){
		"syncs of 1.5 s":          slowSyncs(1500*time.Millisecond, 3),
		"a sync of 6 s":           slowSyncs(6*time.Second, 1),
		"late answers":            func(c *fabric.Config) { c.Hooks.Wire = lateWire(8, 0, 500*time.Millisecond).wrap },
		"late frames":             func(c *fabric.Config) { c.Hooks.Wire = lateWire(8, 500*time.Millisecond, 0).wrap },
		"late frames, lost wires": func(c *fabric.Config) { c.Hooks.Wire = lateWire(8, 450*time.Millisecond, 0).cutting().wrap },
	} {
		wg.Go(func() { // all at once: they mostly wait, and t.Parallel counts cores
			t.Run(name, func(t *testing.T) {
				f := fabrictest.Open(t, func(c *fabric.Config) { c.Pace = 0.25; change(c) })
				retryAll(t, fabrictest.Home(t, f, "orders@here"), 800)
			})
		})
	}
}

// retryAll appends n ids, each by two callers who retry until one is acknowledged, and
// judges the log by what they were told.
func retryAll(t *testing.T, l regions.HomeLog, n int) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	told := make([][2]regions.Stored, n)
	var wg sync.WaitGroup
	for i := range n {
		for caller := range 2 {
			wg.Add(1)
			var try func()
			try = func() {
				l.Append(regions.Draft{Record: record(i)}, func(s regions.Stored) {
					if s.Err != nil && time.Now().Before(end) {
						time.AfterFunc(50*time.Millisecond, try)
						return
					}
					told[i][caller] = s
					wg.Done()
				})
			}
			try()
		}
	}
	wg.Wait()
	at := map[string]uint64{}
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		if seq, ok := at[it.Record.ID]; ok {
			t.Errorf("%s is stored at %d and at %d", it.Record.ID, seq, it.Sequence)
		}
		at[it.Record.ID] = it.Sequence
	}
	for i, callers := range told {
		for _, s := range callers {
			if s.Err != nil {
				t.Errorf("%s was never acknowledged: %v", record(i).ID, s.Err)
			} else if at[record(i).ID] != s.Position.Sequence {
				t.Errorf("%s was acknowledged at %d and lies at %d", record(i).ID, s.Position.Sequence, at[record(i).ID])
			}
		}
	}
}

// slowSyncs makes the first few syncs after the log was opened last so long.
func slowSyncs(long time.Duration, count int32) func(*fabric.Config) {
	return func(c *fabric.Config) {
		var written atomic.Bool
		var left atomic.Int32
		left.Store(count)
		c.Hooks.Written = func(api.LogID, uint64) { written.Store(true) }
		c.Hooks.Sync = func(d *os.File) error {
			if written.Load() && left.Add(-1) >= 0 {
				<-time.After(long)
			}
			return fabric.Syncfs(d)
		}
	}
}

// late holds back what passes the connection to the broker, a few times.
type late struct {
	left     *atomic.Int32
	to, from time.Duration
	cut      bool
}

func lateWire(times int32, to, from time.Duration) late {
	l := late{left: new(atomic.Int32), to: to, from: from}
	l.left.Store(times)
	return l
}

// cutting also closes the near end of the connection each time; what was written
// before still reaches the broker, late.
func (l late) cutting() late { l.cut = true; return l }

func (l late) wrap(conn net.Conn) net.Conn {
	c := &lateConn{Conn: conn, late: l, out: make(chan []byte, 64), gone: make(chan struct{})}
	go c.forward()
	return c
}

type lateConn struct {
	net.Conn
	late
	out  chan []byte
	gone chan struct{}
	once sync.Once
}

// forward carries what was written to the broker; also what was written before the
// near end was closed.
func (c *lateConn) forward() {
	defer c.Conn.Close()
	for {
		var b []byte
		select {
		case b = <-c.out:
		default:
			select {
			case b = <-c.out:
			case <-c.gone:
				return
			}
		}
		if len(b) > 1000 && c.to > 0 && c.left.Add(-1) >= 0 {
			if c.cut {
				c.once.Do(func() { close(c.gone) })
			}
			<-time.After(c.to)
		}
		if _, err := c.Conn.Write(b); err != nil {
			return
		}
	}
}

func (c *lateConn) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return 0, net.ErrClosed
	default:
	}
	select {
	case c.out <- append([]byte(nil), b...):
		return len(b), nil
	case <-c.gone:
		return 0, net.ErrClosed
	}
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.gone:
		return 0, net.ErrClosed
	default:
	}
	if err == nil && c.from > 0 && n < 2000 && c.left.Add(-1) >= 0 {
		<-time.After(c.from)
	}
	return n, err
}

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}
