package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions"
)

// policyTerms are the flags of what goes into a bundle's manifest.
type policyTerms struct {
	out, from string
	days      int
	serial    int64
}

func (t *policyTerms) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.out, "out", "", "file to write (default: policy-SERIAL.bundle)")
	cmd.Flags().StringVar(&t.from, "from", "", "when it begins to be valid, RFC 3339 (default: now)")
	cmd.Flags().IntVar(&t.days, "days", int(bundle.MaxValidity.Hours()/24), "how long it is valid; nothing crosses a border after that")
}

func (t *policyTerms) manifest(now time.Time, federation string) (bundle.Manifest, error) {
	from := now
	if t.from != "" {
		var err error
		if from, err = time.Parse(time.RFC3339, t.from); err != nil {
			return bundle.Manifest{}, usage("--from: write a time as 2026-11-29T12:00:00Z")
		}
	}
	return bundle.Manifest{Federation: federation, Serial: t.serial, ValidFrom: from, ValidUntil: from.AddDate(0, 0, t.days), MinEngine: opa.Engine()}, nil
}

// path is where the bundle goes.
func (t *policyTerms) path(serial int64) string {
	if t.out != "" {
		return t.out
	}
	return fmt.Sprintf("policy-%d.bundle", serial)
}

func (a *app) policyBuild() *cobra.Command {
	var t policyTerms
	var manifest string
	cmd := &cobra.Command{
		Use: "build DIR", Short: "Make a policy directory into a bundle that people can sign",
		Long: `Checks the directory as policy check does, and writes its exact bytes into one file with
a serial, the time in which it is valid, and the version of the rules' engine here, below
which no region takes it. Built twice with the same times it is the same, byte by byte.`,
		Example: "  domicile policy build ./federation/policies --federation ./federation/federation.yaml --out policy-7.bundle",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := regions.LoadManifest(manifest)
			if err != nil {
				return err
			}
			files, err := opa.Files(args[0])
			if err != nil {
				return checkFailed{err}
			}
			m, err := t.manifest(a.now(), f.Name())
			if err != nil {
				return err
			}
			p, err := opa.LoadFiles(cmd.Context(), files, opa.Moment{Serial: t.serial, Now: m.ValidFrom, Until: m.ValidUntil}, f)
			if err != nil {
				return checkFailed{err}
			}
			m.Serial = p.Generation.Serial
			b, err := bundle.Build(m, files)
			if err != nil {
				return checkFailed{err}
			}
			return a.writeBundle(t.path(m.Serial), b, bundle.Trust{}, true)
		},
	}
	t.flags(cmd)
	cmd.Flags().Int64Var(&t.serial, "serial", 0, "serial of the bundle (default: that of catalog.yaml)")
	cmd.Flags().StringVar(&manifest, "federation", "", "path of the federation.yaml whose regions and topics are judged")
	return needs(cmd, "federation")
}

func (a *app) policySign() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "sign BUNDLE", Short: "Sign a bundle as its author",
		Long:    "Adds your signature over the digest of the bundle, in its file. What you sign is shown; others add theirs with policy approve.",
		Example: "  domicile policy sign policy-7.bundle --key anna.key",
		Args:    arguments(1, 1, "a BUNDLE"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.signBundle(args[0], key, bundle.Trust{})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "your key, as policy keys new wrote it")
	return needs(cmd, "key")
}

