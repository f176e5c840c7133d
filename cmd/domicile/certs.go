package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/regions/identity"
)

func (a *app) certsCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "certs",
		Short: "Make the certificates that say who is who",
		Long: `A certificate names its kind (region, client or operator) and its holder; none
passes for another. Keys never travel: the holder makes a request, whoever keeps the
authority signs it.`,
		Example: "  domicile certs init ./authority --federation example\n  domicile certs request eu-west --kind region --federation example\n  domicile certs sign eu-west.req --kind region --authority ./authority",
	}
	group.AddCommand(a.certsInit(), a.certsRequest(), a.certsSign())
	return group
}

func (a *app) certsInit() *cobra.Command {
	var federation string
	cmd := &cobra.Command{
		Use: "init DIR", Short: "Make the authority of a federation: DIR/ca.pem and DIR/ca.key",
		Example: "  domicile certs init ./authority --federation example",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			ca, err := identity.NewCA(federation, a.now(), identity.AuthorityValidity)
			if err != nil {
				return err
			}
			key, err := ca.KeyPEM()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o700); err != nil {
				return fileError("make folder", args[0], err)
			}
			return a.savePair(filepath.Join(args[0], "ca.pem"), ca.CertPEM(), filepath.Join(args[0], "ca.key"), key)
		},
	}
	cmd.Flags().StringVar(&federation, "federation", "", "name of the federation")
	return needs(cmd, "federation")
}

func (a *app) certsRequest() *cobra.Command {
	var federation, kind, out string
	var hosts []string
	cmd := &cobra.Command{
		Use: "request NAME", Short: "Make a key and a signing request: NAME.key and NAME.req",
		Example: "  domicile certs request app-eu-west --kind client --federation example",
		Args:    arguments(1, 1, "a NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := identity.Name{Federation: federation, Kind: identity.Kind(kind), Name: args[0]}
			request, key, err := identity.NewRequest(name, hosts...)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(out, 0o700); err != nil {
				return fileError("make folder", out, err)
			}
			base := filepath.Join(out, args[0])
			return a.savePair(base+".req", request, base+".key", key)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&federation, "federation", "", "name of the federation")
	flags.StringVar(&kind, "kind", "", "region, client or operator")
	flags.StringVar(&out, "out", ".", "folder to write to")
	flags.StringSliceVar(&hosts, "host", nil, "DNS name or IP address of the holder, for tools that look at it")
	return needs(cmd, "federation", "kind")
}

func (a *app) certsSign() *cobra.Command {
	var kind, authority, out string
	var days int
	cmd := &cobra.Command{
		Use: "sign REQUEST", Short: "Sign a request; the kind must be the one it asks for",
		Example: "  domicile certs sign app-eu-west.req --kind client --authority ./authority",
		Args:    arguments(1, 1, "a REQUEST file"),
		RunE: func(_ *cobra.Command, args []string) error {
			ca, err := loadAuthority(authority)
			if err != nil {
				return err
			}
			request, err := readFile("read request", args[0])
			if err != nil {
				return err
			}
			cert, err := ca.Sign(request, identity.Kind(kind), a.now(), time.Duration(days)*24*time.Hour)
			if err != nil {
				return err
			}
			if out == "" {
				out = args[0][:len(args[0])-len(filepath.Ext(args[0]))] + ".pem"
			}
			if err := refuseExisting(out); err != nil {
				return err
			}
			if err := identity.SavePublic(out, cert); err != nil {
				return fileError("write certificate", out, err)
			}
			return a.written(out)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "", "region, client or operator: what you mean to give")
	flags.StringVar(&authority, "authority", "", "folder that domicile certs init wrote")
	flags.StringVar(&out, "out", "", "file to write (default: the request's name with .pem)")
	flags.IntVar(&days, "days", int(identity.DefaultValidity.Hours()/24), "how long it is valid")
	return needs(cmd, "kind", "authority")
}

// needs refuses a command line in which one of these flags is absent or empty.
func needs(cmd *cobra.Command, flags ...string) *cobra.Command {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); f.Value.String() == "" {
				return usage("%s needs --%s: %s", short(cmd), name, f.Usage)
			}
		}
		return nil
	}
	return cmd
}

func loadAuthority(dir string) (*identity.Authority, error) {
	cert, err := readFile("read authority", filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	key, err := readFile("read authority", filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	return identity.ParseCA(cert, key)
}

// savePair writes two files that belong together and replaces neither.
func (a *app) savePair(public string, cert []byte, secret string, key []byte) error {
	for _, path := range []string{public, secret} {
		if err := refuseExisting(path); err != nil {
			return err
		}
	}
	if err := identity.SaveKey(secret, key); err != nil {
		return fileError("write key", secret, err)
	}
	if err := identity.SavePublic(public, cert); err != nil {
		return fileError("write certificate", public, err)
	}
	return a.written(public, secret)
}

func (a *app) written(paths ...string) error {
	if a.json() {
		return a.printJSON(map[string][]string{"written": paths})
	}
	for _, p := range paths {
		if _, err := fmt.Fprintln(a.out, "wrote", p); err != nil {
			return err
		}
	}
	return nil
}

func refuseExisting(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("write file", path, err)
	}
	return &api.Error{Code: api.ConfigInvalid, Op: "write file", Field: "path", Value: path, Hint: "it exists: choose another place, or move it away"}
}

func readFile(op, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fileError(op, path, err)
	}
	return data, nil
}

// fileError is what the system said of a file, with the file named once.
func fileError(op, path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &api.Error{Code: api.ConfigInvalid, Op: op, Field: "path", Value: path, Err: err}
}

// chain parses the certificates of a pair; what LoadX509KeyPair accepted parses.
func chain(pair tls.Certificate) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, der := range pair.Certificate {
		if c, err := x509.ParseCertificate(der); err == nil {
			certs = append(certs, c)
		}
	}
	return certs
}
