package drill

import (
	"errors"
	"testing"

	"domicile/chaos/drill/history"
)

// TestRP1_ALookIsCleanOnlyIfAllWasSearched goes through what a look for leaks may have seen.
func TestRP1_ALookIsCleanOnlyIfAllWasSearched(t *testing.T) {
	outside := func(hits uint64) Sighting {
		return Sighting{"us-east", history.Scan{Where: "us-east's data folder", Sown: 4, Hits: hits}}
	}
	home := func(hits uint64) Sighting {
		return Sighting{"eu-west", history.Scan{Where: "eu-west's data folder", Sown: 4, Hits: hits, Home: true}}
	}
	for _, c := range []struct {
		name    string
		seen    []Sighting
		records uint64
		err     error
		want    CanaryVerdict
	}{
		{"all searched, all at home", []Sighting{outside(0), home(4)}, 20, nil, Clean},
		{"one outside", []Sighting{outside(1), home(4)}, 20, nil, Leaked},
		{"one outside, and a node that could not search", []Sighting{outside(1)}, 20, errors.New("late"), Leaked},
		{"a node that could not search", []Sighting{outside(0), home(4)}, 20, errors.New("late"), Unproven},
		{"one not found at home", []Sighting{outside(0), home(3)}, 20, nil, Unproven},
		{"nothing was taken", []Sighting{outside(0)}, 0, nil, Unproven},
		{"nobody is outside", []Sighting{home(4)}, 20, nil, Unproven},
		{"nothing was searched", nil, 20, nil, Unproven},
	} {
		if got, why := judgeCanary(c.seen, c.records, c.err); got != c.want || (got == Clean) != (why == "") {
			t.Errorf("%s: %s (%s), want %s", c.name, got, why, c.want)
		}
	}
}
