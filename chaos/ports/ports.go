// Package ports finds free ports for nodes that run side by side on one machine.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports lie below those that systems give to connections: a node that was stopped
// for a while must find its own free when it starts again. For the same reason a process
// takes them from a block of its own, one after the other: what another process or a
// later caller is given is not the port of a node that happens to be down.
const lowest, blocks, size = 10_000, 22, 1_000

var own struct {
	mu    sync.Mutex
	mark  net.Listener // the block's first port, held for the life of the process
	first int
	next  int
}

// Listen listens at a loopback port that nobody uses. Whoever holds the listener open
// keeps the port from being found again.
func Listen() (net.Listener, error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.mark == nil {
		if err := takeBlock(); err != nil {
			return nil, err
		}
	}
	var errs error
	for range 100 {
		own.next = own.next%(size-1) + 1
		l, err := at(own.first + own.next)
		if err == nil {
			return l, nil
		}
		errs = err
	}
	return nil, errors.Join(errors.New("find a free port"), errs)
}

// Row is the first of n ports in a row, at none of which anybody listened a moment ago and
// none of which this process is given again before it has been through all of its block.
func Row(n int) (first int, err error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.mark == nil {
		if err := takeBlock(); err != nil {
			return 0, err
		}
	}
	if n < 1 || n >= size {
		return 0, fmt.Errorf("find %d ports in a row: a block has %d", n, size-1)
	}
	free := 0
	for range 2 * size {
		if own.next++; own.next >= size {
			own.next, free = 1, 0
		}
		l, err := at(own.first + own.next)
		if err != nil {
			free = 0
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		if free++; free == n {
			return own.first + own.next - n + 1, nil
		}
	}
	return 0, fmt.Errorf("find %d free ports in a row: this process's block is too full", n)
}

func takeBlock() error {
	var errs error
	for _, block := range rand.Perm(blocks) {
		l, err := at(lowest + block*size)
		if err == nil {
			own.mark, own.first = l, lowest+block*size
			return nil
		}
		errs = err
	}
	return errors.Join(fmt.Errorf("find a free block of ports: %d processes hold them all", blocks), errs)
}

func at(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
}

// Free is an address, host:port, that nobody listened at a moment ago and that this
// process is not given again before it has been through all of its block.
func Free() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
