package strict_test

import (
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions/strict"
)

type inner struct {
	MaxAge string `yaml:"max_age"`
}

type outer struct {
	Region string           `yaml:"region"`
	Topics map[string]inner `yaml:"topics"`
	Hidden string           `yaml:"-"`
}

func TestDecodeNamesWhatItRefuses(t *testing.T) {
	for _, c := range []struct{ document, field, hint string }{
		{"regoin: x\n", "regoin", `did you mean "region"?`},
		{"topics: {a: {maxage: 1h}}\n", "maxage", `did you mean "max_age"?`},
		{"entirely_else: 1\n", "entirely_else", "remove the key"},
		{"region: a\nregion: b\n", "region", "a name may be given once only"},
		{"region: [a, b]\n", "", ""},
		{"region: a\n---\nregion: b\n", "", "keep one document per file"},
		{"", "", ""},
		{"\t", "", ""},
	} {
		var v outer
		err := strict.Decode("node.yaml", []byte(c.document), &v)
		if api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%q: %v", c.document, err)
			continue
		}
		e := err.(*api.Error)
		if e.Field != c.field || e.Hint != c.hint || !strings.Contains(err.Error(), "node.yaml") {
			t.Errorf("%q: field %q hint %q: %v", c.document, e.Field, e.Hint, err)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"eu-west", "us-east", "ap-south"}
	for word, want := range map[string]string{"eu-wset": "eu-west", "EU-WEST": "eu-west", "us_east": "us-east", "mars": ""} {
		if got := strict.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
