package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"domicile/gateway/node"
	"domicile/policy/bundle"
	"domicile/regions/identity"
)

func (a *app) policyKeys() *cobra.Command {
	group := &cobra.Command{
		Use: "keys", Short: "Make and list the keys of people who sign policies",
		Long: `Each person has a key of their own and one role. The private key stays with its
owner, on no node; the public line goes into the node.yaml of every region, under
policy: keys:. That file alone says whom a region believes.`,
		Example: "  domicile policy keys new anna --role legal --out ./anna\n  domicile policy keys list -c eu-west/node.yaml",
	}
	group.AddCommand(a.policyKeysNew(), a.policyKeysList())
	return group
}

func (a *app) policyKeysNew() *cobra.Command {
	var role, out string
	cmd := &cobra.Command{
		Use: "new ID", Short: "Make a person's key: ID.key, and the line for node.yaml",
		Example: "  domicile policy keys new anna --role legal",
		Args:    arguments(1, 1, "an ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := bundle.NewSigner(args[0])
			if err != nil {
				return err
			}
			text, err := s.PEM()
			if err != nil {
				return err
			}
			public, err := s.Public()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(out, 0o700); err != nil {
				return fileError("make folder", out, err)
			}
			path := filepath.Join(out, args[0]+".key")
			if err := refuseExisting(path); err != nil {
				return err
			}
			if err := identity.SaveKey(path, text); err != nil {
				return fileError("write key", path, err)
			}
			if a.json() {
				return a.printJSON(map[string]string{"id": s.ID, "role": role, "public": public, "written": path})
			}
			fmt.Fprintln(a.out, "wrote", path, "(keep it to yourself)")
			fmt.Fprintln(a.out, "for node.yaml, under policy: keys:")
			_, err = fmt.Fprintf(a.out, "    - {id: %s, role: %s, public: %q}\n", s.ID, role, public)
			return err
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "the one role in which this person signs, as legal or engineering")
	cmd.Flags().StringVar(&out, "out", ".", "folder to write to")
	return needs(cmd, "role")
}

func (a *app) policyKeysList() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use: "list", Short: "List whose signatures a node trusts, and which it needs",
		Example: "  domicile policy keys list -c eu-west/node.yaml",
		Args:    arguments(0, 0, ""),
		RunE: func(_ *cobra.Command, _ []string) error {
			trust, err := trustOf(config)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(viewTrust(trust))
			}
			if !trust.Signed() {
				_, err := fmt.Fprintln(a.out, "nobody: this node loads its policy from a directory")
				return err
			}
			rows := [][]string{{"KEY", "ROLE"}}
			for _, k := range trust.Keys {
				rows = append(rows, []string{k.ID, k.Role})
			}
			table(a.out, "", rows)
			for _, n := range trust.Need {
				fmt.Fprintln(a.out, "needed:", strconv.Itoa(n.Count), "of role", n.Role)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&config, "config", "c", "", "path of a node.yaml")
	return needs(cmd, "config")
}

type keyView struct {
	ID   string `json:"id"`
	Role string `json:"role"`
}

type needView struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
}

type trustView struct {
	Keys []keyView  `json:"keys"`
	Need []needView `json:"need"`
}

func viewTrust(t bundle.Trust) trustView {
	v := trustView{Keys: []keyView{}, Need: []needView{}}
	for _, k := range t.Keys {
		v.Keys = append(v.Keys, keyView{k.ID, k.Role})
	}
	for _, n := range t.Need {
		v.Need = append(v.Need, needView(n))
	}
	return v
}

// trustOf is whom a node.yaml trusts.
func trustOf(path string) (bundle.Trust, error) {
	c, err := node.LoadConfig(path)
	if err == nil {
		err = c.Policy.Check()
	}
	return c.Policy, err
}
