package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestHelp_EveryCommandSaysWhatAndShowsOneExample(t *testing.T) {
	a := &app{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q; one phrase without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if !strings.Contains(cmd.Example, "domicile") {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if cmd.RunE == nil || cmd.Args == nil && cmd.HasParent() {
			t.Errorf("%s does not check its arguments", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}

// Examples are command lines that parse: a flag that was renamed shows here.
func TestHelp_ExamplesParse(t *testing.T) {
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(line)
			target, rest, err := (&app{}).root().Find(words[1:])
			if err != nil || target.ParseFlags(rest) != nil {
				t.Errorf("%s: example does not parse: %s", cmd.CommandPath(), line)
				continue
			}
			if err := target.Args(target, target.Flags().Args()); err != nil {
				t.Errorf("%s: example: %s: %v", cmd.CommandPath(), line, err)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check((&app{}).root())
}

func TestRun_ErrorsArePrintedOnceOnOneLine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), []string{"config", "check", "-c", "no\nsuch"}, strings.NewReader(""), &stdout, &stderr)
	if code != exitFailure || stdout.Len() != 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "domicile: ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}
