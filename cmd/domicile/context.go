package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (a *app) contextCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "context",
		Short: "Name the nodes you speak to",
		Long: `A context holds a node's two addresses and your certificate. It is kept in
domicile/contexts.yaml in your configuration folder, or in the file that
DOMICILE_CONTEXTS names.`,
		Example: "  domicile context add eu --door eu1:7400 --admin eu1:7402 --ca ca.pem --cert me.pem --key me.key\n  domicile status --context eu",
	}
	group.AddCommand(a.contextList(), a.contextUse(), a.contextAdd())
	return group
}

func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the contexts", Example: "  domicile context ls",
		Args: arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			f, path, err := a.loadContexts()
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"file": path, "current": f.Current, "contexts": f.Contexts})
			}
			rows := [][]string{{"", "NAME", "DOOR", "ADMIN", "CERTIFICATE"}}
			for _, name := range f.names() {
				mark, c := "", f.Contexts[name]
				if name == f.Current {
					mark = "*"
				}
				rows = append(rows, []string{mark, name, c.Door, c.Admin, firstOf(c.Cert, "none (plain, --dev nodes only)")})
			}
			if len(rows) == 1 {
				fmt.Fprintln(a.out, "No contexts yet. domicile context add writes one.")
				return nil
			}
			table(a.out, "", rows)
			return nil
		},
	}
}

func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Example: "  domicile context use eu",
		Args: arguments(1, 1, "a NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, _, err := a.loadContexts()
			if err != nil {
				return err
			}
			if _, err := f.get(args[0]); err != nil {
				return err
			}
			f.Current = args[0]
			return a.saveContexts(f)
		},
	}
}

func (a *app) contextAdd() *cobra.Command {
	var c namedContext
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add or replace a context", Args: arguments(1, 1, "a NAME"),
		Example: "  domicile context add local --door 127.0.0.1:7400 --admin 127.0.0.1:7402",
		RunE: func(_ *cobra.Command, args []string) error {
			f, _, err := a.loadContexts()
			if err != nil {
				return err
			}
			c.CA, c.Cert, c.Key = a.target.ca, a.target.cert, a.target.key
			t := target{Addresses: []string{c.Door, c.Admin}, CA: c.CA, Cert: c.Cert, Key: c.Key}
			if err := t.check(); err != nil {
				return err
			}
			if (c.AdminCert == "") != (c.AdminKey == "") {
				return usage("--admin-cert and --admin-key belong together")
			}
			for _, p := range []*string{&c.CA, &c.Cert, &c.Key, &c.AdminCert, &c.AdminKey} {
				if *p == "" {
					continue
				}
				if *p, err = filepath.Abs(*p); err != nil {
					return err
				}
			}
			if f.Contexts == nil {
				f.Contexts = map[string]namedContext{}
			}
			f.Contexts[args[0]] = c
			f.Current = firstOf(f.Current, args[0])
			return a.saveContexts(f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Door, "door", defaultDoor, "host:port for publish and tail")
	flags.StringVar(&c.Admin, "admin", defaultAdmin, "host:port for operators")
	flags.StringVar(&c.AdminCert, "admin-cert", "", "certificate for operators' commands, if it is another one")
	flags.StringVar(&c.AdminKey, "admin-key", "", "key of --admin-cert")
	return cmd
}
