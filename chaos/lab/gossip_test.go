package lab_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/gossip"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Scenario 25: whoever holds the certificate of a region announces a newer placement and
// gateways that do not exist, floods and leaves. People are shown a hint; no log moves, no
// link is cut, and records are taken all the while.
func TestS25_AHostileMemberMovesNothing(t *testing.T) {
	l := open(t, lab.Options{Policies: movablePolicies, Manifest: []byte(movable)})
	west := l.Region("eu-west").Node()
	orders := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: api.HomeSlot}
	within(t, "the log is placed", func() error {
		if p, ok := west.Placer().Log(orders); !ok || p.Home != "eu-west" {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	before, _ := west.Placer().Log(orders)
	authority, generation, _ := west.Placer().Authority()
	if err := l.Region("us-east").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	mesh := hostile(t, l, "us-east")
	word := gossip.Word{Manifest: "forged", Authority: authority, Generation: generation + 1000, Version: 1 << 60}
	for round := range 3 {
		pool, err := gossip.Open(t.Context(), gossip.Config{Region: "us-east", Gateway: fmt.Sprint("ghost-", round),
			Gateways: map[string][]string{"eu-west": {""}, "eu-central": {""}, "us-east": {""}}, Lines: mesh.Gossip(),
			Ours: func() gossip.Word { return word }, Clock: regions.NewSteadyClock(), Pace: 0.25, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		flood(t, mesh, "eu-west")
		within(t, "the word is heard, and shown as a hint", func() error {
			c := desk(t, l, "eu-west")
			s, err := c.Status(t.Context())
			if err != nil {
				return err
			}
			text := strings.Join(s.GetWarnings(), "\n")
			for _, want := range []string{"hint by gossip: a newer placement than this node has is known in us-east", "hint by gossip: federation.yaml here is not that of us-east", "does not name gateway \"ghost-"} {
				if !strings.Contains(text, want) {
					return errors.New("no " + want + " in " + text)
				}
			}
			return nil
		})
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		takesRecords(t, l, round)
	}
	after, _ := west.Placer().Log(orders)
	if after.Home != before.Home || after.Epoch != before.Epoch || after.Status != before.Status || after.Op != nil {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if name, g, v := west.Placer().Authority(); name != authority || g != generation || v >= 1<<60 {
		t.Errorf("%s %d %d", name, g, v)
	}
	if s, _ := west.LinkTo("eu-central"); !s.Up {
		t.Errorf("%+v", s)
	}
}

// hostile is a bare mesh with a region's own certificate, at its own address.
func hostile(t *testing.T, l *lab.Lab, region string) *link.Mesh {
	t.Helper()
	cert, key, err := l.Authority.Issue(identity.Region, region, time.Now().Add(-time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.New(cert, key, l.Authority.CertPEM(), regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	self, _ := l.Federation.Region(region)
	listener, err := net.Listen("tcp", self.Link)
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string][]string{}
	for _, name := range l.Federation.Peers(region) {
		r, _ := l.Federation.Region(name)
		peers[name] = r.Links()
	}
	mesh, err := link.New(link.Config{Self: region, Identity: id, Listener: listener, Peers: peers, CouncilOnly: true,
		Clock: regions.NewSteadyClock(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mesh.Start(t.Context())
	t.Cleanup(func() { _ = mesh.Close(t.Context()) }) // what it was dialing has no one to answer
	return mesh
}

// flood sends a megabyte of packets that are none.
func flood(t *testing.T, mesh *link.Mesh, to string) {
	t.Helper()
	c, err := mesh.Gossip().Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	junk := append([]byte{1, byte(len("us-east"))}, "us-east"...)
	for range 4000 {
		junk = append(binary.BigEndian.AppendUint16(junk, 250), make([]byte, 250)...)
	}
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(junk); err != nil {
		t.Error(err)
	}
}

func takesRecords(t *testing.T, l *lab.Lab, round int) {
	t.Helper()
	within(t, "a record is taken", func() error {
		ack, err := publishTo(t, l, "eu-central", "orders", fmt.Sprint("record-", round))
		if err == nil && ack.Region != "eu-west" {
			err = fmt.Errorf("stored in %s", ack.Region)
		}
		return err
	})
}
