package canary_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/chaos/canary"
)

func scan(t testing.TB, dir string, set *canary.Set) *canary.Report {
	t.Helper()
	r, err := canary.Scan(context.Background(), dir, set)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every form is written by the software that really writes it so, not by Forms.
func TestR14b_EveryEncodingIsFound(t *testing.T) {
	for _, mint := range []func() string{canary.Plain, canary.Awkward} {
		set := &canary.Set{}
		token := mint()
		set.Add(token, "body")
		jsonText, err := json.Marshal(map[string]string{"body": token})
		if err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "body", token)
		written := map[string][]byte{
			"raw": []byte("xx" + token), "hex": []byte(hex.EncodeToString([]byte("x" + token))),
			"upper": []byte(strings.ToUpper(hex.EncodeToString([]byte(token)))),
			"json":  jsonText, "slog": logged.Bytes(), "bytes": fmt.Appendf(nil, "%v", []byte("a"+token+"b")),
			"quoted": fmt.Appendf(nil, "%q", token),
		}
		for shift := range 3 {
			around := strings.Repeat("~", shift) + token + "tail"
			written[fmt.Sprint("base64+", shift)] = []byte(base64.StdEncoding.EncodeToString([]byte(around)))
			written[fmt.Sprint("base64url+", shift)] = []byte(base64.URLEncoding.EncodeToString([]byte(around)))
		}
		for name, content := range written {
			dir := t.TempDir()
			write(t, dir, "f", content)
			if r := scan(t, dir, set); r.Hits == 0 {
				t.Errorf("%q written as %s was not found", token, name)
			}
		}
	}
}

func TestR14b_PlantedLeakOfEachFormIsReported(t *testing.T) {
	set := &canary.Set{}
	set.Add(canary.Awkward(), "header")
	index := set.Add(canary.Awkward(), "body")
	for form := range canary.Forms(canary.Awkward()) {
		dir := t.TempDir()
		path, err := canary.Plant(dir, set, index, form)
		if err != nil {
			t.Fatal(err)
		}
		r := scan(t, dir, set)
		if len(r.Findings) != 1 || r.Found(index) != 1 || r.Found(0) != 0 {
			t.Fatalf("%s: findings %v", form, r.Findings)
		}
		f := r.Findings[0]
		if f.Form != form || f.Offset != int64(len("before ")) || f.File != filepath.Base(path) || set.Place(f.Token) != "body" {
			t.Errorf("%s: found %v", form, f)
		}
	}
}

// A token may lie anywhere, also across the edge of what is read at once.
func TestR14b_TokenAcrossABufferEdge(t *testing.T) {
	const chunk = 1 << 20
	set := &canary.Set{}
	token := canary.Plain()
	set.Add(token, "body")
	encoded := base64.StdEncoding.EncodeToString([]byte(token))
	for _, text := range []string{token, hex.EncodeToString([]byte(token)), encoded} {
		dir := t.TempDir()
		var want []int64
		for edge := int64(1); edge <= 3; edge++ {
			want = append(want, edge*chunk-int64(len(text))/2)
		}
		content := bytes.Repeat([]byte{'.'}, 3*chunk+len(text))
		for _, at := range want {
			copy(content[at:], text)
		}
		write(t, dir, "f", content)
		r := scan(t, dir, set)
		if len(r.Findings) != len(want) || r.Bytes != int64(len(content)) || r.Files != 1 {
			t.Fatalf("%d findings, %d bytes, want %d, %d", len(r.Findings), r.Bytes, len(want), len(content))
		}
		for i, f := range r.Findings {
			if f.Offset != want[i] {
				t.Errorf("found at %d, want %d", f.Offset, want[i])
			}
		}
	}
}

