package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	pb "domicile/api/domicile/v1"
	"domicile/regions"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// moving are the groups of commands by which logs move and are looked at.
var moving = []string{"failover", "placement", "divergence", "control"}

// choosing are the flags of those groups that name a region, or set a rule aside.
var choosing = map[string]string{
	"failover plan --to": "target", "failover switchover --to": "target", "failover force --to": "target",
	"failover plan --override": "rules", "failover force --override": "rules",
	"failover resolve --home": "of a claim that two authorities gave: no new place",
}

func eachMovingCommand(visit func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		visit(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, cmd := range (&app{}).root().Commands() {
		if slices.Contains(moving, cmd.Name()) {
			walk(cmd)
		}
	}
}

// flagsOf are a command's own flags with what their help says.
func flagsOf(cmd *cobra.Command) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([\w-]+)(?:\[=true\|false\])?\s+(.*)$`).FindAllStringSubmatch(cmd.LocalFlags().FlagUsages(), -1) {
		out[m[1]] = m[2]
	}
	return out
}

// TestR14h_EveryFlagThatChoosesIsKnown: a new flag that names a region or a rule has to be
// entered above, so that its completion is looked at; and none sets aside what stands for
// residency or for a second person.
func TestR14h_EveryFlagThatChoosesIsKnown(t *testing.T) {
	found := map[string]bool{}
	eachMovingCommand(func(cmd *cobra.Command) {
		for flag, usage := range flagsOf(cmd) {
			name := short(cmd) + " --" + flag
			if _, known := choosing[name]; known {
				found[name] = true
			} else if regexp.MustCompile(`(?i)\bregion that|target|override|set aside`).MatchString(usage) || regexp.MustCompile(`^(to|target|home|region|into|override|force)$`).MatchString(flag) {
				t.Errorf("%s: %q may choose where a log goes: enter it in this test", name, usage)
			}
			if flag == "override" && !strings.HasSuffix(usage, ": S3, S4, S11") {
				t.Errorf("%s: %s", name, usage)
			}
		}
	})
	for name := range choosing {
		if !found[name] {
			t.Errorf("%s is not there any more", name)
		}
	}
}

// TestR14h_EveryActIsLookedAtFirstAndHasAReason: a command of those groups either only looks,
// and stands here, or can be looked at with --dry-run and asks for the reason.
func TestR14h_EveryActIsLookedAtFirstAndHasAReason(t *testing.T) {
	looks := []string{
		"failover plan", "failover status", "placement ls", "placement show", "placement history", "placement explain", "divergence ls", "divergence show",
		"divergence export", "divergence report", "divergence verify-report", "control voters",
		"failover approve", "divergence approve", "control approve", // they sign what a dry run printed, and change nothing
	}
	acts := 0
	eachMovingCommand(func(cmd *cobra.Command) {
		if name := short(cmd); slices.Contains(looks, name) || cmd.HasSubCommands() && name != "control voters" {
			return
		}
		acts++
		if flags := cmd.LocalFlags(); flags.Lookup("dry-run") == nil || flags.Lookup("reason") == nil {
			t.Errorf("%s changes something and lacks --dry-run or --reason: %q", short(cmd), flags.FlagUsages())
		}
	})
	if acts < 10 {
		t.Errorf("only %d acts were found", acts)
	}
}

// completesLegalTargets asks the shell's completion of every command and flag that has to do
// with where logs are, at a node of each region, for a log that moves and for resident ones.
func completesLegalTargets(t *testing.T, f *regions.Federation, ask func(region string, args ...string) string) {
	legal := map[string][]string{"orders": {"us-east"}, "health": nil}
	for _, node := range f.Regions() {
		eachMovingCommand(func(cmd *cobra.Command) {
			if cmd.HasSubCommands() {
				return
			}
			line := append([]string{"__complete"}, strings.Fields(short(cmd))...)
			for topic, targets := range legal {
				asked := [][]string{append(slices.Clone(line), ""), append(slices.Clone(line), topic, "")}
				for flag := range flagsOf(cmd) {
					asked = append(asked, append(slices.Clone(line), topic, "--"+flag, ""))
				}
				for _, args := range asked {
					for offer := range strings.Lines(ask(node, args...)) {
						if offer = strings.TrimSpace(offer); slices.Contains(f.Regions(), offer) && !slices.Contains(targets, offer) {
							t.Errorf("%s: %q offers %s", node, args, offer)
						}
					}
				}
			}
		})
	}
	offered := ask("ap-south", "__complete", "failover", "force", "orders", "--to", "")
	if !strings.HasPrefix(offered, "us-east\n") {
		t.Errorf("nothing is offered where something is legal, so nothing was looked at: %q", offered)
	}
}

// TestR14h_NoTextOffersAResidentLog: examples and runbooks move topics whose records may go
// there, and no text tells people to widen a boundary or to set aside the rule that keeps it.
func TestR14h_NoTextOffersAResidentLog(t *testing.T) {
	resident := []string{"orders", "health.records", "health"} // of the example federation
	texts := map[string]string{}
	eachMovingCommand(func(cmd *cobra.Command) {
		texts[cmd.CommandPath()] = strings.Join([]string{cmd.Short, cmd.Long, cmd.Example, cmd.LocalFlags().FlagUsages()}, "\n")
	})
	for _, pattern := range []string{"../../README.md", "../../*/DESIGN.md", "../../deploy/runbooks/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	move := regexp.MustCompile(`failover (?:plan|switchover|force|back) ([a-z][\w.-]*)`)
	aside := regexp.MustCompile(`--override[ =]\S*S(?:5|8|10|12)\b|(?i)widen the boundary|add the (?:region|target) to the boundary`)
	for where, text := range texts {
		for _, m := range move.FindAllStringSubmatch(text, -1) {
			if slices.Contains(resident, m[1]) {
				t.Errorf("%s moves a resident topic: %s", where, m[0])
			}
		}
		if m := aside.FindString(text); m != "" {
			t.Errorf("%s: %s", where, m)
		}
	}
}

// TestR14h_EveryCallThatChoosesIsKnown: each request of the operators' services that has a
// field for a place is one of those that chaos/lab tries on real gateways, or chooses none.
func TestR14h_EveryCallThatChoosesIsKnown(t *testing.T) {
	known := map[string]string{
		"MoveRequest.target":            "tried in chaos/lab: TestR14h_ADoorOffersNoMoveOutOfABoundary",
		"ResolveContestRequest.home":    "of one of two claims that exist",
		"ChangeAuthorityRequest.region": "who votes, and no log's place",
	}
	found := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{pb.File_domicile_v1_failover_proto, pb.File_domicile_v1_placement_proto, pb.File_domicile_v1_divergence_proto} {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				choosesPlace(file.Services().Get(i).Methods().Get(j).Input(), found)
			}
		}
	}
	for name := range found {
		if known[name] == "" {
			t.Errorf("%s may choose where a log goes: try it on gateways, and enter it here", name)
		}
	}
	if len(found) != len(known) {
		t.Errorf("found %v", found)
	}
}

func choosesPlace(m protoreflect.MessageDescriptor, found map[string]bool) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if regexp.MustCompile(`target|home|region|^to$|place$`).MatchString(string(f.Name())) {
			found[string(m.Name())+"."+string(f.Name())] = true
		}
		if f.Message() != nil {
			choosesPlace(f.Message(), found)
		}
	}
}
