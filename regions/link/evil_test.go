package link_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/identity"
)

const esc = "\x1b[2J\x1b]0;owned\x07\r\nok: all is well\u202e"

// evil is a region with its genuine certificate that answers a hello as it likes.
type evil struct {
	pb.UnimplementedPeerServiceServer
	answer func() (*pb.HelloResponse, error)
}

func (e evil) Hello(context.Context, *pb.HelloRequest) (*pb.HelloResponse, error) { return e.answer() }

// A4: what a region answers a hello with reaches status bounded and printable, and a hello whose
// ids no correct node has is refused and counted.
func TestFA4_WhatARegionAnswersIsFitForStatus(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1<<20)
	spoiled := func(change func(*regions.Hello)) func() (*pb.HelloResponse, error) {
		return func() (*pb.HelloResponse, error) {
			h := regions.Hello{Federation: "shop", Region: "us-east", FabricID: "f", BootID: "b", Version: "v",
				WireVersion: regions.WireVersion, OldestWire: regions.OldestWireVersion,
				TopicDigests: map[string]string{"orders": "d"}, TopicFields: map[string]map[string]string{"orders": {"writes": "x"}}}
			change(&h)
			return &pb.HelloResponse{Hello: wire.HelloToProto(h)}, nil
		}
	}
	for name, c := range map[string]struct {
		answer  func() (*pb.HelloResponse, error)
		counted bool
	}{
		"a status": {answer: func() (*pb.HelloResponse, error) { return nil, status.Error(codes.Unavailable, esc+long) }},
		"an error of ours": {answer: func() (*pb.HelloResponse, error) {
			return nil, wire.GRPCError(&api.Error{Code: api.PermissionDenied, Op: esc, Region: esc, Field: esc, Value: esc, Hint: esc + long})
		}},
		"texts": {answer: spoiled(func(h *regions.Hello) {
			h.TopicFields["orders"]["writes"] = esc
		})},
		"version":  {answer: spoiled(func(h *regions.Hello) { h.Version = esc + long }), counted: true},
		"revision": {answer: spoiled(func(h *regions.Hello) { h.PolicyRevision = esc }), counted: true},
		"ids":      {answer: spoiled(func(h *regions.Hello) { h.FabricID, h.BootID, h.ManifestDigest = esc, esc, esc }), counted: true},
		"topics":   {answer: spoiled(func(h *regions.Hello) { h.TopicDigests[esc] = "d" }), counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 1, "eu-west", "us-east")
			id := l.identity(l.ca, identity.Region, "us-east", time.Hour)
			config := id.ServerTLS(identity.Region)
			config.VerifyConnection = func(tls.ConnectionState) error { return nil }
			s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
			pb.RegisterPeerServiceServer(s, evil{answer: c.answer})
			go func() { _ = s.Serve(l.listen["us-east"]) }() // until Stop
			t.Cleanup(s.Stop)
			west := l.start("eu-west")
			l.await("eu-west", "us-east", "answered", func(s regions.LinkStatus) bool {
				return s.Reason != "" && s.Reason != "not tried yet" || s.Hello != nil
			})
			eventually(t, 20*time.Second, func() string {
				if got := west.config.Refused.Totals(); (len(got) > 0) != c.counted {
					return "counted: " + strings.TrimSpace(strings.Repeat("x ", len(got)))
				}
				return ""
			})
			link := west.link("us-east")
			for _, text := range []string{link.Reason, string(link.Code), helloText(link.Hello)} {
				if api.Printable(text, 16<<10) != text {
					t.Errorf("%d bytes: %.300q", len(text), text)
				}
			}
		})
	}
}

func helloText(h *regions.Hello) string {
	if h == nil {
		return ""
	}
	text := h.Version + h.PolicyRevision + h.ManifestDigest + h.FabricID + h.BootID
	for topic, fields := range h.TopicFields {
		for field, v := range fields {
			text += topic + field + v
		}
	}
	return text
}
