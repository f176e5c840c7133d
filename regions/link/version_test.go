package link_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

// version2 makes a region speak a version of the wire that does not exist yet: every
// message carries one field more.
func version2(oldest int) func(*region) {
	return func(r *region) {
		r.hello.WireVersion, r.hello.OldestWire, r.hello.Version = 2, oldest, "2.0.0-test"
		r.config.Hooks.Sending = func(m proto.Message) {
			extra := protowire.AppendTag(nil, 999, protowire.BytesType)
			p := m.ProtoReflect()
			p.SetUnknown(append(p.GetUnknown(), protowire.AppendString(extra, "of version 2")...))
		}
	}
}

// B46: a newer region and an older one agree on what both speak, whoever is the newer
// one, and what only the newer one knows is ignored: forwards, watermarks and mirror
// flows go both ways.
func TestB46_NewerWireSpeaksWithThisOne(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("eu-west", version2(1))
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
		l.await(name, peer, "up at version 1", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 1 })
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
	l.remake("eu-west", version2(1))
	l.remake("us-east", version2(2))
	l.start("eu-west")
	l.start("us-east")
	l.await("us-east", "eu-west", "up at version 2", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 2 })
	l.await("eu-west", "us-east", "up at version 2", func(s regions.LinkStatus) bool { return s.Up && s.Wire == 2 })
}

// One that needs the newer version is refused, by both ends, with both ranges and both
// binaries, and nothing is sent.
func TestB46_WireThatNeedsTheNewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	l.remake("eu-west", version2(2))
	l.start("eu-west")
	l.start("us-east")
	says := []string{"eu-west speaks 2 to 2", "us-east speaks 1 to 1", "eu-west runs 2.0.0-test", "us-east runs test"}
	l.await("us-east", "eu-west", "refused for the version", refusedWith(api.VersionMismatch, says...))
	l.await("eu-west", "us-east", "refused for the version", refusedWith(api.VersionMismatch, says...))
	if s := l.regions["us-east"].link("eu-west"); s.Hello != nil || s.Wire != 0 || strings.Contains(s.Reason, "999") {
		t.Errorf("what is known of a peer that was refused: %+v", s)
	}
}
