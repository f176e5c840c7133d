package placer

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// What it costs each record of a log that may move to be asked about, once.
func BenchmarkMayWrite(b *testing.B) {
	f, err := regions.ParseManifest("federation.yaml", []byte("{version: 1, federation: f, regions: {here: {link: \"a:1\"}}}"))
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Config{Self: "here", Federation: f, Names: filepath.Join(b.TempDir(), "names"), Boot: regions.SystemBootClock, Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	h := home{"inc", api.StaticEpoch("here")}
	for name, terms := range map[string]placement.Terms{
		"accept": {Isolation: placement.Accept}, "fence_after": {Isolation: placement.FenceAfter, FenceAfter: time.Hour},
	} {
		l := placement.Log{Incarnation: "inc", Home: "here", Epoch: h.epoch, Status: placement.Active, Terms: terms}
		p.placed["inc"] = l
		p.holder.Follow(l)
		p.holder.Answered(placement.Grant{Region: "here", Generation: 1, Digest: placement.CoverDigest([]placement.Log{l})}, p.now())
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.mayWrite(api.LogID{}, h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
