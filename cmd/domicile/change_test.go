package main

import "testing"

// B12: a time that cannot be meant never purges everything.
func TestB12_PurgeBeforeATimeThatCannotBeMeant(t *testing.T) {
	for _, text := range []string{"1970-01-01T00:00:00Z", "1500-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2600-01-01T00:00:00Z", "yesterday"} {
		if at, err := purgeBefore(text); err == nil {
			t.Errorf("%s is taken as %d", text, at)
		}
	}
	if at, err := purgeBefore("2026-11-29T12:00:00Z"); err != nil || at <= 0 {
		t.Errorf("%d %v", at, err)
	}
}
