package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/deploy"
	"domicile/regions"
	"domicile/regions/identity"
)

// starter is the example federation that init writes.
type starter struct {
	federation string
	port       int      // of the first region's door; each region has ten
	quorum     []string // regions of three nodes
	now        time.Time
}

// starterRegions are the regions of the example files, in the order of their ports.
var starterRegions = [...]string{"eu-west", "us-east", "ap-south"}

func (a *app) initCommand() *cobra.Command {
	s := starter{}
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Write a federation of three regions to start from",
		Long: `Writes the manifest, a node file per region, policies and certificates, all
commented, and prints the commands to run them: in terminals here, or on machines of
their own. A region named with --quorum has three nodes, which keep each record on at
least two of their three disks. DIR must be empty or absent.`,
		Example: "  domicile init ./federation\n  domicile init ./federation --quorum eu-west",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			s.now = a.now()
			files, err := s.files()
			if err != nil {
				return err
			}
			if err := writeTree(args[0], files); err != nil {
				return err
			}
			if a.json() {
				paths := make([]string, 0, len(files))
				for _, f := range files {
					paths = append(paths, filepath.Join(args[0], f.path))
				}
				return a.written(paths...)
			}
			return s.instructions(a.out, args[0])
		},
	}
	cmd.Flags().StringVar(&s.federation, "federation", "example", "name of the federation")
	cmd.Flags().IntVar(&s.port, "port", 7400, "port of the first door; thirty ports from here are used, ninety with --quorum")
	cmd.Flags().StringSliceVar(&s.quorum, "quorum", nil, "a region to run as three nodes; may be given several times")
	return cmd
}

// treeFile is one file to write, path relative to the tree.
type treeFile struct {
	path string
	data []byte
	mode os.FileMode
}

func (s starter) files() ([]treeFile, error) {
	if err := regions.CheckName(s.federation); err != nil {
		return nil, usage("--federation %q: %v", s.federation, err)
	}
	if s.port < 1 || s.port > 65535-90 {
		return nil, usage("--port %d: choose 1 to %d", s.port, 65535-90)
	}
	for _, region := range s.quorum {
		if !slices.Contains(starterRegions[:], region) {
			return nil, usage("--quorum %q: choose of %s", region, strings.Join(starterRegions[:], ", "))
		}
	}
	ca, err := identity.NewCA(s.federation, s.now, identity.AuthorityValidity)
	if err != nil {
		return nil, err
	}
	caKey, err := ca.KeyPEM()
	if err != nil {
		return nil, err
	}
	files := []treeFile{
		{"federation.yaml", s.manifest(), 0o644},
		{"contexts.yaml", s.contexts(), 0o644},
		{"authority/ca.pem", ca.CertPEM(), 0o644},
		{"authority/ca.key", caKey, 0o600},
		{"people/ca.pem", ca.CertPEM(), 0o644},
	}
	issue := func(kind identity.Kind, name, base string) error {
		cert, key, err := ca.Issue(kind, name, s.now, identity.DefaultValidity)
		files = append(files, treeFile{base + ".pem", cert, 0o644}, treeFile{base + ".key", key, 0o600})
		return err
	}
	for _, p := range s.places() {
		files = append(files, treeFile{p.dir() + "/node.yaml", p.node(), 0o644}, treeFile{p.dir() + "/ca.pem", ca.CertPEM(), 0o644})
		if err := issue(identity.Region, p.region, p.dir()+"/node"); err != nil {
			return nil, err
		}
	}
	for _, region := range starterRegions {
		if err := issue(identity.Client, "app-"+region, "people/app-"+region); err != nil {
			return nil, err
		}
	}
	if err := issue(identity.Operator, "operator", "people/operator"); err != nil {
		return nil, err
	}
	policies, err := filesOf(deploy.Policies)
	return append(files, policies...), err
}

// manifest is the example file of deploy with this federation's name, ports and nodes.
func (s starter) manifest() []byte {
	text := replaceOnce(deploy.FederationYAML, "federation: example ", "federation: "+s.federation+" ")
	links := map[string][]string{}
	for _, p := range s.places() {
		link := fmt.Sprintf("link: %q", p.address(portLink))
		if p.gateway != "" {
			link = fmt.Sprintf("%s: %q", p.gateway, p.address(portLink))
		}
		links[p.region] = append(links[p.region], link)
	}
	for i, region := range starterRegions {
		by := "{" + strings.Join(links[region], ", ") + "}"
		if len(links[region]) > 1 {
			by = "{gateways: " + by + "}"
		}
		text = replaceOnce(text, fmt.Sprintf(`{link: "127.0.0.1:%d"}`, 7401+10*i), by)
	}
	return text
}

func replaceOnce(text []byte, old, by string) []byte {
	return bytes.Replace(text, []byte(old), []byte(by), 1)
}

func (s starter) contexts() []byte {
	var b bytes.Buffer
	b.WriteString("# Named contexts: which node to speak to, and as whom. Use this file with\n# DOMICILE_CONTEXTS=<its path>, and choose with --context. Paths are relative to it.\n")
	fmt.Fprintf(&b, "current: %s\ncontexts:\n", starterRegions[0])
	for _, p := range s.places() {
		fmt.Fprintf(&b, "  %s:\n    door: %s   # publish and tail, as app-%s\n    admin: %s  # operators' commands, as operator\n", p.context(), p.address(portDoor), p.region, p.address(portAdmin))
		fmt.Fprintf(&b, "    ca: people/ca.pem\n    cert: people/app-%s.pem\n    key: people/app-%s.key\n    admin_cert: people/operator.pem\n    admin_key: people/operator.key\n", p.region, p.region)
	}
	return b.Bytes()
}

// writeTree writes all files into an empty or absent folder, by way of a folder
// inside it, so that a failure on the way leaves it empty.
func writeTree(dir string, files []treeFile) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fileError("init", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fileError("init", dir, err)
	}
	if len(entries) > 0 {
		return &api.Error{Code: api.ConfigInvalid, Op: "init", Field: "dir", Value: dir, Hint: "the folder is not empty: choose another one; nothing was written"}
	}
	if err := stageTree(dir, files); err != nil {
		return fileError("init", dir, err)
	}
	return nil
}

func stageTree(dir string, files []treeFile) error {
	stage, err := os.MkdirTemp(dir, ".init-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	for _, f := range files {
		path := filepath.Join(stage, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return err
		}
	}
	staged, err := os.ReadDir(stage)
	if err != nil {
		return err
	}
	for _, e := range staged {
		if err := os.Rename(filepath.Join(stage, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// filesOf lists a tree of embedded files.
func filesOf(tree fs.FS) ([]treeFile, error) {
	var files []treeFile
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files = append(files, treeFile{path, data, 0o644})
		return err
	})
	return files, err
}
