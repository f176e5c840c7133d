package regions_test

import (
	"errors"
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions"
)

// TestFA6_WordsOfOursAreNoNames: a region called like the issuer of the authority's epochs
// would give epochs in its name, one called like a word of matrices would be every region.
// Neither manifest nor certificate takes such a name, for a region, a boundary or a witness.
func TestFA6_WordsOfOursAreNoNames(t *testing.T) {
	for _, word := range []string{"q", "home", "global", "none", "unknown", "all", "inside", "outside", "any"} {
		for what, text := range map[string]string{
			"region":   "version: 1\nfederation: shop\nregions: {" + word + ": {link: \"127.0.0.1:1\"}}\n",
			"boundary": "version: 1\nfederation: shop\nregions: {eu-west: {link: \"127.0.0.1:1\"}}\nboundaries: {" + word + ": [eu-west]}\n",
			"witness": "version: 1\nfederation: shop\nregions: {eu-west: {link: \"127.0.0.1:1\"}, us-east: {link: \"127.0.0.1:2\"}}\n" +
				"authority: {voters: [eu-west, us-east], witness: {" + word + ": {link: \"127.0.0.1:3\"}}}\n",
		} {
			_, err := regions.ParseManifest("federation.yaml", []byte(text))
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.ConfigInvalid || !strings.Contains(e.Field, word) || !strings.Contains(e.Hint, "choose another name") {
				t.Errorf("a %s called %s: %v", what, word, err)
			}
		}
	}
	if err := regions.CheckRegionName("q1"); err != nil {
		t.Error(err)
	}
}
