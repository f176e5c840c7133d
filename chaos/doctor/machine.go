package doctor

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
)

// Machine is what is known of the disk. "" is not known.
type Machine struct {
	Folder     string `json:"folder"`
	FileSystem string `json:"file_system"`
	Mount      string `json:"mount"`         // where it is mounted
	Options    string `json:"mount_options"` // of the mount and of the file system
	Source     string `json:"source"`        // what is mounted
	WriteCache string `json:"write_cache"`   // of the block device, in the kernel's words: write back, write through
	Model      string `json:"model"`
}

// forgetful are file systems of which a power cut leaves nothing; keeping are those that are
// known to ask their device, unless a mount option says otherwise.
var (
	forgetful = []string{"tmpfs", "ramfs"}
	keeping   = []string{"ext4", "ext3", "xfs", "btrfs", "f2fs"}
)

// check holds the mount against what can't work.
func (m *Machine) check() Check {
	c := Check{Name: "mount", Claim: "the file system keeps what is synced, and asks the device to", Result: Passed}
	options := strings.Split(m.Options, ",")
	switch {
	case m.FileSystem == "":
		c.Result, c.Why = NotChecked, "what is mounted there could not be found out"
	case slices.Contains(forgetful, m.FileSystem):
		c.Result, c.Why = Failed, m.FileSystem+" is memory: nothing in it survives a power cut"
	case slices.Contains(options, "nobarrier") || slices.Contains(options, "barrier=0"):
		c.Result, c.Why = Failed, "it is mounted without barriers: a sync does not reach the device; mount it without nobarrier"
	case !slices.Contains(keeping, m.FileSystem):
		c.Result, c.Why = NotChecked, "what "+m.FileSystem+" does with a sync can't be told from its mount options; name a folder on "+strings.Join(keeping, ", ")+" to have it checked"
	}
	return c
}

// look finds out what a folder lies on.
func look(folder string) (Machine, error) {
	m := Machine{Folder: folder}
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return m, err
	}
	var info syscall.Stat_t
	if err := syscall.Stat(real, &info); err != nil {
		return m, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	number := fmt.Sprintf("%d:%d", major(info.Dev), minor(info.Dev))
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return m, nil // not this kind of system: the fields stay unknown
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		m.take(lines.Text(), real)
	}
	m.device(number)
	return m, nil
}

// take reads one line of mountinfo: "id parent major:minor root point options - type source
// options". The longest mount point above the folder wins, the last of equal ones.
func (m *Machine) take(line, folder string) {
	left, right, ok := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !ok || len(l) < 6 || len(r) < 3 {
		return
	}
	point := l[4]
	if point != "/" && folder != point && !strings.HasPrefix(folder, point+"/") || len(point) < len(m.Mount) {
		return
	}
	m.Mount, m.FileSystem, m.Source, m.Options = point, r[0], r[1], l[5]+","+r[2]
}

// device reads what the kernel says of the block device or, of a partition, of its disk.
func (m *Machine) device(number string) {
	dir, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if cache, err := os.ReadFile(filepath.Join(d, "queue", "write_cache")); err == nil {
			m.WriteCache = strings.TrimSpace(string(cache))
			model, _ := os.ReadFile(filepath.Join(d, "device", "model")) // virtual ones have none
			m.Model = strings.TrimSpace(string(model))
			return
		}
	}
}

func major(dev uint64) uint64 { return dev >> 8 & 0xfff }
func minor(dev uint64) uint64 { return dev&0xff | dev>>12&0xfff00 }

func versions(domicile string) Versions {
	v := Versions{Domicile: domicile, Binary: binary(), Go: runtime.Version()}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		v.Kernel = strings.TrimSpace(string(kernel))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if strings.HasPrefix(d.Path, "github.com/nats-io/nats-server") {
				v.Broker = "nats-server " + d.Version
			}
		}
	}
	return v
}

// binary is the hash of the program that runs.
func binary() string {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
