package field_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/field"
	"domicile/chaos/lab"
)

const syncedManifest = `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
topics:
  orders: {writes: home, home: eu-west, mirror: [all], sync: {within: eu, copies: 2, when_short: refuse}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// syncedPolicies replaces the example's, which are for other regions.
func syncedPolicies(dir string) error {
	const catalog = `serial: 1
dimensions: {residency: [eu, global], class: [order]}
principal_classes: [app, operator]
topics: {orders: {allow: [{residency: [eu, global], class: [order]}], packages: [orders]}}
`
	const rules = `package residency.rules.orders

permit contains {"rule": "boundary", "text": "in its boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point != "transit"

permit contains {"rule": "global", "text": "everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

destination contains "eu-west" if input.tags.residency == "eu"
`
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "rules"), 0o755),
		os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o644),
		os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(rules), 0o644))
}

// TestR14j_AKilledHomeLosesNoAck: the home is killed right after acks, for good. Whatever
// any producer was told is stored is on the disk of the other region of the set, and in
// the region outside of it there is nothing that this one has not.
func TestR14j_AKilledHomeLosesNoAck(t *testing.T) {
	f := openWith(t, field.Options{Manifest: []byte(syncedManifest)}, syncedPolicies)
	home := f.Node("eu-west")
	must(t, lab.Poll(t.Context(), soon, func() error { _, err := publish(t, home, order("first", "eu")); return err }))
	c, err := home.Client(1)
	must(t, err)
	defer c.Close()
	var mu sync.Mutex
	outcomes := map[string]api.Code{}
	acked := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, code := range outcomes {
			if code == "" {
				n++
			}
		}
		return n
	}
	publishing, end := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for p, residency := range []string{"eu", "global"} {
		producers.Go(func() {
			publisher := c.NewPublisher(client.Window{Records: 128})
			for i := 0; publishing.Err() == nil; i++ {
				o := order(fmt.Sprintf("%d-%d", p, i), residency)
				publisher.Publish(publishing, *o, func(_ api.Ack, err error) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[o.ID] = api.CodeOf(err)
				})
			}
			closing, cancel := context.WithTimeout(context.Background(), 5*time.Second) // what is left has no outcome, and needs none
			defer cancel()
			_ = publisher.Close(closing)
		})
	}
	err = lab.Poll(t.Context(), soon, func() error {
		if n := acked(); n < 500 {
			return fmt.Errorf("%d acks", n)
		}
		return nil
	})
	home.Kill()
	end()
	producers.Wait()
	must(t, err)
	outcomes["first"] = ""
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer cancel()
	must(t, f.Stop(ctx))
	in := map[string][]string{}
	for _, n := range f.Nodes() {
		shelves, err := lab.Shelves(ctx, f.Federation, n.Region, n.Data())
		must(t, err)
		for _, s := range shelves {
			for _, i := range s.Items {
				in[i.ID] = append(in[i.ID], n.Region)
			}
		}
	}
	for id, code := range outcomes {
		if code == "" && !slices.Contains(in[id], "eu-central") {
			t.Errorf("%s was acknowledged, and eu-central does not have it", id)
		}
	}
	for id, regions := range in {
		if slices.Contains(regions, "us-east") && !slices.Contains(regions, "eu-central") {
			t.Errorf("%s is in us-east and not in eu-central", id)
		}
	}
	t.Logf("%d acks, %d outcomes in all", acked(), len(outcomes))
}
