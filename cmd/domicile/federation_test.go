package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"domicile/chaos/ports"
)

// startWithin is generous: under the race detector, beside other tests, judging the
// policy takes most of a minute.
const startWithin = 3 * time.Minute

// federation is three real serve processes that were started from init's files.
type federation struct {
	t      *testing.T
	dir    string
	port   int
	binary map[string]string // by region, the program that runs its node; else this one

	mu    sync.Mutex
	nodes map[string]*process
}

// process is one running command and what it wrote.
type process struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
	exited chan struct{}
	err    error
}

// lockedBuffer is written by the process and read by the test at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wholeProcesses leaves a test out of `go test -short`. The race detector makes processes
// start several times slower, and what they do between them it sees as well in one process,
// where chaos/lab does it.
func wholeProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts whole processes, again and again: not with -short")
	}
}

// startFederation writes the files, starts the three nodes and waits until every
// link is up.
func startFederation(t *testing.T) *federation {
	t.Helper()
	return startFederationOf(t, "domicile")
}

// startFederationOf is startFederation with another binary's files and nodes.
func startFederationOf(t *testing.T, binary string) *federation {
	t.Helper()
	f := &federation{t: t, dir: filepath.Join(t.TempDir(), "fed"), port: freePorts(t, 30), binary: map[string]string{}, nodes: map[string]*process{}}
	if out, err := exec.Command(binary, "init", f.dir, "--port", strconv.Itoa(f.port)).CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	t.Cleanup(f.stopAll)
	for _, region := range starterRegions {
		f.binary[region] = binary
		f.start(region)
	}
	f.waitForLinks()
	return f
}

// freePorts finds the n ports in a row that init's files use.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	base, err := ports.Row(n)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func (f *federation) start(region string) *process {
	f.t.Helper()
	p := &process{exited: make(chan struct{})}
	p.cmd = exec.Command(cmp.Or(f.binary[region], "domicile"), "serve", "-c", filepath.Join(f.dir, region, "node.yaml"))
	p.cmd.Stderr = &p.stderr
	// A test that dies leaves no node behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	f.mu.Lock()
	f.nodes[region] = p
	f.mu.Unlock()
	return p
}

func (f *federation) node(region string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[region]
}

// kill ends a node as kill -9 does and waits until it is gone.
func (f *federation) kill(region string) {
	p := f.node(region)
	_ = p.cmd.Process.Kill() // gone already if it has crashed; the test sees that elsewhere
	<-p.exited
}

func (f *federation) stopAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for region, p := range f.nodes {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if f.t.Failed() {
			f.t.Logf("%s said:\n%s", region, tailOf(p.stderr.String(), 4000))
		}
	}
}

func tailOf(s string, most int) string { return s[max(0, len(s)-most):] }

// output is what one command printed and how it ended.
type output struct {
	stdout, stderr string
	code           exitCode
}

// command prepares a command as a user of a region's context runs it.
func (f *federation) command(region string, args ...string) *exec.Cmd {
	cmd := exec.Command("domicile", append(args, "--context", region)...)
	cmd.Env = append(os.Environ(), "DOMICILE_CONTEXTS="+filepath.Join(f.dir, "contexts.yaml"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (f *federation) run(t *testing.T, region string, args ...string) output {
	t.Helper()
	cmd := f.command(region, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return output{stdout.String(), stderr.String(), exitCode(cmd.ProcessState.ExitCode())}
}

// must runs a command that has to succeed.
func (f *federation) must(t *testing.T, region string, args ...string) output {
	t.Helper()
	o := f.run(t, region, args...)
	if o.code != exitOK {
		t.Fatalf("domicile %s: exit code %d\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, tailOf(text, 500))
	}
	return v
}

func decodeLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		all = append(all, decode[T](t, line))
	}
	return all
}

// eventually polls a condition until a deadline.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func (f *federation) status(t *testing.T, region string) (statusView, bool) {
	o := f.run(t, region, "status", "-o", "json")
	if o.stdout == "" {
		return statusView{}, false
	}
	return decode[statusView](t, o.stdout), true
}

func (f *federation) waitForLinks() {
	f.t.Helper()
	for _, region := range starterRegions {
		eventually(f.t, startWithin, region+" has both links up", func() bool {
			select {
			case <-f.node(region).exited:
				f.t.Fatalf("%s ended: %v\n%s", region, f.node(region).err, f.node(region).stderr.String())
			default:
			}
			s, ok := f.status(f.t, region)
			up := 0
			for _, l := range s.Links {
				if l.State == "up" {
					up++
				}
			}
			return ok && up == 2
		})
	}
}

// read returns all records of a topic that a region's app may read there.
func (f *federation) read(t *testing.T, region, topic string) []recordView {
	t.Helper()
	return decodeLines[recordView](t, f.must(t, region, "tail", topic, "--from", "start", "--follow=false", "-o", "json").stdout)
}

// published is what publish prints with -o json.
type published struct {
	Lines, Acked, Duplicates, Unknown uint64
	Refused                           map[string]uint64
	Stored                            map[string]uint64
}
