package node_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

// RA4: a topic is declared, two of three nodes start, and the third is lost. The new topic has
// no place yet and says that it comes; the others take records all the while. With the third
// node back the new one takes them too.
func TestRA4_ANewTopicThatHasToWaitHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newTrioAndOne(t)
	r.run(names[:]...)
	r.insistOn(r.holder(), euOrder("before"))
	for _, name := range names {
		r.halt(name)
	}
	text, err := os.ReadFile(r.configs["a"].Federation)
	if err != nil {
		t.Fatal(err)
	}
	line := text[strings.Index(string(text), "  orders: "):]
	text = append(text, strings.Replace(string(line), "orders", "later", 1)...)
	if r.f, err = regions.ParseManifest("federation.yaml", text); err != nil {
		t.Fatal(err)
	}
	r.write("catalog.yaml", fmt.Sprintf(soloCatalog, 1)+"  later: {allow: [{residency: [eu, global]}], packages: [orders]}\n")
	r.run("a", "b")
	holder := r.holder()
	r.insistOn(holder, euOrder("meanwhile"))
	rec := euOrder("later")
	rec.Topic = "later"
	r.refused(api.NotReady, "not open yet", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := dial(t, r.configs[holder].Listen.Door).Publish(ctx, &rec)
		return err
	})
	r.run("c")
	r.insistOn(r.holder(), rec)
}
