package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

// newGates are gates with one mesh, which ends with them.
func newGates(boot regions.BootClock, known func(peer string) bool, told func(peer string)) *ends {
	return NewGates(boot, known).attach(told)
}

func (e *ends) close() {
	e.detach()
	e.Close()
}

// gatedPair is a real connection; ours has the gate, theirs has none.
func gatedPair(t *testing.T, g *ends, origin regions.Direction) (ours *gatedConn, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours = newGatedConn(accepted, g, regions.NewSteadyClock(), origin, nil)
	ours.identify("eu-west", Data)
	t.Cleanup(func() { ours.Close(); dialed.Close() })
	return ours, dialed
}

func anyPeer(string) bool { return true }

func newTestGates(t *testing.T) *ends {
	g := newGates(regions.SystemBootClock, anyPeer, func(string) {})
	t.Cleanup(g.close)
	return g
}

// A read that began before the cut delivers nothing until the cut ends; then nothing
// is lost.
func TestGateStallsAnOpenConnectionAndResumes(t *testing.T) {
	g := newTestGates(t)
	ours, theirs := gatedPair(t, g, regions.In)
	got := make(chan []byte, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 5)
		io.ReadFull(ours, b)
		got <- b
	})
	id, err := g.Cut("eu-west", []Plane{Data}, []regions.Direction{regions.In}, BlackHole, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	select {
	case b := <-got:
		t.Fatalf("%q came through the black hole", b)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := ours.Write([]byte("out")); err != nil {
		t.Fatal("the other direction is not cut:", err)
	}
	if !g.Heal(id) || g.Heal(id) {
		t.Error("a cut heals once")
	}
	if b := <-got; !bytes.Equal(b, []byte("hello")) {
		t.Errorf("after the heal: %q", b)
	}
	wg.Wait()
}

func TestGateHeldConnectionObeysDeadlineAndClose(t *testing.T) {
	g := newTestGates(t)
	ours, _ := gatedPair(t, g, regions.Out)
	if _, err := g.Cut("eu-west", []Plane{Data}, []regions.Direction{regions.Out, regions.In}, BlackHole, time.Minute); err != nil {
		t.Fatal(err)
	}
	ours.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := ours.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("held write past its deadline: %v", err)
	}
	ours.SetDeadline(time.Time{})
	reads := make(chan string, 2)
	other, theirs := gatedPair(t, g, regions.Out)
	other.identify("", Data)
	go func() { // begins before the cut, and its deadline passes in it
		b := make([]byte, 8)
		_, err := other.Read(b)
		reads <- fmt.Sprint(errors.Is(err, os.ErrDeadlineExceeded))
		other.SetReadDeadline(time.Time{})
		n, _ := other.Read(b)
		reads <- string(b[:n])
	}()
	id, err := g.Cut("", []Plane{Data}, []regions.Direction{regions.In}, BlackHole, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Write([]byte("kept"))
	other.readDL.set(time.Now().Add(20 * time.Millisecond)) // of the gate alone: the socket has data
	if late := <-reads; late != "true" {
		t.Error("a held read did not obey its deadline")
	}
	g.Heal(id)
	if got := <-reads; got != "kept" {
		t.Errorf("what was held at the deadline came as %q", got)
	}
	ended := make(chan error)
	go func() { _, err := ours.Read(make([]byte, 1)); ended <- err }()
	ours.Close()
	if err := <-ended; err == nil {
		t.Error("a held read outlived its connection")
	}
}

func TestGateRejectClosesWhatIsOpenByWhoOpenedIt(t *testing.T) {
	g := newTestGates(t)
	dialed, _ := gatedPair(t, g, regions.Out)
	accepted, theirs := gatedPair(t, g, regions.In)
	other, _ := gatedPair(t, g, regions.Out)
	other.identify("ap-south", Data)
	control, _ := gatedPair(t, g, regions.Out)
	control.identify("eu-west", Control)
	if _, err := g.Cut("eu-west", []Plane{Data}, []regions.Direction{regions.Out}, Reject, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := dialed.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && !errors.Is(err, errCut) {
		t.Errorf("dialed: %v", err)
	}
	for name, c := range map[string]*gatedConn{"accepted": accepted, "another peer's": other, "another plane's": control} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	theirs.Close()
}

// A lease that is not renewed ends by itself, on the boot clock and in memory only.
func TestGateLeaseEndsByItself(t *testing.T) {
	var boot atomic.Int64
	var told atomic.Int64
	g := newGates(func() time.Duration { return time.Duration(boot.Load()) }, anyPeer, func(string) { told.Add(1) })
	t.Cleanup(g.close)
	cut := func(lease time.Duration) uint64 {
		id, err := g.Cut("eu-west", []Plane{Control, Data}, []regions.Direction{regions.In, regions.Out}, BlackHole, lease)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	holds := func() bool {
		mode, _ := g.verdict("eu-west", Data, regions.In, regions.In)
		return mode == BlackHole
	}
	id := cut(30 * time.Millisecond)
	boot.Store(int64(20 * time.Millisecond))
	if !holds() || !g.Renew(id) {
		t.Fatal("it ended before its lease")
	}
	boot.Store(int64(49 * time.Millisecond))
	if !holds() || len(g.Active()) != 1 || g.held("eu-west") != "black-hole control+data in+out" {
		t.Errorf("a renewed lease: %+v", g.Active())
	}
	boot.Store(int64(50 * time.Millisecond))
	if holds() || g.Renew(id) || len(g.Active()) != 0 {
		t.Error("the lease has passed and the cut still holds")
	}
	for end := time.Now().Add(5 * time.Second); told.Load() < 2 && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	if told.Load() != 2 || g.active.Load() != 0 {
		t.Errorf("told %d times, %d cuts left", told.Load(), g.active.Load())
	}
}

func TestGateRefusesWhatItCannotDo(t *testing.T) {
	g := newTestGates(t)
	both, data := []regions.Direction{regions.In}, []Plane{Data}
	strict := newGates(regions.SystemBootClock, func(peer string) bool { return peer == "p" }, func(string) {})
	defer strict.close()
	if err := second(strict.Cut("q", data, both, Reject, time.Second)); api.CodeOf(err) != api.UnknownRegion {
		t.Errorf("a cut of a link that does not exist: %v", err)
	}
	for field, err := range map[string]error{
		"planes":     second(g.Cut("p", nil, both, Reject, time.Second)),
		"directions": second(g.Cut("p", data, []regions.Direction{"sideways"}, Reject, time.Second)),
		"mode":       second(g.Cut("p", data, both, "slow", time.Second)),
		"lease":      second(g.Cut("p", data, both, Reject, MaxLease+1)),
	} {
		e, _ := err.(*api.Error)
		if e == nil || e.Code != api.BadRequest || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestListenerClosesWhatIsTooMany(t *testing.T) {
	g := newTestGates(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newGatedListener(inner, g, regions.NewSteadyClock(), 1)
	defer l.Close()
	var conns []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	more := make(chan net.Conn)
	go func() { c, _ := l.Accept(); more <- c }()
	conns[1].SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conns[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %v", err)
	}
	first.Close()
	third, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	c := <-more
	if c == nil {
		t.Fatal("no room after one has gone")
	}
	c.Close()
}

// gRPC lifts the deadline of a connection once more when it has handed it on: that must
// not lift the one that its new owner has set.
func TestDeadlineOfADispatchedConnectionIsItsOwners(t *testing.T) {
	ours, _ := gatedPair(t, newTestGates(t), regions.In)
	ours.dispatch()
	owned := newCouncilConn(nil, ours)
	if err := owned.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	ours.SetDeadline(time.Time{})
	done := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits without a deadline")
		ours.Close()
		<-done
	}
}

// TestR14i_ACutOutlivesTheMesh: the links of a region of three begin anew at another node or
// under another term, and what is held there cuts them from the first byte.
func TestR14i_ACutOutlivesTheMesh(t *testing.T) {
	g := NewGates(nil, anyPeer)
	defer g.Close()
	first := g.attach(func(string) {})
	id, err := g.Cut("eu-west", []Plane{Data}, []regions.Direction{regions.In, regions.Out}, Reject, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first.detach()
	var told []string
	next := g.attach(func(peer string) { told = append(told, peer) })
	defer next.detach()
	ours, _ := gatedPair(t, next, regions.Out)
	if _, err := ours.Write([]byte("x")); !errors.Is(err, errCut) {
		t.Errorf("under the new mesh: %v", err)
	}
	if !g.Heal(id) || len(told) != 1 || len(g.ends) != 1 {
		t.Errorf("healed: told %v, %d meshes", told, len(g.ends))
	}
}
