package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"domicile/policy/bundle"
	"domicile/regions"
)

func (a *app) policyRollback() *cobra.Command {
	var key, out string
	cmd := &cobra.Command{
		Use: "rollback BUNDLE", Short: "Go back to the files of an earlier bundle, under a new and higher serial",
		Long: `Makes a new bundle of the earlier one's files, with the serial after the active one,
signs it with your key and activates it. One trusted person may do that at once if the
region keeps the earlier bundle, fully approved, and it allows nothing that the active
policy refuses. It is valid no longer than the active one. Otherwise it is refused, the new bundle stays in its file, and the others
sign it: policy approve, then policy activate.`,
		Example: "  domicile policy rollback policy-6.bundle --key anna.key --context eu-west",
		Args:    arguments(1, 1, "a BUNDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			old, _, err := readBundle(args[0])
			if err != nil {
				return err
			}
			m := old.Manifest
			m.RollsBackTo, m.Revokes = m.Serial, nil
			return a.narrow(cmd.Context(), old, m, key, out)
		},
	}
	return narrowing(cmd, &key, &out)
}

func (a *app) policyRevoke() *cobra.Command {
	var key, out string
	cmd := &cobra.Command{
		Use: "revoke NAME BUNDLE", Short: "End an exception or a transfer mechanism of the active policy now",
		Long: `Makes a bundle of the active one's files in which the exception or mechanism lasts no
more, with the next serial, signs it with your key and activates it. One trusted person
may do that at once, since it allows nothing new. What was stored under it is listed, and
stays where it is. BUNDLE is the file of the active policy.`,
		Example: "  domicile policy revoke scc_us policy-7.bundle --key anna.key --context eu-west",
		Args:    arguments(2, 2, "a NAME and a BUNDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			active, _, err := readBundle(args[1])
			if err != nil {
				return err
			}
			m := active.Manifest
			m.RollsBackTo = 0
			m.Revokes = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(m.Revokes), args[0]))))
			return a.narrow(cmd.Context(), active, m, key, out)
		},
	}
	return narrowing(cmd, &key, &out)
}

const clockSlack = 5 * time.Minute

func narrowing(cmd *cobra.Command, key, out *string) *cobra.Command {
	cmd.Flags().StringVar(out, "out", "", "file to write (default: policy-SERIAL.bundle)")
	cmd.Flags().StringVar(key, "key", "", "your key, as policy keys new wrote it")
	return needs(cmd, "key")
}

// narrow makes a bundle of another's files that one person may activate, under the next
// serial of the node and valid as long as its active policy, keeps it in a file, and tries.
func (a *app) narrow(ctx context.Context, of *bundle.Bundle, m bundle.Manifest, key, out string) error {
	s, err := readSigner(key)
	if err != nil {
		return err
	}
	state, err := a.policyState(ctx)
	if err != nil {
		return err
	}
	m.Serial = state.GetSerial() + 1
	for _, kept := range state.GetKept() {
		m.Serial = max(m.Serial, kept+1)
	}
	m.ValidFrom = a.now().Add(-clockSlack) // the node's clock may be behind
	if live := state.GetPolicy(); live != nil {
		m.ValidUntil = time.Unix(0, live.GetValidUntilUnixNano())
		if from := time.Unix(0, live.GetValidFromUnixNano()); m.ValidFrom.Before(from) {
			m.ValidFrom = from
		}
	}
	b, err := bundle.Build(m, of.Files)
	if err == nil {
		err = b.Sign(s)
	}
	if err != nil {
		return err
	}
	t := policyTerms{out: out}
	path := t.path(m.Serial)
	if err := refuseExisting(path); err != nil {
		return err
	}
	if err := regions.WriteWhole(path, b.Bytes()); err != nil {
		return fileError("write bundle", path, err)
	}
	if !a.json() {
		fmt.Fprintln(a.out, "wrote", path)
	}
	return a.activate(ctx, b.Bytes())
}
