package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"domicile/chaos/field"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "domicile" {
		field.Enter() // faults need namespaces of their own; the other tests do not mind
	}
	testscript.Main(m, map[string]func(){"domicile": main})
}

// TestScripts runs the command as people do. "exits CODE domicile …" asserts the
// exit code exactly.
func TestScripts(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DOMICILE_CONTEXTS", env.WorkDir+"/contexts.yaml")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"mode":  fileMode,

			"freeports":  setFreePorts,
			"trust":      trustKeys,
			"until":      untilCode,
			"until-said": untilSaid,
			"edit":       editFile,
			"grab":       grab,
			"second":     asSecond,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE command args…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// fileMode asserts a file's permissions: mode 0600 FILE.
func fileMode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm(); got != os.FileMode(want) {
		ts.Fatalf("%s has mode %o, want %o", args[1], got, want)
	}
}
