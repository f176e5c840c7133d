package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
)

const (
	drillsDir   = "drills"        // where drills are kept, each in a folder of its name
	historyName = "history.jsonl" // in such a folder
)

func (a *app) drillReport() *cobra.Command {
	var dir, file string
	cmd := &cobra.Command{
		Use: "report ID|HISTORY", Short: "Say what a drill showed, from its history alone",
		Long: `Judges the recorded history of a drill, offline: expectations and checks, what may fail
over where over time, lag against the drill's own producers and readers, what would have been
lost, how long moves took, and what this drill does not prove. Forms: text, json (what drill
verify reads), md, junit (a test case for each topic and expectation), and html, one page
that needs no other file.
Exit codes: 0 pass, 1 an expectation or a check failed, 2 nothing was cut, 3 the drill was
not under control, 4 the history is not whole.`,
		Example: "  domicile drill report 2026-11-30-eu-west -o html --file drill.html",
		Args:    arguments(1, 1, "the ID of a drill or the file of its history"),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := history.Open(historyOf(args[0], dir))
			if err != nil {
				return checkFailed{err}
			}
			r := report.Judge(h)
			if err := a.writeReport(r, file); err != nil {
				return err
			}
			return ended(verdictCode(r.Verdict))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", drillsDir, "the folder that drills are kept in")
	cmd.Flags().StringVar(&file, "file", "", "where to write it; default: standard output")
	return cmd
}

func (a *app) drillVerify() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use: "verify REPORT", Short: "Recompute a drill's verdict, offline",
		Long: `Reads the history that a report in JSON was made from, checks that no line of it was
changed, left out or put in, makes the report anew and compares the two to the letter.
Whoever can change both can change the verdict: keep the last hash of the history, which
every form of the report shows, where the history is not.
Exit codes: 0 the report is what the history makes, 2 it is not, 1 one of them can't be read.`,
		Example: "  domicile drill verify drills/2026-11-30-eu-west/report.json",
		Args:    arguments(1, 1, "a REPORT in JSON"),
		RunE: func(_ *cobra.Command, args []string) error {
			if from == "" {
				from = filepath.Join(filepath.Dir(args[0]), historyName)
			}
			return a.verifyReport(args[0], from)
		},
	}
	cmd.Flags().StringVar(&from, "history", "", "the history; default: "+historyName+" beside the report")
	return cmd
}

// historyOf is the file of a drill's history, given its id, its folder or itself.
func historyOf(what, dir string) string {
	if !strings.ContainsRune(what, os.PathSeparator) && !strings.HasSuffix(what, ".jsonl") {
		what = filepath.Join(dir, what)
	}
	if info, err := os.Stat(what); err == nil && info.IsDir() {
		return filepath.Join(what, historyName)
	}
	return what
}

// writeReport writes a report in the form that was asked for, to a file or to the output.
func (a *app) writeReport(r *report.Report, file string) (err error) {
	forms := map[string]func(io.Writer) error{
		"json": r.JSON, "md": r.Markdown, "junit": r.JUnit, "html": r.HTML,
		"text": func(w io.Writer) error { _, err := io.WriteString(w, renderDrill(r)); return err },
	}
	if file == "" {
		if a.output == "text" {
			return forms[a.output](a.out)
		}
		return forms[a.output](raw(a.out))
	}
	out, err := os.Create(file)
	if err != nil {
		return fileError("write report", file, err)
	}
	err = forms[a.output](out)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fileError("write report", file, err)
	}
	fmt.Fprintln(a.err, "written to", file)
	return nil
}

// renderDrill is a report for a terminal: the verdict, and whatever did not hold.
func renderDrill(r *report.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s\n", r.Drill, r.Verdict, r.Line) // the line says so if it was simulated
	var rows [][]string
	for _, e := range r.Expected {
		if !e.OK {
			rows = append(rows, []string{"failed", strings.TrimSpace(e.Topic + " " + e.Log + " " + e.Target), "at " + e.Moment + ": " + e.Want, "got " + e.Got})
		}
	}
	for _, c := range r.Checks {
		word := "held"
		switch {
		case !c.OK:
			word = "failed"
		case c.Judged == 0:
			word = "open"
		}
		rows = append(rows, []string{word, c.Name, c.Text})
	}
	table(&b, "  ", rows)
	b.WriteString("Not proven by this drill:\n")
	for _, u := range r.Unproven {
		fmt.Fprintf(&b, "  - %s\n", u)
	}
	fmt.Fprintf(&b, "History: %d events, last hash %s\n", r.Source.Events, r.Source.Chain)
	return b.String()
}

// verdictCode is what a pipeline goes by.
func verdictCode(v report.Verdict) exitCode {
	switch v {
	case report.Pass:
		return exitOK
	case report.Refused:
		return exitRefused
	case report.Uncontrolled:
		return exitDegraded
	case report.Incomplete:
		return exitUnknown
	}
	return exitFailure
}

func (a *app) verifyReport(file, from string) error {
	h, err := history.Open(from)
	if line := new(history.BadLine); errors.As(err, &line) {
		fmt.Fprintf(a.err, "%s does not hold: %v\n", from, err)
		return ended(exitRefused)
	}
	if err != nil {
		return fileError("read history", from, err)
	}
	f, err := os.Open(file)
	if err != nil {
		return fileError("read report", file, err)
	}
	defer f.Close()
	v, err := report.Verify(f, h)
	if err != nil {
		return fileError("read report", file, err)
	}
	if a.json() {
		err = a.printJSON(v)
	} else {
		mark := ""
		if v.Simulated {
			mark = report.Mark + ", evidence of nothing: "
		}
		_, err = fmt.Fprintf(a.out, "%s%s: %s\nVerdict: %s, of %d events, last hash %s\n", mark, v.Drill, v.Text, v.Verdict, v.Events, v.Chain)
	}
	if err != nil {
		return err
	}
	if !v.Holds {
		return ended(exitRefused)
	}
	return nil
}
