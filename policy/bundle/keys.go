package bundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"

	"domicile/api"
)

const (
	signatureSize = 64
	keyBlock      = "DOMICILE POLICY KEY"
	keyHeader     = "Id"
	// signedText stands before the digest in what is signed, so that a signature means
	// this and nothing else.
	signedText = "domicile policy bundle 1 digest\n"
)

// Signer is one person's private key and the id under which regions know it.
type Signer struct {
	ID  string
	key *ecdsa.PrivateKey
}

// NewSigner makes a key, EC P-256.
func NewSigner(id string) (*Signer, error) {
	if !plainWord(id) {
		return nil, badKey("id", id, "lower-case letters, digits, '-', '_' and '.', at most 64", nil)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &Signer{id, key}, err
}

func badKey(field, value, hint string, err error) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "read policy key", Field: field, Value: value, Hint: hint, Err: err}
}

// PEM is the private key with its id. It is a person's, and belongs on no node.
func (s *Signer) PEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(s.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Headers: map[string]string{keyHeader: s.ID}, Bytes: der}), nil
}

// ParseSigner reads what PEM wrote.
func ParseSigner(text []byte) (*Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyBlock {
		return nil, badKey("key", "", "give the file that `domicile policy keys new` wrote", nil)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil || key.Curve != elliptic.P256() || !plainWord(block.Headers[keyHeader]) {
		return nil, badKey("key", "", "an EC P-256 key with its id, as `domicile policy keys new` writes it", err)
	}
	return &Signer{block.Headers[keyHeader], key}, nil
}

// Public is the public key as node.yaml has it: base64 of its DER.
func (s *Signer) Public() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	return base64.StdEncoding.EncodeToString(der), err
}

func parsePublic(text string) (*ecdsa.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	key, ok := any.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is not EC P-256")
	}
	return key, nil
}

// Sign adds a signature. One who has signed is refused.
func (b *Bundle) Sign(s *Signer) error {
	r, v, err := ecdsa.Sign(rand.Reader, s.key, b.signed())
	if err != nil {
		return err
	}
	value := make([]byte, signatureSize)
	r.FillBytes(value[:signatureSize/2])
	v.FillBytes(value[signatureSize/2:])
	before := b.Signatures
	b.Signatures = append(before[:len(before):len(before)], Signature{s.ID, value})
	if err := b.check(); err != nil {
		b.Signatures = before
		return err
	}
	return nil
}

// signed is the hash that ECDSA signs.
func (b *Bundle) signed() []byte {
	sum := sha256.Sum256([]byte(signedText + b.Digest()))
	return sum[:]
}

func (b *Bundle) verify(key *ecdsa.PublicKey, value []byte) bool {
	r, s := new(big.Int).SetBytes(value[:signatureSize/2]), new(big.Int).SetBytes(value[signatureSize/2:])
	return ecdsa.Verify(key, b.signed(), r, s)
}
