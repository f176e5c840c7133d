package main

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// editFile replaces what stands once in a file; \n in the arguments is an end of line: edit
// FILE OLD NEW.
func editFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	text, lines := ts.ReadFile(args[0]), strings.NewReplacer(`\n`, "\n")
	old := lines.Replace(args[1])
	if n := strings.Count(text, old); n != 1 {
		ts.Fatalf("%s has %q %d times", args[0], old, n)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, old, lines.Replace(args[2]), 1)), 0o600))
}

// grab sets a variable to what the pattern's group matches in the last output: grab NAME
// PATTERN.
func grab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: grab NAME PATTERN")
	}
	found := regexp.MustCompile(`(?m)` + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("no match for %q", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// asSecond runs domicile with the certificate of the operator "second".
func asSecond(ts *testscript.TestScript, neg bool, args []string) {
	args = append(args, "--ca", "fed/people/ca.pem", "--cert", "fed/people/second.pem", "--key", "fed/people/second.key")
	if err := ts.Exec("domicile", args...); (err != nil) != neg {
		ts.Fatalf("%v", err)
	}
}

// untilSaid runs a command again until its output matches, however it ends: until-said
// PATTERN command args…
func untilSaid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until-said PATTERN command args…")
	}
	wanted := regexp.MustCompile(`(?m)` + args[0])
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startWithin); ; <-tick.C {
		_ = ts.Exec(args[1], args[2:]...) // a code of its own is not what is waited for
		if wanted.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q was not said until the end", args[0])
		}
	}
}
