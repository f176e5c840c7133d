package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports a lab uses lie below those that systems give to connections: a region that
// was stopped for a while must find its own free when it starts again.
const lowestPort, ports = 10_000, 22_000

// freePort listens at a port that nobody uses.
func freePort() (net.Listener, error) {
	var errs error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lowestPort+rand.IntN(ports)))
		if err == nil {
			return l, nil
		}
		errs = err
	}
	return nil, errors.Join(errors.New("find a free port"), errs)
}
