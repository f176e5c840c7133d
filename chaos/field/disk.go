package field

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// disk is a node's disk: a file that holds an ext4 file system, mounted below the
// node's directory. The file system writes its journal only every five minutes, or
// when it is asked to: what nobody synced is not in the file.
type disk struct {
	dir     string // of the node
	mounted bool
}

func (d *disk) image() string { return filepath.Join(d.dir, "disk.img") }
func (d *disk) mount() string { return filepath.Join(d.dir, "disk") }

// run runs a tool and returns an error with what it said.
func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *disk) make(ctx context.Context, mebibytes int) error {
	if err := os.MkdirAll(d.mount(), 0o700); err != nil {
		return err
	}
	file, err := os.Create(d.image())
	if err == nil {
		err = errors.Join(file.Truncate(int64(mebibytes)<<20), file.Close())
	}
	if err != nil {
		return err
	}
	if err := run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", d.image()); err != nil {
		return err
	}
	return d.attach(ctx)
}

func (d *disk) attach(ctx context.Context) error {
	if d.mounted {
		return nil
	}
	if err := run(ctx, "mount", "-o", "loop,commit=300", d.image(), d.mount()); err != nil {
		return err
	}
	d.mounted = true
	return nil
}

func (d *disk) unmount(ctx context.Context) error {
	if !d.mounted {
		return nil
	}
	d.mounted = false
	return run(ctx, "umount", d.mount())
}

// PowerCut takes the power from nodes at the same moment: they stop, and of their
// disks only what had been written to them is left. Start starts them again; their
// file systems recover as after any power cut.
func (f *Field) PowerCut(ctx context.Context, nodes ...*Node) error {
	for _, n := range nodes {
		if err := n.Pause(); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := run(ctx, "cp", "--sparse=always", n.disk.image(), n.disk.image()+".after"); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		n.Kill()
		if err := n.disk.unmount(ctx); err != nil {
			return err
		}
		if err := os.Rename(n.disk.image()+".after", n.disk.image()); err != nil {
			return err
		}
		if err := n.disk.attach(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Sync has the node's disk written out, as if the system had got round to it.
func (n *Node) Sync(ctx context.Context) error { return run(ctx, "sync", "-f", n.disk.mount()) }

// filler is the file that takes all the space of a disk.
func (d *disk) filler() string { return filepath.Join(d.mount(), "filler") }

// FillDisk writes a file until nothing more fits on the node's disk.
func (n *Node) FillDisk() error {
	file, err := os.OpenFile(n.disk.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); err == nil && len(block) > 0; {
		_, err = file.Write(block)
		if errors.Is(err, syscall.ENOSPC) {
			block, err = block[:len(block)/2], nil // the last bits too
		}
	}
	return errors.Join(err, file.Close())
}

// FreeDisk gives the space back that FillDisk took, for good: a power cut does not bring the
// file back.
func (n *Node) FreeDisk(ctx context.Context) error {
	if err := os.Remove(n.disk.filler()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return n.Sync(ctx)
}

// Calls is a kind of system call that can be made to fail.
type Calls string

// What Break knows: the calls that bring data to the disk, and those that write.
const (
	Syncs  Calls = "syncfs,fsync,fdatasync"
	Writes Calls = "write,pwrite64"
)

// Break makes system calls of a running node fail or take longer, until the returned
// function is called. what is in the words of strace: error=EIO, delay_enter=200ms;
// add when=1+10 to spare most of them. With path only calls on that file or folder.
func (n *Node) Break(calls Calls, what, path string) (mend func() error, err error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, errors.New("needs strace (package strace)")
	}
	args := []string{"-f", "-o", os.DevNull, "-e", "trace=" + string(calls), "-e", "inject=" + string(calls) + ":" + what}
	if path != "" {
		args = append(args, "-P", path)
	}
	cmd := exec.Command("strace", append(args, "-p", strconv.Itoa(n.PID()))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	words, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	said := bufio.NewReader(words)
	first, err := said.ReadString('\n')
	if err != nil || !strings.Contains(first, "attached") {
		_ = cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("strace: %s", strings.TrimSpace(first)), cmd.Wait())
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, said) // what it says of threads that come and go
	}()
	return func() error {
		_ = cmd.Process.Signal(syscall.SIGINT) // strace lets go of the process; an error: it has ended with it
		<-drained
		_ = cmd.Wait() // it ends by the signal, as asked
		return nil
	}, nil
}
