package field

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"domicile/regions/testenv"
)

// insideKey marks a process that runs in namespaces made by Enter.
const insideKey = "DOMICILE_FIELD_INSIDE"

// tools is what every field needs, with the packages they come from.
var tools = []struct{ name, from string }{
	{"nft", "nftables"}, {"ip", "iproute2"}, {"tc", "iproute2"}, {"mkfs.ext4", "e2fsprogs"}, {"mount", "mount"}, {"umount", "mount"}, {"cp", "coreutils"},
}

// Enter is the first call of TestMain. In a process that a field started as a node
// it serves and never returns. For a test binary it runs the same binary once more,
// in a network and a mount namespace of its own, and exits with its code. Where that
// is not possible it returns, and Need skips the tests that depend on it.
func Enter() {
	if path := os.Getenv(nodeKey); path != "" {
		os.Exit(serve(path))
	}
	if os.Getenv(insideKey) != "" {
		// The new network has a loopback that is down: every test of the binary needs it.
		if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
			fmt.Fprintln(os.Stderr, "field: bring the loopback up:", err)
		}
		return
	}
	if missing() != "" {
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideKey+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return // no namespaces here: the tests say so
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1)) // -1: ended by a signal
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "field:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// missing says what keeps this process from having a field; "": nothing.
func missing() string {
	if os.Geteuid() != 0 {
		return "needs root: namespaces, packet filter and loop devices"
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			return "needs " + t.name + " (package " + t.from + ")"
		}
	}
	return ""
}

// Need skips a test that can't have a field here and says why.
func Need(t testing.TB) {
	t.Helper()
	if raceDetector {
		t.Skip("runs without the race detector: what it starts are other processes")
	}
	if why := missing(); why != "" {
		testenv.Missing(t, why)
	}
	if os.Getenv(insideKey) == "" {
		testenv.Missing(t, "needs network and mount namespaces: the system refused them, or TestMain does not call field.Enter")
	}
}
