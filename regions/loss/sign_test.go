package loss

import (
	"bytes"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

func signer(t *testing.T, ca *identity.Authority, kind identity.Kind, name string) *identity.Identity {
	t.Helper()
	cert, key, err := ca.Issue(kind, name, time.Now().Add(-time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A report is believed only as the region that made it signed it.
func TestR14f_ReportIsSignedByItsRegion(t *testing.T) {
	ca, err := identity.NewCA("shop", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	us, eu := signer(t, ca, identity.Region, "us-east"), signer(t, ca, identity.Region, "eu-west")
	report := Cut(CutInput{Move: move(10), By: "us-east", Now: noon, Head: 12, Heard: noon,
		Entries: []regions.TailEntry{{From: 11, Sequence: 11, ID: hash(11), Time: noon, Bytes: 5}}})
	signed, err := Sign(report, us)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if by, err := read.Verify(eu); err != nil || by != "us-east" {
		t.Fatalf("%q, %v", by, err)
	}
	altered, err := Parse(bytes.Replace(text, []byte(`"bytes":5`), []byte(`"bytes":6`), 1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := Sign(report, eu) // which did not make it
	if err != nil {
		t.Fatal(err)
	}
	person, err := Sign(report, signer(t, ca, identity.Operator, "us-east"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Signed{"altered": altered, "by another region": other, "by an operator": person} {
		if by, err := s.Verify(eu); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("%s: %q, %v", name, by, err)
		}
	}
	for _, text := range []string{"", "{}", `{"report":{"version":3}}`, `{"more":1}`} {
		if _, err := Parse([]byte(text)); api.CodeOf(err) != api.BadRequest {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"report":{"version":1,"known_missing":[{"sequence":1}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		_ = s.Report.Markdown()
		again, err := s.Encode()
		if err != nil {
			return // a time that no text can hold
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
	})
}
