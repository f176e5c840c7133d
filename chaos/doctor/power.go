package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	imageSize = 256 << 20
	unsynced  = "unsynced" // a file that nobody syncs: it has to be gone, or the cut is none
)

// Self makes the command that runs this program again, in the mode "write" or "read" on a
// folder.
type Self func(ctx context.Context, mode, dir string) *exec.Cmd

// powerCut has a process publish on a file system in a file on the disk, and takes the
// power: what had not been written to the file is gone. It needs root.
func powerCut(ctx context.Context, dir string, m *Machine, self Self) (c Check) {
	c = Check{Name: "power cut", Claim: "what was acknowledged had left memory for the device: it is in a copy of that taken at once (ext4 in a file on this disk)"}
	why := noPower()
	if slices.Contains(forgetful, m.FileSystem) {
		why = "a file in " + m.FileSystem + " is memory as well"
	}
	if why != "" {
		c.Result, c.Why = NotChecked, why
		return c
	}
	p := plug{dir: dir, self: self}
	acked, lost, err := p.pull(ctx)
	c.Acked, c.Lost, c.Result = acked, lost, Passed
	switch {
	case errors.Is(err, errNoCut):
		c.Result, c.Why = NotChecked, err.Error()
	case err != nil:
		c.fail(err)
	case lost > 0:
		c.Result, c.Why = Failed, "acknowledged records are gone"
	}
	return c
}

// errNoCut: the cut took nothing, so that it shows nothing.
var errNoCut = errors.New("a file that was never synced survived the cut here, so that this kind of cut shows nothing")

func noPower() string {
	if os.Geteuid() != 0 {
		return "needs root, for a file system in a file; run it once with sudo"
	}
	for _, tool := range []string{"unshare", "mkfs.ext4", "mount", "cp"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "needs " + tool
		}
	}
	return ""
}

type plug struct {
	dir  string
	self Self
}

func (p *plug) path(name string) string { return filepath.Join(p.dir, name) }

// inside runs this program in a mode with an image mounted at the folder it works in. The
// mount is in a namespace of its own and ends with the process.
func (p *plug) inside(ctx context.Context, image, options, before, mode string) *exec.Cmd {
	again := p.self(ctx, mode, p.path("mounted")+"/data")
	script := fmt.Sprintf("mount -o %s %s %s && %s exec \"$@\"", options, quote(image), quote(p.path("mounted")), before)
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"-m", "--propagation", "private", "sh", "-c", script, "sh"}, again.Args...)...)
	cmd.Args[8] = again.Path
	cmd.Env = again.Env
	return cmd
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (p *plug) pull(ctx context.Context) (acked, lost int, err error) {
	if err := errors.Join(os.Mkdir(p.path("mounted"), 0o700), p.image(ctx, "disk"), p.image(ctx, "control")); err != nil {
		return 0, 0, err
	}
	if err := p.control(ctx); err != nil {
		return 0, 0, err
	}
	w, err := start(p.inside(ctx, p.path("disk"), "loop,commit=300", "mkdir -p "+quote(p.path("mounted")+"/data")+" &&", "write"))
	if err != nil {
		return 0, 0, err
	}
	err = w.until(ctx, 2000)
	if err == nil {
		err = p.cut(ctx, w, "disk")
	}
	w.kill()
	if err != nil {
		return w.count(), 0, err
	}
	reading, cancel := context.WithTimeout(ctx, 2*mostTime)
	defer cancel()
	cmd := p.inside(reading, p.path("disk.after"), "loop", "", "read")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return w.count(), w.count(), fmt.Errorf("the store can't be read after the cut: %w: %s", err, strings.TrimSpace(said.String()))
	}
	held := map[string]bool{}
	for _, id := range strings.Fields(string(out)) {
		held[id] = true
	}
	return w.count(), w.missing(held), nil
}

// image makes a file system in a file. It writes its journal every five minutes, or when it
// is asked to.
func (p *plug) image(ctx context.Context, name string) error {
	file, err := os.Create(p.path(name))
	if err == nil {
		err = errors.Join(file.Truncate(imageSize), file.Close())
	}
	if err != nil {
		return err
	}
	return tool(ctx, "mkfs.ext4", "-q", "-F", p.path(name))
}

func tool(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// cut stops the process and keeps what its disk has at that moment.
func (p *plug) cut(ctx context.Context, w *writer, image string) error {
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return tool(ctx, "cp", "--sparse=always", p.path(image), p.path(image+".after"))
}

// control shows that a cut takes what was not synced: a file is written and copied away
// from under, and must not be in the copy.
func (p *plug) control(ctx context.Context) error {
	at := quote(p.path("mounted"))
	script := "mount -o loop,commit=300 " + quote(p.path("control")) + " " + at + " && head -c 1048576 /dev/urandom > " + at + "/" + unsynced +
		" && cp --sparse=always " + quote(p.path("control")) + " " + quote(p.path("control.after")) +
		" && umount " + at + " && mount -o loop " + quote(p.path("control.after")) + " " + at + " && ! test -s " + at + "/" + unsynced
	cmd := exec.CommandContext(ctx, "unshare", "-m", "--propagation", "private", "sh", "-c", script)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(out) == 0 {
		return errNoCut
	}
	if err != nil {
		return fmt.Errorf("a file system in a file: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
