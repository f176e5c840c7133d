package approval_test

import (
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
)

const plan = "20261130T120000Z-0123456789abcdef"

// desk is an authority, its people, and a node that has to believe them.
type desk struct {
	t        *testing.T
	ca       *identity.Authority
	clock    *regions.ManualClock
	verifier *approval.Verifier
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, clock: regions.NewManualClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
	d.ca = d.authority("shop")
	cert, key := d.issue(d.ca, identity.Region, "eu-west")
	trust, err := identity.New(cert, key, d.ca.CertPEM(), d.clock)
	if err != nil {
		t.Fatal(err)
	}
	d.verifier = &approval.Verifier{Federation: "shop", Trust: trust, Clock: d.clock, Rules: approval.Rules{
		{Match: "ada", Roles: []string{approval.Incident, approval.Operator}},
		{Match: "ben-*", Roles: []string{approval.Compliance}},
	}}
	return d
}

func (d *desk) authority(federation string) *identity.Authority {
	ca, err := identity.NewCA(federation, d.clock.Now(), 240*time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	return ca
}

func (d *desk) issue(ca *identity.Authority, kind identity.Kind, name string) (cert, key []byte) {
	cert, key, err := ca.Issue(kind, name, d.clock.Now(), 120*time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	return cert, key
}

func (d *desk) statement(role string) approval.Statement {
	return approval.Statement{Federation: "shop", Hash: plan, Role: role, Expires: d.clock.Now().Add(time.Hour)}
}

func (d *desk) sign(name string, s approval.Statement) approval.Signed {
	cert, key := d.issue(d.ca, identity.Operator, name)
	signed, err := approval.Sign(s, cert, key)
	if err != nil {
		d.t.Fatal(err)
	}
	return signed
}

func TestApproval_IsTakenForExactlyWhatWasSigned(t *testing.T) {
	d := newDesk(t)
	good := d.sign("ada", d.statement(approval.Incident))
	text, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := approval.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := d.verifier.Verify(read, plan, approval.Incident); err != nil || c.Name != "ada" || c.Role != approval.Incident {
		t.Fatalf("a good one: %+v %v", c, err)
	}
	other := d.sign("ada", approval.Statement{Federation: "shop", Hash: plan + "x", Role: approval.Incident, Expires: d.clock.Now().Add(time.Hour)})
	long := d.statement(approval.Incident)
	long.Expires = d.clock.Now().Add(25 * time.Hour)
	for name, c := range map[string]struct {
		change func(*approval.Signed)
		says   string
	}{
		"another plan":      {func(s *approval.Signed) { *s = other }, "consents to something else"},
		"hash changed":      {func(s *approval.Signed) { s.Hash = plan + "x" }, "not what was signed"},
		"role changed":      {func(s *approval.Signed) { s.Role = approval.Operator }, "not what was signed"},
		"end changed":       {func(s *approval.Signed) { s.Expires = s.Expires.Add(time.Second) }, "not what was signed"},
		"signature of more": {func(s *approval.Signed) { s.Signature = other.Signature }, "not what was signed"},
		"no signature":      {func(s *approval.Signed) { s.Signature = nil }, "not what was signed"},
		"another's chain":   {func(s *approval.Signed) { s.Chain = d.sign("ada", d.statement(approval.Incident)).Chain }, "not what was signed"},
		"role not given":    {func(s *approval.Signed) { *s = d.sign("ben-1", d.statement(approval.Incident)) }, "takes the role incident"},
		"nobody":            {func(s *approval.Signed) { *s = d.sign("carl", d.statement(approval.Incident)) }, "takes the role incident"},
		"role not wanted":   {func(s *approval.Signed) { *s = d.sign("ben-1", d.statement(approval.Compliance)) }, "as incident"},
		"for ever":          {func(s *approval.Signed) { *s = d.sign("ada", long) }, "lasts too long"},
		"no certificate":    {func(s *approval.Signed) { s.Chain = nil }, "the signer's certificate"},
	} {
		s := good
		c.change(&s)
		if _, err := d.verifier.Verify(s, plan, approval.Incident); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.clock.Advance(time.Hour)
	if c, err := d.verifier.Given(good, plan, approval.Incident); err != nil || c.Name != "ada" {
		t.Errorf("what was done by it: %+v %v", c, err)
	}
	if _, err := d.verifier.Given(good, plan+"x", approval.Incident); err == nil {
		t.Error("something else was done by it")
	}
	if _, err := d.verifier.Verify(good, plan, approval.Incident); api.CodeOf(err) != api.PermissionDenied || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after its end: %v", err)
	}
}

func TestApproval_TrustsOnlyOperatorsOfThisFederation(t *testing.T) {
	d := newDesk(t)
	foreign := d.authority("shop") // the same name, another authority
	cert, key := d.issue(foreign, identity.Operator, "ada")
	forged, err := approval.Sign(d.statement(approval.Incident), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.verifier.Verify(forged, plan, approval.Incident); err == nil || !strings.Contains(err.Error(), "not signed by an authority") {
		t.Errorf("another authority's ada: %v", err)
	}
	for _, kind := range []identity.Kind{identity.Client, identity.Region} {
		cert, key := d.issue(d.ca, kind, "ada")
		if _, err := approval.Sign(d.statement(approval.Incident), cert, key); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("a %s signed: %v", kind, err)
		}
	}
	bank := d.statement(approval.Incident)
	bank.Federation = "bank"
	cert, key = d.issue(d.ca, identity.Operator, "ada")
	if _, err := approval.Sign(bank, cert, key); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("signed for another federation: %v", err)
	}
	late := d.sign("ada", d.statement(approval.Incident))
	d.clock.Advance(121 * time.Hour)
	if _, err := d.verifier.Verify(late, plan, approval.Incident); err == nil || !strings.Contains(err.Error(), "certificate expired") {
		t.Errorf("with a certificate that has ended: %v", err)
	}
}

// Two people are two certificates' names, and never the one who asks.
func TestApproval_CountsPeople(t *testing.T) {
	d := newDesk(t)
	d.verifier.Rules = append(d.verifier.Rules, approval.Rule{Match: "*", Roles: []string{approval.Incident}})
	all := []approval.Signed{
		d.sign("ada", d.statement(approval.Incident)), d.sign("ada", d.statement(approval.Operator)),
		d.sign("eve", d.statement(approval.Incident)), d.sign("zoe", d.statement(approval.Incident)),
		d.sign("ben-1", d.statement(approval.Compliance)),
	}
	people, refused := d.verifier.People(all, plan, "eve", approval.Incident, approval.Operator)
	if len(people) != 2 || people[0].Name != "ada" || people[1].Name != "zoe" {
		t.Errorf("people: %+v", people)
	}
	if len(refused) != 2 || !strings.Contains(refused[0].Error(), "cannot approve it too") || !strings.Contains(refused[1].Error(), "role") {
		t.Errorf("refused: %v", refused)
	}
}

func TestApproval_RolesAreChecked(t *testing.T) {
	for _, c := range []struct {
		rules approval.Rules
		says  string
	}{
		{approval.Rules{{Match: "ada", Roles: []string{"incident"}}}, ""},
		{approval.Rules{{Match: "ada", Roles: []string{"incidents"}}}, `operators[0].roles value="incidents" (did you mean "incident"?)`},
		{approval.Rules{{Match: "ada"}}, "operators[0].roles (name at least one"},
		{approval.Rules{{Roles: []string{"incident"}}}, "operators[0].match"},
		{approval.Rules{{Match: "[", Roles: []string{"incident"}}}, "operators[0].match"},
	} {
		if err := c.rules.Check(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.rules, err)
		}
	}
	rules := approval.Rules{{Match: "ada", Roles: []string{approval.Operator}}, {Match: "*", Roles: []string{approval.Incident}}}
	if err := rules.Has("ada", approval.Incident); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("the first rule that matches did not decide: %v", err)
	}
	if err := rules.Has("eve", approval.Operator, approval.Incident); err != nil {
		t.Error(err)
	}
}

// FuzzParse: what is read is written back byte for byte, so that no two texts are one
// statement.
func FuzzParse(f *testing.F) {
	ca, err := identity.NewCA("shop", time.Now(), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	cert, key, err := ca.Issue(identity.Operator, "ada", time.Now(), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	signed, err := approval.Sign(approval.Statement{Federation: "shop", Hash: plan, Role: approval.Incident, Expires: time.Now().Add(time.Hour)}, cert, key)
	if err != nil {
		f.Fatal(err)
	}
	text, _ := signed.Encode()
	f.Add(text)
	f.Add(text + " ")
	f.Add(strings.Replace(text, `"role"`, `"Role"`, 1))
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := approval.Parse(text)
		if err != nil {
			if api.CodeOf(err) != api.BadRequest {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if again, err := s.Encode(); err != nil || again != text {
			t.Errorf("%q was read as %q, %v", text, again, err)
		}
	})
}
