package fieldreports

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/regions"
)

// B04: a log and its copies are small and filled several times over. Producers are
// refused while there is no room and taken when there is, the copies go on by
// themselves each time, whatever did not reach them is named, and another topic flows
// meanwhile.
func TestB04_SmallLogsFillAndGoOn(t *testing.T) {
	topic := []byte("  catalog.updates:\n")
	small := bytes.Replace(deploy.FederationYAML, topic, append(topic, "    retention: {max_bytes: 8MiB}\n"...), 1)
	d := start(t, lab.Options{Manifest: small})
	const log = "catalog.updates@home"
	full := 0
	for round := range 3 {
		for n := range 16 {
			r := record(fmt.Sprintf("big-%d-%d", round, n), "catalog.updates", "global", bytes.Repeat([]byte{byte(n)}, 512<<10))
			if _, err := d.insist("eu-west", r); err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
		}
		d.burst("eu-west", fmt.Sprint("other-", round), "orders", "global", 10)
		d.poll("the other topic flows", func() error { return d.reached("orders@eu-west", "eu-west", "us-east") })
		d.poll("the copy goes on", func() error { return d.reached(log, "eu-west", "us-east") })
	}
	for _, e := range d.book.Entries() {
		if e.Code == api.StorageFull {
			full++
		}
	}
	if full == 0 {
		t.Error("nobody was ever told that there is no room")
	}
	d.settle()
	shelves, err := lab.Shelves(t.Context(), d.lab.Federation, "eu-west", d.lab.Region("eu-west").Data())
	d.must(err)
	for _, s := range shelves {
		if s.Log == log && (s.End != 48 || len(s.Items) > 20 || len(s.Gaps) == 0 || s.Gaps[0].Kind != regions.Expired) {
			t.Errorf("the home ends at %d, holds %d records and the gaps %v", s.End, len(s.Items), s.Gaps)
		}
	}
	if strings.Count(string(small), "8MiB}") != 1 {
		t.Error("the manifest has changed: this test bounds nothing")
	}
}
