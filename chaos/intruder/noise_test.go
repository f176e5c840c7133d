package intruder_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "domicile/api/domicile/v1"
	"domicile/regions/link"
)

// noises are bytes that are no message at all.
func noises() []lie {
	calls := map[string]link.Plane{
		pb.PeerService_Control_FullMethodName: link.Control, pb.PeerService_Forward_FullMethodName: link.Data, pb.PeerService_Mirror_FullMethodName: link.Data,
		pb.PeerService_Policy_FullMethodName: link.Control, pb.PeerService_Hello_FullMethodName: link.Control,
	}
	var lies []lie
	for _, method := range []string{pb.PeerService_Hello_FullMethodName, pb.PeerService_Control_FullMethodName, pb.PeerService_Forward_FullMethodName, pb.PeerService_Mirror_FullMethodName, pb.PeerService_Policy_FullMethodName} {
		name := method[strings.LastIndex(method, "/")+1:]
		lies = append(lies, lie{lane: "noise", name: name, rule: "a message can be read", tell: func(t *telling) { t.noise(calls[method], method, 20) }})
	}
	return append(lies,
		lie{lane: "noise", name: "empty items", rule: "elements are bounded before they are decoded", tell: func(t *telling) {
			t.repeats(link.Data, pb.PeerService_Mirror_FullMethodName, []byte{0x12}, []byte{0x22, 0x00}) // batch.items
		}},
		lie{lane: "noise", name: "empty marks", rule: "elements are bounded before they are decoded", tell: func(t *telling) {
			t.repeats(link.Control, pb.PeerService_Control_FullMethodName, []byte{0x12}, []byte{0x22, 0x00}) // watermarks.logs
		}},
		lie{lane: "noise", name: "empty tails", rule: "elements are bounded before they are decoded", tell: func(t *telling) {
			t.repeats(link.Control, pb.PeerService_Control_FullMethodName, []byte{0x22}, []byte{0x42, 0x00}) // tail.entries
		}},
		lie{lane: "noise", name: "empty headers", rule: "elements are bounded before they are decoded", tell: func(t *telling) {
			t.repeats(link.Data, pb.PeerService_Forward_FullMethodName, []byte{0x12}, []byte{0x2a, 0x00}) // record.headers
		}},
		lie{lane: "noise", name: "server names", rule: "a server name is a lane and a region", mute: "nobody knows yet whose it is", tell: (*telling).serverNames},
		lie{lane: "noise", name: "no handshake", rule: "the port is for TLS", mute: "nobody knows yet whose it is", tell: (*telling).noHandshake},
		lie{lane: "noise", name: "no frames", rule: "a lane is for gRPC", mute: "it ends with its connection", tell: (*telling).noFrames},
	)
}

func (t *telling) bytes(most int) []byte {
	b := make([]byte, 1+t.rng.IntN(most))
	for i := range b {
		b[i] = byte(t.rng.Uint32())
	}
	return b
}

// noise says random bytes as messages of a call, each on a stream of its own.
func (t *telling) noise(plane link.Plane, method string, times int) {
	a, err := t.lane(t.ctx, t.victim, plane)
	if err != nil {
		t.hears(err)
		return
	}
	defer a.close()
	if method != pb.PeerService_Hello_FullMethodName {
		t.hears(t.greet(t.ctx, a))
	}
	for range times {
		s, err := a.stream(t.ctx, method)
		if err != nil {
			t.hears(err)
			return
		}
		_ = s.SendMsg(t.bytes(400)) // the answer says it
		_ = s.CloseSend()
		var answer []byte
		t.hears(s.RecvMsg(&answer))
	}
}

// repeats says one message of nearly the most that a lane takes, of elements that hold nothing,
// three times at once. The liar's own mesh dials anew meanwhile and may end the lane before
// anybody has read it: then it is said again.
func (t *telling) repeats(plane link.Plane, method string, field, unit []byte) {
	body := bytes.Repeat(unit, (8<<20-64<<10)/len(unit))
	message := append(binary.AppendUvarint(field, uint64(len(body))), body...)
	for t.ctx.Err() == nil {
		err := t.sends(plane, method, message)
		if t.hears(err); status.Code(err) != codes.Unavailable {
			return
		}
	}
}

// sends says a message on three streams of one lane, and answers how the last of them ended.
func (t *telling) sends(plane link.Plane, method string, message []byte) error {
	a, err := t.lane(t.ctx, t.victim, plane)
	if err != nil {
		return err
	}
	defer a.close()
	if err := t.greet(t.ctx, a); err != nil {
		return err
	}
	var open []grpc.ClientStream
	for range 3 {
		s, err := a.stream(t.ctx, method)
		if err == nil {
			err = s.SendMsg(message)
		}
		if t.hears(err); err == nil {
			open = append(open, s)
		}
	}
	for _, s := range open {
		_ = s.CloseSend()
		for err = nil; err == nil; { // receipts come before it was read
			var answer []byte
			err = s.RecvMsg(&answer)
		}
	}
	return err
}

func (t *telling) serverNames() {
	for _, name := range []string{"", ".", "control", "control..link.domicile", ".link.domicile", "control." + other(t.victim) + ".link.domicile", "control." + t.victim + ".link.domicile",
		"control.q.link.domicile", "root." + traitor + ".link.domicile", strings.Repeat("a", 250) + ".link.domicile", "gossip." + traitor + ".link.domicile"} {
		c, err := t.shake(t.ctx, t.victim, name, "h2")
		if err != nil {
			t.hears(err)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(t.bytes(100))
		_, err = c.Read(make([]byte, 1))
		t.hears(err)
		_ = c.Close()
	}
}

func (t *telling) dialOnly() (net.Conn, error) {
	return (&net.Dialer{Timeout: 3 * time.Second}).DialContext(t.ctx, "tcp", t.world.regions[t.victim].listen.Link)
}

func (t *telling) noHandshake() {
	for range 20 {
		c, err := t.dialOnly()
		if err != nil {
			t.hears(err)
			return
		}
		_, _ = c.Write(append([]byte{0x16, 3, 1}, t.bytes(2000)...))
		_ = c.Close()
	}
}

func (t *telling) noFrames() {
	for _, plane := range []link.Plane{link.Control, link.Data} {
		for range 10 {
			c, err := t.shake(t.ctx, t.victim, server(plane, traitor), "h2")
			if err != nil {
				t.hears(err)
				continue
			}
			_, _ = c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), t.bytes(4000)...))
			_ = c.Close()
		}
	}
}
