package doctor

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
)

// Options say what is examined.
type Options struct {
	Folder   string        // on the disk in question; a folder in it is made and removed again
	For      time.Duration // how long the store is loaded while it is watched
	Domicile string        // the program's version
	Self     Self
	Sync     func(*os.File) error // what brings the volume to the disk; nil: the real one
}

// Durability examines a disk. It takes some seconds beyond For and up to 600 MiB of room.
// The error is about what kept it from examining; what it found is in the certificate.
func Durability(ctx context.Context, o Options) (Certificate, error) {
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return Certificate{}, err
	}
	machine, err := look(folder)
	if err != nil {
		return Certificate{}, &api.Error{Code: api.ConfigInvalid, Op: "look at the disk", Field: "data", Value: o.Folder, Err: err, Hint: "name a folder that exists"}
	}
	dir, err := os.MkdirTemp(folder, "domicile-doctor-")
	if err != nil {
		return Certificate{}, &api.Error{Code: api.ConfigInvalid, Op: "make a folder on the disk", Field: "data", Value: o.Folder, Err: err, Hint: "run it as who owns the folder"}
	}
	defer os.RemoveAll(dir)
	if o.Sync == nil {
		o.Sync = fabric.Syncfs
	}
	host, _ := os.Hostname() // unknown is ""
	c := Certificate{Format: 1, Made: time.Now().UTC().Truncate(time.Second), Host: host, Root: os.Geteuid() == 0, Machine: machine, Versions: versions(o.Domicile), NotProven: notProven(&machine)}
	watched, speed := watchSyncs(ctx, dir, o.For, o.Sync)
	c.Speed = speed
	c.Checks = []Check{machine.check(), watched, killed(ctx, dir, o.Self), powerCut(ctx, dir, &machine, o.Self)}
	c.Verdict = verdict(c.Checks)
	return c, ctx.Err()
}
