package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
)

// A file that was published with version 1 is published again as the same records, also
// where the ids are the lines' own: the retry of yesterday's file repeats nothing.
func TestUpgrade_LinesOfVersion1AreTheSameRecords(t *testing.T) {
	file, err := os.Open("testdata/version-1/publish.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var got []api.Record
	for lines := newLineReader(file); ; {
		line, number, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		r, err := publishFlags{}.record(line, number, api.Record{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	tags := []api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "order"}}
	want := []api.Record{
		{ID: "o-1", Topic: "orders", Key: "k", Tags: tags, Headers: []api.Header{{Name: "Trace", Value: "t"}},
			EventTime: time.Date(2026, 3, 1, 10, 0, 0, 5e8, time.UTC), Body: []byte("hé")},
		{ID: "line-a1e87937a49fb6b1f25bbc0637cd3492", Topic: "orders", Tags: tags, Body: []byte(`{"b": 1.0,  "a":12345678901234567890}`)},
		{ID: "line-47cdbe16387bb7ad5b8c3931460f8f83", Topic: "orders", Body: []byte("null")},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestUpgrade_ContextsOfVersion1Load(t *testing.T) {
	path := filepath.Join("testdata", "version-1", "contexts.yaml")
	a := &app{env: func(name string) string { return map[string]string{"DOMICILE_CONTEXTS": path}[name] }}
	c, err := a.chosenContext()
	if err != nil {
		t.Fatal(err)
	}
	people := filepath.Join(filepath.Dir(path), "people")
	want := namedContext{Door: "127.0.0.1:7400", Admin: "127.0.0.1:7402", CA: filepath.Join(people, "ca.pem"),
		Cert: filepath.Join(people, "app-eu-west.pem"), Key: filepath.Join(people, "app-eu-west.key"),
		AdminCert: filepath.Join(people, "operator.pem"), AdminKey: filepath.Join(people, "operator.key")}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
}
