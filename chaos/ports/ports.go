// Package ports finds free ports for nodes that run side by side on one machine.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports lie below those that systems give to connections: a node that was stopped
// for a while must find its own free when it starts again.
const lowest, count = 10_000, 22_000

// Listen listens at a loopback port that nobody uses. Whoever holds the listener open
// keeps the port from being found again.
func Listen() (net.Listener, error) {
	var errs error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lowest+rand.IntN(count)))
		if err == nil {
			return l, nil
		}
		errs = err
	}
	return nil, errors.Join(errors.New("find a free port"), errs)
}

// Free is an address, host:port, that nobody listened at a moment ago.
func Free() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
