package shop

import (
	"slices"
	"strings"
	"testing"

	"domicile/chaos/canary"
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

func TestR14b_WhereRecordsRest(t *testing.T) {
	f := example(t)
	for _, c := range []struct{ topic, residency, asked, want string }{
		{Orders, "eu", "us-east", "eu-west"}, {Orders, "eu", "eu-west", "eu-west"}, {Orders, "us", "us-east", "us-east"},
		{Orders, "global", "us-east", "ap-south eu-west us-east"}, {Catalog, "global", "ap-south", "ap-south eu-west us-east"},
		{Health, "in", "ap-south", "ap-south"}, {Orders, "EU", "us-east", ""}, {Orders, "", "us-east", ""}, {"none", "eu", "us-east", ""},
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
		s := New(region, f, tokens)
		topics := map[string]bool{}
		var parcels []Parcel
		for range 10 * len(wares[region]) {
			p, ok := s.Next(false)
			if !ok {
				t.Fatal("an open shop has nothing to sell")
			}
			topics[p.Record.Topic] = true
			parcels = append(parcels, p)
		}
		for _, p := range append(parcels, s.Mistakes()...) {
			resident := p.Record.Tag(regions.ResidencyTag) != regions.GlobalResidency
			if want := 0; resident {
				want = 4
				if len(p.Tokens) != want {
					t.Errorf("%s: %d tokens", p.Record.Topic, len(p.Tokens))
				}
				places := map[string]bool{}
				for _, i := range p.Tokens {
					_, place, _ := strings.Cut(tokens.Place(i), "/")
					places[place] = true
				}
				if len(places) != 4 {
					t.Errorf("tokens in %v only", places)
				}
			} else if len(p.Tokens) != want {
				t.Errorf("global record with %d tokens", len(p.Tokens))
			}
		}
		if len(topics) < 2 {
			t.Errorf("%s publishes to %v only", region, topics)
		}
	}
}

func TestClosedShopLeavesItsOwnLogsAlone(t *testing.T) {
	f := example(t)
	s := New("ap-south", f, &canary.Set{})
	sold := 0
	for range 100 {
		if p, ok := s.Next(true); ok {
			sold++
			if slices.Contains(p.Entry.Rests, "ap-south") && p.Record.Topic != Catalog {
				t.Errorf("a closed shop wrote %s %s", p.Record.Topic, p.Entry.Residency)
			}
		}
	}
	if sold == 0 {
		t.Error("a closed shop forwards nothing")
	}
}
