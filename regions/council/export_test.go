package council

import (
	"context"
	"encoding/json"

	"domicile/regions/identity"
	"domicile/regions/placement"
)

// BreakDisk takes the voter's store away under it.
func (v *Voter) BreakDisk() { _ = v.store.db.Close() }

// Call opens a connection to another voter for the voters' protocol, and ends it.
func (v *Voter) Call(ctx context.Context, region string) error {
	conn, err := v.dialVoter(ctx, address(region))
	if err == nil {
		err = conn.Close()
	}
	return err
}

// RenewOf prolongs the leases of a region, as one of those that another region asked to.
func (v *Voter) RenewOf(ctx context.Context, region string) (placement.Grant, error) {
	return v.renew(ctx, region)
}

// AsVersion has a voter stand for a program that reads commands up to a version.
func AsVersion(c Config, reads byte) Config {
	c.reads = reads
	return c
}

// SubmitAs submits a command as one that needs a version.
func (v *Voter) SubmitAs(ctx context.Context, by identity.Signer, version byte, c placement.Command) (placement.Result, error) {
	data, err := c.Encode()
	if err != nil {
		return placement.Result{}, err
	}
	data[0] = version
	return v.submit(ctx, &c, data, func() (*proof, error) { return v.proven(by, &c, data) })
}

// SubmitBy submits a command that another region sends.
func (v *Voter) SubmitBy(ctx context.Context, by identity.Signer, c placement.Command) (placement.Result, error) {
	if err := submittable(c); err != nil {
		return placement.Result{}, err
	}
	data, err := c.Encode()
	if err != nil {
		return placement.Result{}, err
	}
	return v.submit(ctx, &c, data, func() (*proof, error) { return v.proven(by, &c, data) })
}

// Prove signs a command whether its sender may send it or not.
func Prove(by identity.Signer, authority string, version uint64, command []byte) any {
	p := &proof{Authority: authority, Version: version}
	p.Signed, _ = identity.SignWith(by, p.digest(command))
	return p
}

// ShowFounding is the proof of a founding, whoever signs it.
func ShowFounding(by identity.Signer, authority string, c Consent) any {
	f := &founding{Authority: authority, Consent: c}
	f.Signed, _ = identity.SignWith(by, f.digest())
	return f
}

// ReadGreeting is what is kept of a greeting that is taken.
func ReadGreeting(text []byte) (authority, roll string, ok bool) {
	var h hello
	if json.Unmarshal(text, &h) != nil || h.check() != nil {
		return "", "", false
	}
	return h.Authority, h.Roll, true
}
