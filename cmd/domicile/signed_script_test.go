package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"domicile/chaos/ports"
	"domicile/policy/bundle"
)

// setFreePorts sets PORT to the first of thirty free ports: freeports.
func setFreePorts(ts *testscript.TestScript, _ bool, _ []string) {
	port, err := ports.Row(30)
	ts.Check(err)
	ts.Setenv("PORT", strconv.Itoa(port))
}

// trustKeys adds to a node.yaml that it trusts people: trust FILE ROLE=KEYFILE…
func trustKeys(ts *testscript.TestScript, _ bool, args []string) {
	var keys, need strings.Builder
	for _, pair := range args[1:] {
		role, path, _ := strings.Cut(pair, "=")
		s, err := bundle.ParseSigner([]byte(ts.ReadFile(path)))
		ts.Check(err)
		public, err := s.Public()
		ts.Check(err)
		fmt.Fprintf(&keys, "    - {id: %s, role: %s, public: %q}\n", s.ID, role, public)
		fmt.Fprintf(&need, "    - {role: %s, count: 1}\n", role)
	}
	text := ts.ReadFile(args[0]) + "\npolicy:\n  keys:\n" + keys.String() + "  need:\n" + need.String()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// untilCode runs a command again until it ends with a code: until CODE command args…
func untilCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(startWithin)
	for {
		got := 0
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				ts.Fatalf("%v", err)
			}
			got = exit.ExitCode()
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("exit code %d until the end, want %d", got, want)
		}
		<-tick.C
	}
}
