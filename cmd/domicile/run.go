package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the command: where it reads and writes, the time, the
// environment and the flags that every command shares.
type app struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time
	env      func(string) string

	output string // text or json
	target targetFlags
}

// run carries out one command line and returns its exit code. An error is printed
// once, as one line on stderr, with -o json as one object.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) exitCode {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: stdin, out: screen{stdout}, err: screen{stderr}, now: time.Now, env: os.Getenv}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	a.printError(err)
	return codeFor(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "domicile",
		Short: "Run and operate a multi-region broker that keeps records where they may rest",
		Long: `Domicile runs one independent broker per region. A record is judged by the
residency policy before it is stored, forwarded to where it may rest, and mirrored
only where it may go.

Exit codes: 0 done, 1 failure, 2 refused by a rule, 3 degraded, 4 unknown, 64 usage.`,
		Example:       "  domicile demo\n  domicile init ./federation\n  domicile serve -c ./federation/eu-west/node.yaml",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "text", "text or json")
	a.target.register(root)
	a.completions(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if page := cmd.Name() == "report" && slices.Contains([]string{"html", "md", "junit"}, a.output); a.output != "text" && a.output != "json" && !page {
			return usage("-o %s: write text or json", a.output)
		}
		return nil
	}
	root.AddCommand(
		a.demoCommand(), a.initCommand(), a.serveCommand(), a.publishCommand(), a.tailCommand(), a.topicCommand(), a.divergenceCommand(),
		a.statusCommand(), a.lagCommand(), a.explainCommand(), a.policyCommand(), a.certsCommand(),
		a.configCommand(), a.contextCommand(), a.regionCommand(), a.placementCommand(), a.failoverCommand(), a.drillCommand(), a.controlCommand(), a.doctorCommand(), a.versionCommand(),
	)
	prepare(root)
	return root
}

// completions lets the shell complete the values that are known without a node.
func (a *app) completions(root *cobra.Command) {
	for flag, values := range map[string]func() []string{
		"output":  func() []string { return []string{"text", "json"} },
		"context": func() []string { f, _, _ := a.loadContexts(); return f.names() }, // a broken file completes nothing
	} {
		err := root.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // a flag of this very file
		}
	}
}

// prepare makes every mistake in a command line a usage error: a wrong flag, and a
// group called without one of its commands.
func prepare(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%s; see %s --help", oneLine(err.Error()), c.CommandPath())
	})
	if cmd.RunE == nil && cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = needsSubcommand
	}
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

func needsSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usage("unknown command %q; see %s --help", args[0], cmd.CommandPath())
}

// short is a command as errors name it: every line already begins with domicile.
func short(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "domicile ") }

// arguments checks the number of positional arguments; names says what they are.
func arguments(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage("%s needs %s; see %s --help", short(cmd), names, cmd.CommandPath())
		case len(args) > most && most == 0:
			return usage("%s takes no argument; %q is left over", short(cmd), args[0])
		case len(args) > most:
			return usage("%s takes %s; %q is left over", short(cmd), names, args[most])
		}
		return nil
	}
}

// interrupted reports whether an error only says that the user ended the command.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