func (a *app) policyApprove() *cobra.Command {
	var key, config string
	cmd := &cobra.Command{
		Use: "approve BUNDLE", Short: "Sign a bundle as one more person, after its signatures were verified",
		Long: `Verifies the signatures that the bundle has by the keys of a node.yaml, adds yours, and
says who still has to sign. Refused if a signature does not fit, or if your key is not
one that the node trusts. Look at what it changes first: policy diff.`,
		Example: "  domicile policy approve policy-7.bundle --key ben.key -c eu-west/node.yaml",
		Args:    arguments(1, 1, "a BUNDLE"),
		RunE: func(_ *cobra.Command, args []string) error {
			trust, err := trustOf(config)
			if err != nil {
				return err
			}
			return a.signBundle(args[0], key, trust)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "your key, as policy keys new wrote it")
	cmd.Flags().StringVarP(&config, "config", "c", "", "path of a node.yaml that trusts the keys")
	return needs(cmd, "key", "config")
}

// signBundle adds a signature to a bundle's file. With trust all signatures, the new one too,
// must be trusted.
func (a *app) signBundle(path, key string, trust bundle.Trust) error {
	b, _, err := readBundle(path)
	if err != nil {
		return err
	}
	s, err := readSigner(key)
	if err != nil {
		return err
	}
	if err := b.Sign(s); err != nil {
		return err
	}
	if trust.Signed() {
		approvals, err := b.Approvals(trust)
		if err != nil {
			return err
		}
		if slices.Contains(approvals.Unknown, s.ID) {
			return &api.Error{Code: api.PolicyError, Op: "approve policy", Field: "key", Value: s.ID, Err: bundle.ErrWrongKey,
				Hint: "the node trusts no such key: ask for it to be put into node.yaml"}
		}
	}
	return a.writeBundle(path, b, trust, false)
}

func readSigner(path string) (*bundle.Signer, error) {
	text, err := readFile("read key", path)
	if err != nil {
		return nil, err
	}
	return bundle.ParseSigner(text)
}

func readBundle(path string) (*bundle.Bundle, []byte, error) {
	data, err := readFile("read bundle", path)
	if err != nil {
		return nil, nil, err
	}
	b, err := bundle.Read(data)
	return b, data, err
}

type bundleView struct {
	Written    string    `json:"written"`
	Serial     int64     `json:"serial"`
	Digest     string    `json:"digest"`
	ValidFrom  time.Time `json:"valid_from"`
	ValidUntil time.Time `json:"valid_until"`
	BackTo     int64     `json:"rolls_back_to,omitempty"`
	Signatures []string  `json:"signatures"`
	Needed     string    `json:"still_needed,omitempty"`
}

// writeBundle writes a bundle and says what it is; fresh: nothing may be there yet.
func (a *app) writeBundle(path string, b *bundle.Bundle, trust bundle.Trust, fresh bool) error {
	if fresh {
		if err := refuseExisting(path); err != nil {
			return err
		}
	}
	if err := regions.WriteWhole(path, b.Bytes()); err != nil {
		return fileError("write bundle", path, err)
	}
	m := b.Manifest
	v := bundleView{Written: path, Serial: m.Serial, Digest: b.Digest(), ValidFrom: m.ValidFrom, ValidUntil: m.ValidUntil, BackTo: m.RollsBackTo, Signatures: []string{}}
	for _, s := range b.Signatures {
		v.Signatures = append(v.Signatures, s.KeyID)
	}
	if trust.Signed() {
		approvals, err := b.Approvals(trust)
		if err != nil {
			return err
		}
		v.Needed = approvals.Text()
	}
	if a.json() {
		return a.printJSON(v)
	}
	return a.printBundle(v, trust)
}

func (a *app) printBundle(v bundleView, trust bundle.Trust) error {
	fmt.Fprintln(a.out, "wrote", v.Written)
	fmt.Fprintf(a.out, "serial %d, valid %s to %s\ndigest %s\n", v.Serial, v.ValidFrom.Format(time.RFC3339), v.ValidUntil.Format(time.RFC3339), v.Digest)
	if v.BackTo > 0 {
		fmt.Fprintf(a.out, "goes back to the files of serial %d\n", v.BackTo)
	}
	fmt.Fprintln(a.out, "signed by:", firstOf(strings.Join(v.Signatures, ", "), "nobody"))
	if trust.Signed() {
		fmt.Fprintln(a.out, "still needed:", firstOf(v.Needed, "nobody"))
	}
	return nil
}
