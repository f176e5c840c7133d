package council

import (
	"context"

	"domicile/regions/placement"
)

// BreakDisk takes the voter's store away under it.
func (v *Voter) BreakDisk() { _ = v.store.db.Close() }

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
