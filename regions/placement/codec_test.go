package placement_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

func FuzzDecodeCommand(f *testing.F) {
	span := time.Second
	for _, c := range []placement.Command{
		{Verb: placement.Renew, Regions: []string{"a", "b"}},
		{Verb: placement.Begin, ID: "1", Log: "L", Expect: api.StaticEpoch("a"), Actor: "x", Reason: "y", Plan: "p",
			Move: &placement.Move{Kind: placement.Forced, Target: "b", Accepted: placement.Loss{Span: &span}}},
		{Verb: placement.Found, Founding: &placement.Founding{Authority: "A", Cache: []byte("c")}},
	} {
		data, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x02{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := placement.DecodeCommand(data, placement.CommandVersion)
		if err != nil {
			if e := (*api.Error)(nil); !errors.As(err, &e) {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		again, err := c.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("taken, but written back differently: %v", err)
		}
		// No command that can be read brings a state down, whatever it says.
		s := founded(t)
		for index := uint64(100); index < 103; index++ {
			_, _ = s.Apply(index, c)
		}
	})
}

func FuzzRestore(f *testing.F) {
	data, err := founded(f).Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := placement.Restore(data)
		if err != nil {
			return
		}
		if _, err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
	})
}

func founded(t testing.TB) *placement.State {
	s := &placement.State{}
	for i, c := range []placement.Command{
		{Verb: placement.Found, ID: "f", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}},
		declaration("L"), declaration("M"),
	} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func declaration(log string) placement.Command {
	return placement.Command{Verb: placement.Declare, ID: "d" + log, Log: log, Actor: "a", Reason: "r", Home: "eu-west", Expect: api.StaticEpoch("eu-west"),
		Terms: &placement.Terms{Allowed: []string{"eu-central", "eu-west"}, Targets: []string{"eu-central"}, Mode: placement.Manual,
			Isolation: placement.FenceAfter, FenceAfter: 20 * time.Second, RPO: 5 * time.Second, Digest: strings.Repeat("d", 64)}}
}

// TestR14e_OtherSpellingsAreRefused: a voter that read a command more kindly than another
// would come to another state.
func TestR14e_OtherSpellingsAreRefused(t *testing.T) {
	good, err := declaration("L").Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := placement.DecodeCommand(good, placement.CommandVersion); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"another version": append([]byte{2}, good[1:]...),
		"an older one":    append([]byte{0}, good[1:]...),
		"an unknown part": bytes.Replace(good, []byte(`"Verb"`), []byte(`"Hint":"x","Verb"`), 1),
		"a space":         append(bytes.Clone(good), ' '),
		"other case":      bytes.Replace(good, []byte(`"Verb"`), []byte(`"verb"`), 1),
		"twice":           append(bytes.Clone(good), good[1:]...),
		"nothing":         nil,
		"a zero written":  bytes.Replace(good, []byte(`"Reason":"r"`), []byte(`"Reason":"r","Plan":""`), 1),
	} {
		if _, err := placement.DecodeCommand(data, placement.CommandVersion); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestR14e_DamagedSnapshotIsRefusedWhole flips every byte once.
func TestR14e_DamagedSnapshotIsRefusedWhole(t *testing.T) {
	s := founded(t)
	data, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		damaged := bytes.Clone(data)
		damaged[i] ^= 0x20
		if _, err := placement.Restore(damaged); err == nil {
			t.Fatalf("byte %d was altered and nothing said so", i)
		}
		if _, err := placement.Restore(data[:i]); err == nil {
			t.Fatalf("%d of %d bytes were taken", i, len(data))
		}
	}
}

// BenchmarkSnapshot is the state of 10,000 logs that have each moved a few times.
func BenchmarkSnapshot(b *testing.B) {
	s := &placement.State{}
	apply := func(c placement.Command) {
		if _, err := s.Apply(s.Applied()+1, c); err != nil {
			b.Fatal(err)
		}
	}
	apply(placement.Command{Verb: placement.Found, ID: "f", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}})
	for i := range 10_000 {
		c := declaration(fmt.Sprintf("incarnation-%016d", i))
		apply(c)
		for j := range 3 {
			l, _ := s.Log(c.Log)
			step := placement.Command{ID: fmt.Sprintf("%d.%d", i, j), Log: c.Log, Expect: l.Epoch, Actor: "a", Reason: "r", Region: l.Home, Plan: "p"}
			begin := step
			span := time.Second
			begin.Verb, begin.Move = placement.Begin, &placement.Move{Kind: placement.Forced, Target: "eu-central", TargetDigest: l.Terms.Digest, Accepted: placement.Loss{Span: &span}}
			apply(begin)
			step.Verb, step.Op, step.ID = placement.Abort, begin.ID, begin.ID+"a"
			apply(step)
		}
	}
	data, err := s.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Snapshot(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := placement.Restore(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("renew", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Apply(s.Applied()+1, placement.Command{Verb: placement.Renew, Regions: []string{"eu-west"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
