package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a quiet input is left to see whether the user has had enough.
const lookEvery = 100 // milliseconds

// errInterrupted is what an input that the user ended gives.
var errInterrupted = errors.New("interrupted; nothing was published")

// input reads a file, a pipe or a terminal and ends with ctx: a read of a quiet one
// would otherwise hold Ctrl-C until the next line.
type input struct {
	ctx context.Context
	f   *os.File
}

// interruptible is the standard input as it can be interrupted.
func (a *app) interruptible(ctx context.Context) io.Reader {
	if f, ok := a.in.(*os.File); ok {
		return input{ctx, f}
	}
	return a.in
}

func (i input) Read(b []byte) (int, error) {
	for i.ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(i.f.Fd()), Events: unix.POLLIN}}
		switch n, err := unix.Poll(fds, lookEvery); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n > 0:
			return i.f.Read(b)
		}
	}
	return 0, errInterrupted
}
