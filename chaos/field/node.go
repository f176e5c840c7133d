package field

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"domicile/api/client"
)

// Node is one process with its disk. It is safe for concurrent use.
type Node struct {
	Name    string // of the region, or region.gateway
	Region  string
	Gateway string // its name in a quorum region; "" in a solo one
	Host    string // its address; all it sends to other nodes comes from there
	// Dir holds everything the node writes: configuration, log, and its disk as one
	// image, which is mounted below Dir while the node may run.
	Dir string

	field  *Field
	disk   *disk
	number int // of its region, from 1

	mu      sync.Mutex
	process *process // the last one that was started
	skew    time.Duration
}

// process is one run of a node.
type process struct {
	cmd  *exec.Cmd
	wall *wallClock
	done chan struct{} // closed when it has ended; err is set then
	err  error
}

func (n *Node) at(port int) string { return fmt.Sprintf("%s:%d", n.Host, port) }
func (n *Node) config() string     { return filepath.Join(n.Dir, "node.yaml") }
func (n *Node) log() string        { return filepath.Join(n.Dir, "node.log") }

// Data is the node's data directory, on its disk.
func (n *Node) Data() string { return filepath.Join(n.disk.mount(), "data") }

// Door and Admin are the node's addresses for producers and for operators.
func (n *Node) Door() string { return n.at(doorPort) }

// Admin is the node's address for operators.
func (n *Node) Admin() string { return n.at(adminPort) }

// Start starts the node's process on the files it has. It does nothing when it runs.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running() {
		return nil
	}
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{cmd: exec.Command("/proc/self/exe"), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Args[0] = "domicile-field-node"
	p.cmd.Env = append(os.Environ(), nodeKey+"="+n.config(), hostKey+"="+n.Host, breakKey+"="+n.field.options.Break,
		paceKey+"="+strconv.FormatFloat(float64(n.field.options.Pace), 'g', -1, 64))
	if err := p.start(n.skew); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	n.process = p
	return nil
}

// start starts the process with a wall clock that is wrong by skew.
func (p *process) start(skew time.Duration) error {
	steps := clocksCanStep() == nil
	// A test that dies leaves no node behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Ptrace: steps}
	if !steps {
		return p.cmd.Start()
	}
	runtime.LockOSThread() // the tracer of a process is a thread
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if err != nil {
		return err
	}
	if p.wall, err = takeClock(p.cmd.Process.Pid, skew); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	return err
}

func (n *Node) running() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.done:
		return false
	default:
		return true
	}
}

// Running reports whether the node's process lives.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running()
}

// PID is the process id of the last start, 0 before the first.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		_ = n.process.cmd.Process.Kill() // an error: it has ended by itself
		<-n.process.done
	}
}

// Pause stops the process where it is, as a machine that hangs; Resume lets it go on.
func (n *Node) Pause() error { return n.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (n *Node) Resume() error { return n.signal(syscall.SIGCONT) }

func (n *Node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running() {
		return fmt.Errorf("%s does not run", n.Name)
	}
	return n.process.cmd.Process.Signal(s)
}

// Stop asks the process to end (SIGTERM) and waits for it. It is an error when it
// does not end before ctx does, or ends with one. Nothing happens when it does not run.
func (n *Node) Stop(ctx context.Context) error {
	if !n.Running() {
		return nil
	}
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	select {
	case <-p.done:
		if p.err != nil && !terminated(p.cmd.ProcessState) {
			return fmt.Errorf("%s ended with %w; its log ends:\n%s", n.Name, p.err, n.LogEnd())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not stop: %w; its log ends:\n%s", n.Name, context.Cause(ctx), n.LogEnd())
	}
}

// terminated reports whether a process was ended by SIGTERM: it was so young that it did
// not listen for it yet.
func terminated(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// Skew sets the node's wall clock wrong by d, in whole seconds, from now on: a node
// that runs sees its clock step, one that is started later starts with it.
func (n *Node) Skew(d time.Duration) error {
	if err := clocksCanStep(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.skew = d
	if !n.running() {
		return nil
	}
	return n.process.wall.set(d)
}

// LogEnd is the last part of what the node wrote to its log.
func (n *Node) LogEnd() string {
	text, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3000):])
}

// Client opens a client for producers and consumers of the node: the principal dev.
// attempts is as in client.Config. The caller closes it.
func (n *Node) Client(attempts int) (*client.Client, error) {
	return client.New(client.Config{Addresses: []string{n.Door()}, Attempts: attempts})
}

// Desk opens a client for the node's operators. The caller closes it.
func (n *Node) Desk() (*client.Client, error) {
	return client.New(client.Config{Addresses: []string{n.Admin()}})
}

// crashed is why a node that should run does not; nil while it runs.
func (n *Node) crashed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running() {
		return nil
	}
	if n.process == nil {
		return fmt.Errorf("%s was never started", n.Name)
	}
	return errors.Join(fmt.Errorf("%s does not run; its log ends:\n%s", n.Name, n.LogEnd()), n.process.err)
}
