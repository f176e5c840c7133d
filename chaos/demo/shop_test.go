package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/ledger"
	"domicile/deploy"
	"domicile/regions"
)

func example(t *testing.T) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newTokens() *canary.Set { return &canary.Set{} }

func TestR14b_WhereRecordsRest(t *testing.T) {
	f := example(t)
	for _, c := range []struct{ topic, residency, asked, want string }{
		{orders, "eu", "us-east", "eu-west"}, {orders, "eu", "eu-west", "eu-west"}, {orders, "us", "us-east", "us-east"},
		{orders, "global", "us-east", "ap-south eu-west us-east"}, {catalog, "global", "ap-south", "ap-south eu-west us-east"},
		{health, "in", "ap-south", "ap-south"}, {orders, "EU", "us-east", ""}, {orders, "", "us-east", ""}, {"none", "eu", "us-east", ""},
	} {
		if got := strings.Join(rests(f, c.topic, c.residency, c.asked), " "); got != c.want {
			t.Errorf("%v: rests in %q", c, got)
		}
	}
}

// Whatever is bound to a boundary has a token in body, id, key and a header.
func TestR14b_ResidentRecordsAreMarkedEverywhere(t *testing.T) {
	f := example(t)
	tokens := &canary.Set{}
	for _, region := range f.Regions() {
		s := newShop(region, f, tokens)
		topics := map[string]bool{}
		var parcels []parcel
		for range 10 * len(wares[region]) {
			p, ok := s.next(false)
			if !ok {
				t.Fatal("an open shop has nothing to sell")
			}
			topics[p.record.Topic] = true
			parcels = append(parcels, p)
		}
		for _, p := range append(parcels, s.mistakes()...) {
			resident := p.record.Tag(regions.ResidencyTag) != regions.GlobalResidency
			if want := 0; resident {
				want = 4
				if len(p.tokens) != want {
					t.Errorf("%s: %d tokens", p.record.Topic, len(p.tokens))
				}
				places := map[string]bool{}
				for _, i := range p.tokens {
					_, place, _ := strings.Cut(tokens.Place(i), "/")
					places[place] = true
				}
				if len(places) != 4 {
					t.Errorf("tokens in %v only", places)
				}
			} else if len(p.tokens) != want {
				t.Errorf("global record with %d tokens", len(p.tokens))
			}
		}
		if len(topics) < 2 {
			t.Errorf("%s publishes to %v only", region, topics)
		}
	}
}

func TestClosedShopLeavesItsOwnLogsAlone(t *testing.T) {
	f := example(t)
	s := newShop("ap-south", f, &canary.Set{})
	sold := 0
	for range 100 {
		if p, ok := s.next(true); ok {
			sold++
			if slices.Contains(p.entry.Rests, "ap-south") && p.record.Topic != catalog {
				t.Errorf("a closed shop wrote %s %s", p.record.Topic, p.entry.Residency)
			}
		}
	}
	if sold == 0 {
		t.Error("a closed shop forwards nothing")
	}
}

func TestPace(t *testing.T) {
	if d := pace(150, 3); d != 20*time.Millisecond {
		t.Error(d)
	}
}

// A record that had to be taken and is refused for good is as wrong as a mistake that
// gets the wrong code. A state that passes is not.
func TestR14b_AWrongRefusalIsNoticed(t *testing.T) {
	for _, c := range []struct {
		want, got api.Code
		wrong     int
	}{
		{"", api.ResidencyDenied, 1}, {"", api.ManifestMismatch, 1}, {"", api.HomeUnreachable, 0},
		{api.MissingTag, api.MissingTag, 0}, {api.MissingTag, api.UnknownTag, 1},
	} {
		tr := newTraffic(regions.NewSteadyClock(), 1, &ledger.Book{})
		tr.remember(parcel{want: c.want}, &ledger.Entry{Outcome: ledger.Refused, Code: c.got})
		if len(tr.surprises) != c.wrong {
			t.Errorf("%+v: %v", c, tr.surprises)
		}
	}
}