func TestR14b_NamesAndLinksAreSearched(t *testing.T) {
	set := &canary.Set{}
	token := canary.Plain()
	set.Add(token, "id")
	dir := t.TempDir()
	write(t, dir, filepath.Join("a"+hex.EncodeToString([]byte(token)), "f"), nil)
	if err := os.Symlink("/nowhere/"+token, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	r := scan(t, dir, set)
	forms := map[canary.Form]bool{}
	for _, f := range r.Findings {
		if !f.InName {
			t.Errorf("%v is not marked as a name", f)
		}
		forms[f.Form] = true
	}
	if !forms[canary.Raw] || !forms[canary.HexLower] {
		t.Errorf("found %v", r.Findings)
	}
}

func TestR14b_CleanFilesAndMissingTokens(t *testing.T) {
	set := &canary.Set{}
	here, gone := set.Add(canary.Plain(), "eu/body"), set.Add(canary.Plain(), "us/body")
	dir := t.TempDir()
	write(t, dir, "clean", bytes.Repeat([]byte("nothing of interest "), 200_000))
	if r := scan(t, dir, set); r.Hits != 0 || r.Files != 1 {
		t.Fatalf("hits %d in %d clean files", r.Hits, r.Files)
	}
	if _, err := canary.Plant(dir, set, here, canary.Raw); err != nil {
		t.Fatal(err)
	}
	r := scan(t, dir, set)
	if m := r.Missing(set.Where("eu/")); len(m) != 0 {
		t.Errorf("missing %v", m)
	}
	if m := r.Missing(set.Where("us/")); len(m) != 1 || m[0] != gone {
		t.Errorf("missing %v, want %d", m, gone)
	}
	if r.Among(set.Where("eu/")) != 1 || r.Among(set.Where("us/")) != 0 {
		t.Error("Among counts wrong")
	}
}

// What was last changed before a token was minted can't hold it, and is counted.
func TestR14b_FilesOfBeforeAreCountedNotRead(t *testing.T) {
	set := &canary.Set{}
	token := canary.Plain()
	set.Add(token, "body")
	dir := t.TempDir()
	write(t, dir, "old", []byte(token))
	write(t, dir, "new", []byte(token))
	since := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old"), since.Add(-time.Minute), since.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	r, err := canary.ScanSince(t.Context(), dir, set, since)
	if err != nil || r.Files != 1 || r.Older != 1 || r.Hits != 1 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestR14b_UnreadableIsNotClean(t *testing.T) {
	set := &canary.Set{}
	set.Add(canary.Plain(), "body")
	if _, err := canary.Scan(context.Background(), filepath.Join(t.TempDir(), "absent"), set); err == nil {
		t.Error("an absent directory passed as clean")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := canary.Scan(ctx, t.TempDir(), set); err == nil {
		t.Error("a scan that was called off passed as clean")
	}
}

func TestFindingNeverPrintsTheToken(t *testing.T) {
	set := &canary.Set{}
	token := canary.Plain()
	set.Add(token, "body")
	dir := t.TempDir()
	if _, err := canary.Plant(dir, set, 0, canary.Raw); err != nil {
		t.Fatal(err)
	}
	if text := scan(t, dir, set).Findings[0].String(); strings.Contains(text, token) {
		t.Errorf("%s repeats the token", text)
	}
}

// Whatever stands around a token, its form is found.
func FuzzScan(f *testing.F) {
	f.Add([]byte("before"), []byte("after"), uint8(0))
	f.Add([]byte{0xff, 0}, []byte{}, uint8(4))
	set := &canary.Set{}
	token := canary.Awkward()
	set.Add(token, "body")
	f.Fuzz(func(t *testing.T, before, after []byte, form uint8) {
		whole := append(append(bytes.Clone(before), token...), after...)
		encoded := [][]byte{whole, []byte(hex.EncodeToString(whole)), []byte(base64.StdEncoding.EncodeToString(whole)), fmt.Appendf(nil, "%v", whole)}
		dir := t.TempDir()
		write(t, dir, "f", encoded[int(form)%len(encoded)])
		if r := scan(t, dir, set); r.Found(0) == 0 {
			t.Errorf("not found in %q", encoded[int(form)%len(encoded)])
		}
	})
}

func BenchmarkScan(b *testing.B) {
	set := &canary.Set{}
	for range 8000 {
		set.Add(canary.Plain(), "body")
	}
	dir := b.TempDir()
	content := make([]byte, 64<<20)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	write(b, dir, "f", content)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		scan(b, dir, set)
	}
}
