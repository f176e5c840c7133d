package link_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/link"
)

// version3 makes a region speak a version of the wire that does not exist yet: every
// message carries one field more.
func version3(oldest int) func(*region) {
	return func(r *region) {
		r.hello.WireVersion, r.hello.OldestWire, r.hello.Version = 3, oldest, "3.0.0-test"
		r.config.Hooks.Sending = func(m proto.Message) {
			extra := protowire.AppendTag(nil, 999, protowire.BytesType)
			p := m.ProtoReflect()
			p.SetUnknown(append(p.GetUnknown(), protowire.AppendString(extra, "of version 3")...))
		}
	}
}

// B46: a newer region and an older one agree on what both speak, whoever is the newer
// one, and what only the newer one knows is ignored: forwards, watermarks and mirror
// flows go both ways.
func TestB46_NewerWireSpeaksWithThisOne(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("eu-west", version3(1))
	pairs := map[string]string{"eu-west": "us-east", "us-east": "eu-west"}
	sinks := map[string]*copySink{}
	for name := range pairs {
		sink := &copySink{}
		sinks[name] = sink
		l.regions[name].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
			return sink, regions.MirrorReply{}
		}
		l.start(name)
	}
	for name, peer := range pairs {
		l.await(name, peer, "up at version 2", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 2 })
	}
	o := newOutcomes(t)
	for name, peer := range pairs {
		l.regions[name].Forward(peer, record(name, 100), o.done(name))
		s, _ := openFlow(t, l, name, peer)
		send(t, s, batch(1, 20, 100))
		for recv(t, s).Cursor.Sequence < 20 {
		}
		eventually(t, 10e9, func() string {
			r := l.regions[name]
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.rounds) < 2 {
				return fmt.Sprint(name, " has heard ", len(r.rounds), " rounds of watermarks")
			}
			return ""
		})
	}
	for id, r := range o.await(2) {
		if r.err != nil || r.ack.ID != id {
			t.Errorf("%s: %+v %v", id, r.ack, r.err)
		}
	}
}

// Two of the newer kind agree on the newer version.
func TestB46_TwoNewerOnesSpeakTheNewerWire(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("eu-west", version3(1))
	l.remake("us-east", version3(2))
	l.start("eu-west")
	l.start("us-east")
	l.await("us-east", "eu-west", "up at version 3", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 3 })
	l.await("eu-west", "us-east", "up at version 3", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 3 })
}

// One that needs the newer version is refused, by both ends, with both ranges and both
// binaries, and nothing is sent.
func TestB46_WireThatNeedsTheNewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("eu-west", version3(3))
	l.start("eu-west")
	l.start("us-east")
	says := []string{"eu-west speaks 3 to 3", "us-east speaks 1 to 2", "eu-west runs 3.0.0-test", "us-east runs test"}
	l.await("us-east", "eu-west", "refused for the version", refusedWith(api.VersionMismatch, says...))
	l.await("eu-west", "us-east", "refused for the version", refusedWith(api.VersionMismatch, says...))
	if s := l.regions["us-east"].link("eu-west"); s.Hello != nil || s.Wire != 0 || strings.Contains(s.Reason, "999") {
		t.Errorf("what is known of a peer that was refused: %+v", s)
	}
}

// TestRP2_AnAckDoesNotCarryTheIDBack: the home's answer to a record of its boundary leaves
// the id out, and who forwarded the record fills it in. One that speaks the older wire does
// not know that yet, and gets it.
func TestRP2_AnAckDoesNotCarryTheIDBack(t *testing.T) {
	t.Parallel()
	for wire, onWire := range map[int]string{1: "the-id", 2: ""} {
		l := newLab(t, 1, "eu-west", "us-east")
		var mu sync.Mutex
		var sent []string
		l.remake("eu-west", func(r *region) {
			r.config.Hooks.Sending = func(m proto.Message) {
				if a, ok := m.(*pb.ForwardResponse); ok && a.GetAck() != nil {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, a.GetAck().GetId())
				}
			}
		})
		l.remake("us-east", func(r *region) { r.hello.WireVersion, r.hello.OldestWire = wire, 1 })
		l.regions["eu-west"].forwarded = func(_ context.Context, _ string, f regions.Forward, done func(api.Ack, error)) {
			go done(api.Ack{ID: f.Record.ID, Log: f.Log, Region: "eu-west", Sequence: 5}, nil)
		}
		l.start("eu-west")
		l.start("us-east")
		l.await("us-east", "eu-west", "up", func(s regions.LinkStatus) bool { return s.Up && s.Wire == wire })
		o := newOutcomes(t)
		l.regions["us-east"].Forward("eu-west", record("the-id", 100), o.done("the-id"))
		if r := o.await(1)["the-id"]; r.err != nil || r.ack.ID != "the-id" || r.ack.Sequence != 5 {
			t.Errorf("wire %d: %+v %v", wire, r.ack, r.err)
		}
		mu.Lock()
		if !slices.Equal(sent, []string{onWire}) {
			t.Errorf("wire %d: acks were sent with the ids %q", wire, sent)
		}
		mu.Unlock()
	}
}
