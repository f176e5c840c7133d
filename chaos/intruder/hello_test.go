package intruder_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
)

// hellos are the lies of who one is. Those that are refused at once are said on a connection of
// their own; those that would be shown to people are said by the liar's mesh until somebody has
// looked.
func hellos() []lie {
	refused := func(name, rule string, change func(*telling, *pb.PeerHello)) lie {
		return lie{lane: "hello", name: name, rule: rule, tell: func(t *telling) { t.hellosRefused(change) }}
	}
	shown := func(name, rule string, change func(*telling, *pb.PeerHello)) lie {
		return lie{lane: "hello", name: name, rule: rule, tell: func(t *telling) { t.hellosShown(change) }}
	}
	return []lie{
		refused("region of another", "the certificate names the region", func(t *telling, h *pb.PeerHello) { h.Region = other(t.victim) }),
		refused("region of the one it is told", "the certificate names the region", func(t *telling, h *pb.PeerHello) { h.Region = t.victim }),
		refused("region that nobody is", "the certificate names the region", func(t *telling, h *pb.PeerHello) { h.Region = t.word() }),
		refused("fabric of another", "a fabric is one region's", func(t *telling, h *pb.PeerHello) { h.FabricId = t.theirs(other(t.victim)).FabricID }),
		refused("fabric of the one it is told", "a fabric is one region's", func(t *telling, h *pb.PeerHello) { h.FabricId = t.theirs(t.victim).FabricID }),
		refused("fabric of its own that changes", "a region keeps its fabric", func(t *telling, h *pb.PeerHello) { h.FabricId = fmt.Sprint("new-", t.rng.Uint64()) }),
		refused("no fabric", "a region says its fabric", func(_ *telling, h *pb.PeerHello) { h.FabricId = "" }),
		refused("no run", "a region says its run", func(_ *telling, h *pb.PeerHello) { h.BootId = "" }),
		refused("nothing at all", "a hello is there", func(_ *telling, h *pb.PeerHello) { *h = pb.PeerHello{} }),
		refused("a log without a name", "logs have names", func(_ *telling, h *pb.PeerHello) { h.Incarnations = map[string]string{"@": "x", "": "y"} }),
		{lane: "hello", name: "other federation", rule: "federations do not link", mute: "a wrong file says it too", tell: func(t *telling) {
			t.hellosRefused(func(t *telling, h *pb.PeerHello) { h.Federation = "bank" })
		}},
		{lane: "hello", name: "version from nowhere", rule: "versions overlap", mute: "an older or newer binary says it too", tell: func(t *telling) {
			t.hellosRefused(func(t *telling, h *pb.PeerHello) { h.WireVersion, h.OldestWireVersion = 1<<31, 1<<31 })
		}},
		shown("texts that move the cursor", "text is printable and short", func(t *telling, h *pb.PeerHello) {
			h.Version, h.PolicyRevision, h.ManifestDigest = t.word(), t.word(), t.word()
		}),
		shown("a gateway that moves the cursor", "text is printable and short", func(t *telling, h *pb.PeerHello) { h.Gateway = t.word() }),
		shown("signers that move the cursor", "text is printable and short", func(t *telling, h *pb.PeerHello) { h.PolicySigners, h.SignedPolicy = t.word(), 7 }),
		shown("a declaration that moves the cursor", "text is printable and short", func(t *telling, h *pb.PeerHello) {
			h.Topics = clone(h.Topics)
			h.Topics["orders"] = &pb.TopicDeclaration{Digest: t.word(), Fields: map[string]string{t.word(): t.word()}}
		}),
		shown("names of ten megabytes", "text is printable and short", func(_ *telling, h *pb.PeerHello) { h.Version = strings.Repeat("v", 7<<20) }),
		shown("100,000 topics", "a hello is bounded", func(_ *telling, h *pb.PeerHello) {
			h.Topics = clone(h.Topics)
			for i := range 100_000 {
				h.Topics[fmt.Sprint("t", i)] = &pb.TopicDeclaration{Digest: "x"}
			}
		}),
		shown("100,000 incarnations", "a hello is bounded", func(_ *telling, h *pb.PeerHello) {
			h.Incarnations = map[string]string{}
			for i := range 100_000 {
				h.Incarnations[fmt.Sprintf("t%d@home", i)] = "x"
			}
		}),
		{lane: "hello", name: "incarnation of another's log", rule: "only its home names a log", mute: "a home that has not heard of a move says it, too", tell: func(t *telling) {
			t.hellosShown(func(_ *telling, h *pb.PeerHello) { h.Incarnations = map[string]string{"catalog@home": "forged"} })
		}},
		{lane: "hello", name: "serials of the far future", rule: "a serial is no reason to stop", mute: "a newer policy says it too", tell: func(t *telling) {
			t.hellosShown(func(_ *telling, h *pb.PeerHello) {
				h.PolicySerial, h.SignedPolicy, h.FencedPolicy = 1<<62, 1<<62, 1<<62
			})
		}},
		{lane: "hello", name: "fabric of another while all is new", rule: "a fabric is one region's, also after a restart", tell: (*telling).stealsFabric},
		{lane: "hello", name: "a thousand connections that say nothing", rule: "nobody is kept waiting by the silent", mute: "nobody knows yet whose they are", tell: (*telling).saysNothing},
	}
}

