package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"domicile/api"
)

const runbooks = "../../deploy/runbooks"

func runbook(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runbooks, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// namesIn are what a pattern's first group finds in a source file: the table is the code's own.
func namesIn(t *testing.T, path, pattern string, least int) (names []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) < least {
		t.Fatalf("only %v were found in %s", names, path)
	}
	return names
}

// TestR14h_EachRefusalOfAMoveHasItsRunbook: each rule of the placement stands in the first
// column of the runbook's table.
func TestR14h_EachRefusalOfAMoveHasItsRunbook(t *testing.T) {
	var has []string
	for line := range strings.Lines(runbook(t, "failover.md")) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			has = append(has, regexp.MustCompile(`S\d+`).FindAllString(cells[1], -1)...)
		}
	}
	for _, rule := range namesIn(t, "../../regions/placement/rules.go", `Rule\w+\s+= "(S\d+)"`, 11) {
		if !slices.Contains(has, rule) {
			t.Errorf("no row for %s", rule)
		}
	}
}

// TestR14h_EachCodeHasItsRunbook: a section says what a code means, what the producer and what
// who is on call does, and by which commands; what it says of the record is what the table
// does. Where a rule of residency refused, no command moves anything.
func TestR14h_EachCodeHasItsRunbook(t *testing.T) {
	sections := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^#{2,3} `).Split(runbook(t, "codes.md"), -1)[1:] {
		name, text, _ := strings.Cut(part, "\n")
		sections[name] = text
	}
	codes := namesIn(t, "../../api/code.go", `Code\s+= "([A-Z_]+)"`, 45)
	for _, name := range codes {
		text, code := sections[name], api.Code(name)
		for _, wanted := range []string{"Stored: " + string(code.Stored()), "- **Producer:** ", "- **On call:** ", "```sh\ndomicile "} {
			if !strings.Contains(text, wanted) {
				t.Errorf("%s: no %q in its section: %q", name, wanted, text)
			}
		}
		byResidency := code.Action() == api.ActionPolicy || code.Action() == api.ActionRegion
		if moves := regexp.MustCompile(`failover (plan|switchover|force|back)|placement widen`).FindString(text); byResidency && moves != "" {
			t.Errorf("%s: %q where nothing may move", name, moves)
		}
		delete(sections, name)
	}
	for name := range sections {
		if regexp.MustCompile(`^[A-Z_]+$`).MatchString(name) {
			t.Errorf("%s is no code", name)
		}
	}
}

// TestR14h_CommandsOfRunbooksExist: each command in a runbook is one, with the flags that it
// has, and none names a region that a log is to go to: that is for failover status to list.
func TestR14h_CommandsOfRunbooksExist(t *testing.T) {
	pages, err := filepath.Glob(runbooks + "/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatal(pages, err)
	}
	seen := 0
	for _, page := range pages {
		text := runbook(t, filepath.Base(page))
		for _, m := range regexp.MustCompile("(?m)`domicile ([^`\n]+)`|^domicile (.+)$").FindAllStringSubmatch(text, -1) {
			line := strings.TrimSpace(strings.ReplaceAll(m[1]+m[2], "…", "TEXT"))
			words := strings.Fields(line)
			cmd, rest, err := (&app{}).root().Find(words)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil || !cmd.HasParent() || cmd.HasSubCommands() && len(cmd.Flags().Args()) > 0 {
				t.Errorf("%s: no such command: domicile %s: %v", page, line, err)
			}
			if to := regexp.MustCompile(`(failover|drill) .*--to (\S+)`).FindStringSubmatch(line); to != nil && to[2] != "TARGET" {
				t.Errorf("%s: domicile %s names a target", page, line)
			}
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands were found", seen)
	}
}

// TestR14h_UnitsRunCommandsThatExist: what the units of systemd start is a command with the
// flags that it has, each path that it writes to is its state directory's or is opened to it, and
// systemd finds nothing wrong with any unit.
func TestR14h_UnitsRunCommandsThatExist(t *testing.T) {
	const installed = "/usr/local/bin/domicile"
	units, err := filepath.Glob("../../deploy/systemd/*.*")
	if err != nil || len(units) < 5 {
		t.Fatal(units, err)
	}
	verified, dir := []string{"verify"}, t.TempDir()
	for _, unit := range units {
		read, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text := string(read)
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=(\S+) (.+)$`).FindAllStringSubmatch(text, -1) {
			cmd, rest, err := (&app{}).root().Find(strings.Fields(m[2]))
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if m[1] != installed || err != nil || !cmd.HasParent() {
				t.Errorf("%s: %s: %v", unit, m[0], err)
			}
			for _, path := range regexp.MustCompile(`/var/lib/[a-z-]+`).FindAllString(m[2], -1) {
				if !strings.Contains(text, "StateDirectory="+filepath.Base(path)+"\n") && !strings.Contains(text, "ReadWritePaths="+path+"\n") {
					t.Errorf("%s writes to %s and may not", unit, path)
				}
			}
		}
		if ext := filepath.Ext(unit); ext == ".service" || ext == ".timer" {
			copied := filepath.Join(dir, filepath.Base(unit))
			if err := os.WriteFile(copied, []byte(strings.ReplaceAll(text, installed, "/bin/true")), 0o600); err != nil {
				t.Fatal(err)
			}
			verified = append(verified, copied)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd is not here to look at the units itself")
		return
	}
	if out, err := exec.CommandContext(t.Context(), analyze, verified...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
