package regions_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

func TestSizeText(t *testing.T) {
	for text, want := range map[string]regions.Size{"0": 0, "17": 17, "17B": 17, "8KiB": 8 << 10, "512 MiB": 512 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40} {
		var s regions.Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "-1", "1KB", "GiB", "1.5GiB", "9999999999TiB", "0x10"} {
		var s regions.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := regions.Size(rapid.Int64Min(0).Draw(t, "size"))
		var got regions.Size
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Fatalf("%d is written %q and read as %d, %v", want, want, got, err)
		}
	})
}

func TestTextForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "<1ms", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s",
		12*time.Minute + 5*time.Second: "12m 05s", 3*time.Hour + 4*time.Minute: "3h 04m", 75 * time.Hour: "3d 3h", -time.Second: "-1.0s",
	} {
		if got := regions.Span(d); got != want {
			t.Errorf("Span(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 16 << 30: "16.0 GiB"} {
		if got := regions.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// R14d: a step of the wall clock never reaches a lag, because own time never steps.
func TestR14d_SteadyClockNeverSteps(t *testing.T) {
	c := regions.NewSteadyClock()
	last := c.Now()
	for range 1000 {
		now := c.Now()
		if now.Before(last) {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
	if step := c.Step(); step < -time.Second || step > time.Second {
		t.Errorf("a step of %v is reported while nobody set the clock", step)
	}
}

func TestBootClockRuns(t *testing.T) {
	a := regions.SystemBootClock()
	b := regions.SystemBootClock()
	if a <= 0 || b < a {
		t.Errorf("%v then %v", a, b)
	}
}

// The ledger accounts for every sequence an item covers, once.
func TestLedgerSumsToTheCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ledger regions.Ledger
		var cursor uint64
		kinds := []regions.GapKind{regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged}
		for range rapid.IntRange(0, 50).Draw(t, "items") {
			item := regions.Item{Sequence: cursor + 1}
			if rapid.Bool().Draw(t, "gap") {
				to := cursor + uint64(rapid.IntRange(1, 9).Draw(t, "count"))
				item.Gap = &regions.Gap{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), From: cursor + 1, To: to}
				item.Sequence = to
			}
			ledger.Add(&item)
			cursor = item.Sequence
		}
		if ledger.Sum() != cursor {
			t.Fatalf("sum %d, cursor %d", ledger.Sum(), cursor)
		}
	})
}

func TestNames(t *testing.T) {
	for _, name := range []string{"orders", "orders.eu", "orders_eu", "orders-eu", "Orders.EU", "con", "0"} {
		if err := regions.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "a..b", ".a", "a.", "a.*", "a.>", "*", ">", "a b", "../x", "a/b", `a\b`,
		"$SYS.x", "$JS.API.x", "café", "cafe\u0301", "😀", "a\x00", string(make([]byte, 256))} {
		if err := regions.CheckName(name); err == nil {
			t.Errorf("%q is taken for a topic name", name)
		}
	}
}

// A log that the federation does not have is nobody's home.
func TestHomeOfUnknownLogs(t *testing.T) {
	f, err := regions.ParseManifest("federation.yaml", []byte(`
version: 1
federation: acme
regions: {eu-west: {link: "a:1"}, us-east: {link: "b:1"}}
topics:
  catalog: {writes: home, home: eu-west, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  orders: {writes: local, regions: [eu-west], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range []string{"catalog@eu-west", "orders@us-east", "orders@home", "mars@home", "other/catalog@home"} {
		id, err := api.ParseLogID(log)
		if err != nil {
			t.Fatal(err)
		}
		if home, _, ok := f.Home(id); ok {
			t.Errorf("%s has a home: %s", log, home)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte("version: 1\nfederation: acme\nregions: {eu-west: {link: \"a:1\"}}\n"))
	f.Add([]byte("topics: {a: {writes: local}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fed, err := regions.ParseManifest("federation.yaml", data)
		if err != nil {
			if c := api.CodeOf(err); c != api.ConfigInvalid && c != api.NotInThisVersion {
				t.Fatalf("code %s: %v", c, err)
			}
			return
		}
		if fed.Digest() == "" {
			t.Fatal("no digest")
		}
	})
}
