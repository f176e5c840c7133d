package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/chaos/doctor"
	"domicile/regions"
)

const (
	minDoctor = time.Second
	maxDoctor = 10 * time.Minute
)

func (a *app) doctorCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "doctor", Short: "Examine this machine", Args: arguments(0, 0, ""), Example: "  domicile doctor durability",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	hidden := func(mode, what string, do func(context.Context, string, io.Writer) error) *cobra.Command {
		return &cobra.Command{
			Use: mode + " DIR", Short: what, Hidden: true, Args: arguments(1, 1, "a DIR"), Example: "  domicile doctor " + mode + " DIR",
			RunE: func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), args[0], a.out) },
		}
	}
	group.AddCommand(a.doctorDurability(),
		hidden("write", "Publish into a store until killed: part of an examination", doctor.Write),
		hidden("read", "List what such a store holds: part of an examination", doctor.Read))
	return group
}

func (a *app) doctorDurability() *cobra.Command {
	o := doctor.Options{Self: again}
	var file string
	cmd := &cobra.Command{
		Use: "durability", Short: "Find out whether an ack means on this disk what it says",
		Long: `Runs a region's store in a temporary folder of the disk, watches that each ack leaves
after a sync that began when the record was written, kills the store and looks for what it
had acknowledged, and, as root, looks for it in a copy of the device of a file system in a
file, taken at once. It measures the disk as well, and says what no program can see from here.
Exit code 1: a check failed. 4: none did, and some could not be made.`,
		Example: "  domicile doctor durability --data /var/lib/domicile --certificate disk.json",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.For < minDoctor || o.For > maxDoctor {
				return usage("--for %s: %s to %s", o.For, minDoctor, maxDoctor)
			}
			v := version()
			o.Domicile = v.Version
			if v.Version == "devel" {
				o.Domicile += " " + v.Revision
			}
			return a.doctor(cmd.Context(), o, file)
		},
	}
	cmd.Flags().StringVar(&o.Folder, "data", ".", "a folder on the disk in question; it needs 600 MiB for the time")
	cmd.Flags().DurationVar(&o.For, "for", 5*time.Second, "how long the store is loaded while it is watched")
	cmd.Flags().StringVar(&file, "certificate", "", "also write what was found to this file, as JSON")
	return cmd
}

// again runs this program in a mode of its own.
func again(ctx context.Context, mode, dir string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return exec.CommandContext(ctx, self, "doctor", mode, dir)
}

func (a *app) doctor(ctx context.Context, o doctor.Options, file string) error {
	c, err := doctor.Durability(ctx, o)
	if err != nil {
		return err
	}
	if file != "" {
		text, err := json.MarshalIndent(c, "", "  ")
		if err == nil {
			err = regions.WriteWhole(file, append(text, '\n'))
		}
		if err != nil {
			return &api.Error{Code: api.ConfigInvalid, Op: "write the certificate", Field: "certificate", Value: file, Err: err, Hint: "name a file in a folder that exists"}
		}
	}
	if a.json() {
		err = a.printJSON(c)
	} else {
		_, err = io.WriteString(a.out, renderCertificate(&c))
	}
	if err != nil {
		return err
	}
	switch c.Verdict {
	case doctor.Failed:
		return ended(exitFailure)
	case doctor.NotChecked:
		return ended(exitUnknown)
	}
	return nil
}

func renderCertificate(c *doctor.Certificate) string {
	var b strings.Builder
	known := func(s string) string {
		if s == "" {
			return unknown
		}
		return s
	}
	m := &c.Machine
	table(&b, "", [][]string{
		{"folder", m.Folder},
		{"disk", fmt.Sprintf("%s, %s at %s (%s)", known(m.Source), known(m.FileSystem), known(m.Mount), known(m.Options))},
		{"write cache", known(m.WriteCache) + ", by the kernel's word"},
		{"versions", fmt.Sprintf("domicile %s, %s, %s, kernel %s", c.Versions.Domicile, known(c.Versions.Broker), c.Versions.Go, known(c.Versions.Kernel))},
		{"program", "sha256 " + known(c.Versions.Binary)},
		{"made", fmt.Sprintf("%s on %s, as %s", c.Made.Format(time.RFC3339), known(c.Host), map[bool]string{true: "root", false: "a user"}[c.Root])},
	})
	b.WriteByte('\n')
	rows := [][]string{{"CHECK", "RESULT", "ACKED", "LOST", "CLAIM"}}
	for _, k := range c.Checks {
		acked, lost := "-", "-"
		if k.Acked > 0 {
			acked, lost = count(uint64(k.Acked)), count(uint64(k.Lost))
		}
		rows = append(rows, []string{k.Name, string(k.Result), acked, lost, k.Claim})
	}
	table(&b, "", rows)
	for _, k := range c.Checks {
		if k.Why != "" {
			fmt.Fprintf(&b, "%s, %s: %s\n", k.Name, k.Result, oneLine(k.Why))
		}
	}
	if s := c.Speed; s != nil {
		ms := func(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1000) }
		fmt.Fprintf(&b, "\nfor %.0f s %.0f records of 1 KiB a second, 256 in flight; half of %d syncs took up to %s (99 of 100: %s, longest %s), half of the acks %s (99 of 100: %s)\n",
			s.Seconds, s.RecordsPerSecond, s.Syncs, ms(s.SyncP50), ms(s.SyncP99), ms(s.SyncMax), ms(s.AckP50), ms(s.AckP99))
	}
	fmt.Fprintf(&b, "\n%s\n\nnot proven:\n", verdictText(c.Verdict))
	for _, n := range c.NotProven {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

func verdictText(r doctor.Result) string {
	switch r {
	case doctor.Passed:
		return "Every check was made, and an ack meant what it says in each. Beyond them nothing is said:"
	case doctor.NotChecked:
		return "Nothing failed. Not every check could be made."
	}
	return "A check failed: do not rely on acks on this disk before the reason above is gone."
}
