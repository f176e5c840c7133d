package main

import (
	"golang.org/x/sys/unix"

	"domicile/api"
)

// disableCoreDumps keeps the process's memory, which holds records that may not rest
// in this region, out of files: no core dump on a crash, and no other process of the
// same user may attach to it or dump it.
func disableCoreDumps() error {
	refused := func(op string, err error) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "disable core dumps: " + op, Err: err,
			Hint: "a crash could write resident records to this machine's disk, so the node does not start"}
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return refused("RLIMIT_CORE", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return refused("PR_SET_DUMPABLE", err)
	}
	return nil
}