func (t *telling) hellosRefused(change func(*telling, *pb.PeerHello)) {
	for _, plane := range []link.Plane{link.Control, link.Data} {
		a, err := t.lane(t.ctx, t.victim, plane)
		if err != nil {
			t.hears(err)
			continue
		}
		h := wire.HelloToProto(t.hello())
		change(t, h)
		if _, err = a.client.Hello(t.ctx, &pb.HelloRequest{Hello: h}); err == nil {
			t.takes("the hello on the %s lane", plane)
		}
		t.hears(err)
		a.close()
	}
}

// hellosShown says the hello in all ways: on the lanes that are open, and on those that are
// opened, by both sides.
func (t *telling) hellosShown(change func(*telling, *pb.PeerHello)) {
	t.now(func(s *script) { s.hello = func(h *pb.PeerHello) { change(t, h) } })
	t.mesh.HelloChanged()
	t.after(func() {
		t.now(func(s *script) { s.hello = nil })
		t.mesh.HelloChanged()
	})
	if a, err := t.lane(t.ctx, t.victim, link.Control); err == nil {
		h := wire.HelloToProto(t.hello())
		change(t, h)
		_, err = a.client.Hello(t.ctx, &pb.HelloRequest{Hello: h})
		t.hears(err)
		a.close()
	}
	_ = lab.Pass(t.ctx, pace.Of(time.Second)) // it is on its way beside this
}

// stealsFabric says another region's fabric to one that was just started and has met nobody.
func (t *telling) stealsFabric() {
	stolen := t.theirs(other(t.victim)).FabricID
	t.down()
	t.after(func() {
		if err := t.up(); err != nil {
			t.takes("nothing: the liar is gone: %v", err)
		}
	})
	r := t.world.regions[t.victim]
	r.kill()
	if err := r.start(); err != nil {
		t.takes("nothing: %v", err)
	}
	h := regions.Hello{Federation: "example", Region: traitor, FabricID: stolen, BootID: boot, Version: "test", WireVersion: regions.WireVersion, OldestWire: regions.OldestWireVersion}
	_ = lab.Poll(t.ctx, 8*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.ctx, time.Second)
		defer cancel()
		a, err := t.lane(ctx, t.victim, link.Control)
		if err != nil {
			return err
		}
		defer a.close()
		_, err = a.client.Hello(ctx, &pb.HelloRequest{Hello: wire.HelloToProto(h)})
		t.hears(err)
		return nil // taken or refused: it was said
	})
}

// saysNothing holds connections to the link port open.
func (t *telling) saysNothing() {
	for range 1000 {
		c, err := t.dialOnly()
		if err != nil {
			t.hears(err)
			return
		}
		t.after(func() { _ = c.Close() })
	}
}
