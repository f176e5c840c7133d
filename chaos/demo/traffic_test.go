package demo

import (
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
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
		tr.remember(shop.Parcel{Want: c.want}, &ledger.Entry{Outcome: ledger.Refused, Code: c.got})
		if len(tr.surprises) != c.wrong {
			t.Errorf("%+v: %v", c, tr.surprises)
		}
	}
}
