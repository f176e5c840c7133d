package loss

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	"domicile/api"
	"domicile/regions/identity"
)

// maxSigned bounds a signed report: one of a full tail list and as many records found.
const maxSigned = 32 << 20

// Signed is a report and the region that vouches for it.
type Signed struct {
	Report Report `json:"report"`
	identity.Signed
}

// Sign signs a report.
func Sign(r Report, by identity.Signer) (Signed, error) {
	digest, err := r.digest()
	if err != nil {
		return Signed{}, err
	}
	s := Signed{Report: r}
	s.Signed, err = identity.SignWith(by, digest)
	return s, err
}

// digest is what is signed. The first line keeps a signature from meaning anything else.
func (r *Report) digest() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("domicile loss report 1\n"), text...))
	return sum[:], nil
}

// Encode is the signed report as JSON in one line without its end.
func (s *Signed) Encode() ([]byte, error) { return json.Marshal(s) }

// Parse reads what Encode wrote. It verifies nothing.
func Parse(text []byte) (Signed, error) {
	var s Signed
	if len(text) > maxSigned {
		return s, bad("report", "it is too large")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, bad("report", "pass the file that `domicile divergence report -o json` wrote")
	}
	if v := s.Report.Version; v != AtCut && v != Rejoin {
		return s, bad("version", "this version knows reports 1 and 2")
	}
	return s, nil
}

// Verify checks that the report is, to the letter, what the region that made it signed, and
// that its certificate is one that this node trusts now. It answers that region.
func (s *Signed) Verify(trust identity.Trust) (string, error) {
	digest, err := s.Report.digest()
	if err != nil {
		return "", err
	}
	peer, err := s.Signed.Verify(trust, digest, s.Report.By, identity.Region)
	return peer.Name.Name, err
}

func bad(field, hint string) error {
	return &api.Error{Code: api.BadRequest, Op: "read report", Field: field, Hint: hint}
}
