package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"domicile/api"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func files() map[string][]byte {
	return map[string][]byte{"catalog.yaml": []byte("serial: 1\n"), "rules/orders.rego": []byte("package residency.rules.orders\n\n\x00"), "rules/empty.rego": {}}
}

func manifest(serial int64) Manifest {
	return Manifest{Federation: "example", Serial: serial, ValidFrom: noon, ValidUntil: noon.Add(MaxValidity), MinEngine: "1.22.3"}
}

func built(t testing.TB, m Manifest, by ...*Signer) *Bundle {
	t.Helper()
	b, err := Build(m, files())
	for _, s := range by {
		if err == nil {
			err = b.Sign(s)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func person(t testing.TB, id string) *Signer {
	t.Helper()
	s, err := NewSigner(id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestR14b_BundleIsWrittenInOneWay(t *testing.T) {
	b := built(t, manifest(3), person(t, "anna"), person(t, "ben"))
	data := b.Bytes()
	again, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), data) || again.Digest() != b.Digest() || !maps.EqualFunc(again.Files, b.Files, bytes.Equal) {
		t.Error("what was read is another bundle")
	}
	if unsigned := built(t, manifest(3)); unsigned.Digest() != b.Digest() {
		t.Error("signing changed the digest, or two builds of the same files differ")
	}
	if other := built(t, manifest(4)); other.Digest() == b.Digest() {
		t.Error("another serial has the same digest")
	}
}

// TestR14b_BundleCutOffAnywhereIsRefused also flips each byte once: none of these may be
// read as a bundle that the same people have signed.
func TestR14b_BundleCutOffAnywhereIsRefused(t *testing.T) {
	anna := person(t, "anna")
	trust := trustOf(t, map[string]*Signer{"legal": anna})
	data := built(t, manifest(3), anna).Bytes()
	for n := range data {
		if _, err := Read(data[:n]); api.CodeOf(err) != api.PolicyError {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
		flipped := bytes.Clone(data)
		flipped[n] ^= 1
		b, err := Read(flipped)
		if err != nil {
			continue
		}
		if a, err := b.Approvals(trust); err == nil && a.Enough() == nil {
			t.Fatalf("byte %d was changed, and the bundle is still approved", n)
		}
	}
	if _, err := Read(append(data, 'x')); err == nil {
		t.Error("read with a byte too many")
	}
}

func trustOf(t testing.TB, people map[string]*Signer) Trust {
	t.Helper()
	var out Trust
	for role, s := range people {
		public, err := s.Public()
		if err != nil {
			t.Fatal(err)
		}
		out.Keys = append(out.Keys, Key{s.ID, role, public})
		out.Need = append(out.Need, Need{role, 1})
	}
	if err := out.Check(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestR14b_BundlesAreRefusedForDistinctReasons goes through everything a region asks of a
// bundle: each refusal has a cause of its own, and a way out.
func TestR14b_BundlesAreRefusedForDistinctReasons(t *testing.T) {
	anna, ben, mallory := person(t, "anna"), person(t, "ben"), person(t, "mallory")
	trust := trustOf(t, map[string]*Signer{"legal": anna, "engineering": ben})
	asAnna := &Signer{"anna", mallory.key}
	both := built(t, manifest(3), anna, ben)
	edit := func(b *Bundle, old, text string) []byte {
		data := strings.Replace(string(b.Bytes()), old, text, 1)
		if data == string(b.Bytes()) {
			t.Fatalf("the bundle has no %q", old)
		}
		return []byte(data)
	}
	take := func(data []byte, now time.Time, serial int64, engine string) error {
		b, err := Read(data)
		if err != nil {
			return err
		}
		if err := errors.Join(b.Fits("example", engine), b.Valid(now), b.Follows(serial, "another")); err != nil {
			return err
		}
		a, err := b.Approvals(trust)
		if err != nil {
			return err
		}
		return a.Enough()
	}
	delta := edit(built(t, manifest(3), anna, ben), `"kind":"whole"`, `"kind":"delta"`)
	twice := string(both.Bytes())
	line := twice[strings.Index(twice, "signature anna"):]
	line = line[:strings.IndexByte(line, '\n')+1]
	twice = strings.Replace(strings.Replace(twice, "signatures 2", "signatures 3", 1), line, line+line, 1)
	elsewhere := manifest(3)
	elsewhere.Federation = "other"
	newer := manifest(3)
	newer.MinEngine = "1.23.0"
	for name, c := range map[string]struct {
		data   []byte
		now    time.Time
		serial int64
		want   error
	}{
		"good":              {both.Bytes(), noon, 2, nil},
		"good at its end":   {both.Bytes(), noon.Add(MaxValidity - time.Second), 2, nil},
		"old serial":        {both.Bytes(), noon, 4, ErrOldSerial},
		"same serial":       {both.Bytes(), noon, 3, ErrOldSerial},
		"expired":           {both.Bytes(), noon.Add(MaxValidity), 2, ErrExpired},
		"not yet valid":     {both.Bytes(), noon.Add(-time.Second), 2, ErrNotYetValid},
		"wrong key":         {built(t, manifest(3), anna, mallory).Bytes(), noon, 2, ErrWrongKey},
		"another's name":    {built(t, manifest(3), asAnna, ben).Bytes(), noon, 2, ErrBadSignature},
		"files changed":     {edit(both, "package residency", "package residencz"), noon, 2, ErrBadSignature},
		"one signer twice":  {[]byte(twice), noon, 2, ErrSignedTwice},
		"one of two roles":  {built(t, manifest(3), anna).Bytes(), noon, 2, ErrTooFewRoles},
		"nobody":            {built(t, manifest(3)).Bytes(), noon, 2, ErrTooFewRoles},
		"delta":             {delta, noon, 2, ErrDelta},
		"no key id":         {edit(both, "signature anna ", "signature  "), noon, 2, ErrNoKeyID},
		"engine too old":    {built(t, newer, anna, ben).Bytes(), noon, 2, ErrOldEngine},
		"other federation":  {built(t, elsewhere, anna, ben).Bytes(), noon, 2, ErrElsewhere},
		"one more, unknown": {built(t, manifest(3), anna, mallory, ben).Bytes(), noon, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := take(c.data, c.now, c.serial, "1.22.3")
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("refused with %v, want %v", err, c.want)
			}
			var e *api.Error
			if err != nil && (!errors.As(err, &e) || e.Code != api.PolicyError || e.Field == "" || e.Hint == "") {
				t.Errorf("%v says no way out", err)
			}
		})
	}
}

func TestR14b_BundleThatNobodyWouldTakeIsNotBuilt(t *testing.T) {
	for name, change := range map[string]func(*Manifest, map[string][]byte){
		"a year": func(m *Manifest, _ map[string][]byte) { m.ValidUntil = m.ValidFrom.AddDate(1, 0, 0) },
		"never":  func(m *Manifest, _ map[string][]byte) { m.ValidUntil = m.ValidFrom },
		"before time": func(m *Manifest, _ map[string][]byte) {
			m.ValidFrom, m.ValidUntil = time.Time{}, time.Time{}.Add(time.Hour)
		},
		"no serial":      func(m *Manifest, _ map[string][]byte) { m.Serial = 0 },
		"back to itself": func(m *Manifest, _ map[string][]byte) { m.RollsBackTo = m.Serial },
		"no engine":      func(m *Manifest, _ map[string][]byte) { m.MinEngine = "new" },
		"no federation":  func(m *Manifest, _ map[string][]byte) { m.Federation = "" },
		"nothing":        func(_ *Manifest, f map[string][]byte) { clear(f) },
		"path upwards":   func(_ *Manifest, f map[string][]byte) { f["../catalog.yaml"] = nil },
		"path from root": func(_ *Manifest, f map[string][]byte) { f["/etc/passwd"] = nil },
		"hidden":         func(_ *Manifest, f map[string][]byte) { f["rules/.rego"] = nil },
		"deep":           func(_ *Manifest, f map[string][]byte) { f["a/b/c.rego"] = nil },
		"a line's end":   func(_ *Manifest, f map[string][]byte) { f["rules/a\nfile 0 b"] = nil },
		"too many": func(_ *Manifest, f map[string][]byte) {
			for i := range MaxFiles {
				f[fmt.Sprint("rules/", i)] = nil
			}
		},
		"too large": func(_ *Manifest, f map[string][]byte) { f["rules/a.rego"] = make([]byte, MaxSize) },
	} {
		m, f := manifest(3), files()
		change(&m, f)
		if b, err := Build(m, f); err == nil {
			t.Errorf("%s: built %+v", name, b.Manifest)
		}
	}
}

func TestR14b_KeysAndRolesThatProveNothingAreRefused(t *testing.T) {
	anna, ben := person(t, "anna"), person(t, "ben")
	public, _ := anna.Public()
	others, _ := ben.Public()
	key := Key{"anna", "legal", public}
	for name, trust := range map[string]Trust{
		"nobody is needed":       {Keys: []Key{key}},
		"more than there are":    {Keys: []Key{key}, Need: []Need{{"legal", 2}}},
		"a role nobody has":      {Keys: []Key{key}, Need: []Need{{"legal", 1}, {"security", 1}}},
		"none of a role":         {Keys: []Key{key}, Need: []Need{{"legal", 0}}},
		"one key under two ids":  {Keys: []Key{key, {"ben", "engineering", public}}, Need: []Need{{"legal", 1}, {"engineering", 1}}},
		"one id with two keys":   {Keys: []Key{key, {"anna", "engineering", others}}, Need: []Need{{"legal", 1}, {"engineering", 1}}},
		"an empty id":            {Keys: []Key{{"", "legal", public}}, Need: []Need{{"legal", 1}}},
		"a key that is none":     {Keys: []Key{{"anna", "legal", "AAAA"}}, Need: []Need{{"legal", 1}}},
		"one need in two halves": {Keys: []Key{key}, Need: []Need{{"legal", 1}, {"legal", 1}}},
		"need without keys":      {Need: []Need{{"legal", 1}}},
	} {
		if err := trust.Check(); api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	text, err := anna.PEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSigner(text)
	if err != nil || again.ID != "anna" || !again.key.Equal(anna.key) {
		t.Errorf("the key reads as %v, %v", again, err)
	}
	for _, bad := range []string{"", "x", strings.Replace(string(text), "anna", "", 1), strings.ReplaceAll(string(text), "POLICY ", "")} {
		if _, err := ParseSigner([]byte(bad)); api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%q reads as a key: %v", bad, err)
		}
	}
}

// FuzzRead: whatever reads as a bundle is written back byte by byte, and names nothing
// outside a policy directory.
func FuzzRead(f *testing.F) {
	anna := person(f, "anna")
	f.Add(built(f, manifest(3), anna).Bytes())
	f.Add(built(f, manifest(1)).Bytes())
	f.Add([]byte(magic + "\nmanifest 2\n{}\nend 0\nsignatures 0\n"))
	f.Add([]byte(magic + "\nmanifest 999999999999999999999\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Read(data)
		if err != nil {
			return
		}
		if !bytes.Equal(b.Bytes(), data) {
			t.Fatal("written back in another way")
		}
		for name := range b.Files {
			if strings.HasPrefix(name, "/") || strings.Contains(name, "..") && strings.Contains("/"+name+"/", "/../") {
				t.Fatalf("a file %q", name)
			}
		}
	})
}
