package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions"
)

// C0, A1: a start finds one log damaged. Its producers are told, status and an audit say so,
// and the other log serves.
func TestFC0_OneDamagedLogTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(1, soloRules)
	w.write("catalog.yaml", "serial: 1\ndimensions: {residency: [eu, global]}\nprincipal_classes: [app]\ntopics:\n"+
		"  orders: {allow: [{residency: [eu, global]}], packages: [orders]}\n  bills: {allow: [{residency: [eu, global]}], packages: [orders]}\n")
	line := solo[strings.Index(solo, "  orders: "):]
	var err error
	if w.f, err = regions.ParseManifest("federation.yaml", []byte(solo+strings.Replace(line, "orders", "bills", 1))); err != nil {
		t.Fatal(err)
	}
	n := w.start()
	if _, err := w.publish(n, "first"); err != nil {
		t.Fatal(err)
	}
	w.stop(n)
	described, err := filepath.Glob(filepath.Join(w.config.Data, "broker", "jetstream", "*", "streams", "*rders*", "meta.inf"))
	if err != nil || len(described) != 1 {
		t.Fatalf("%v: %v", described, err)
	}
	if err := os.WriteFile(described[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n = w.start()
	if _, err := w.publish(n, "second"); api.CodeOf(err) != api.StorageFailed || !strings.Contains(err.Error(), "stays shut") {
		t.Errorf("published to it: %v", err)
	}
	bill := api.Record{ID: "bill", Topic: "bills", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("bill")}
	if _, err := dial(t, n.Door()).Publish(t.Context(), &bill); err != nil {
		t.Errorf("published to the other: %v", err)
	}
	if told := w.status(n).GetWarnings(); !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "orders@eu-west: damaged on this disk and shut") }) {
		t.Errorf("status says %q", told)
	}
}
