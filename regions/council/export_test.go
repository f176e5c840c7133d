package council

import (
	"context"

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

// AsVersion has a voter stand for a program that reads commands up to a version.
func AsVersion(c Config, reads byte) Config {
	c.reads = reads
	return c
}

// SubmitAs submits a command as one that needs a version.
func (v *Voter) SubmitAs(ctx context.Context, version byte, c placement.Command) (placement.Result, error) {
	data, err := c.Encode()
	if err != nil {
		return placement.Result{}, err
	}
	data[0] = version
	return v.submit(ctx, data)
}
