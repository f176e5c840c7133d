package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "domicile"

// floors lists every package from the ground up. A package imports only packages
// of lower floors.
var floors = [][]string{
	{"api", "api/domicile/v1", "deploy"},
	{"regions/strict", "regions/link/linktest", "regions/testenv", "chaos/ports"},
	{"regions"},
	{"regions/clock", "regions/syncset", "regions/tail"},
	{"api/wire"},
	{"policy", "policy/bundle", "regions/fabric", "regions/identity", "regions/placement"},
	{"regions/approval", "regions/council", "regions/gossip", "regions/link", "regions/loss", "api/client", "policy/review", "policy/traffic"},
	{"gateway", "gateway/divergence", "gateway/drill", "gateway/failover", "gateway/handover", "gateway/mover", "gateway/nft", "gateway/placer", "mirror", "policy/opa", "regions/fabric/fabrictest", "chaos/canary", "chaos/drill/history", "chaos/ledger"},
	{"gateway/door", "gateway/admin", "chaos/tap", "chaos/drill/oracle", "chaos/drill/report", "chaos/invariant"},
	{"gateway/node", "chaos/drill"},
	{"chaos/lab", "chaos/shop"},
	{"chaos/demo", "chaos/failover", "chaos/field", "chaos/fieldreports", "chaos/intruder", "chaos/alerts", "chaos/doctor", "chaos/simulate"},
	{"chaos/schedule"},
	{"cmd/domicile"},
}

// rooms gives each outside module the packages that may use it.
var rooms = map[string][]string{
	"github.com/nats-io":                  {"regions/fabric", "regions/fabric/fabrictest"},
	"github.com/open-policy-agent/opa":    {"policy/opa"},
	"google.golang.org/grpc":              {"api/domicile/v1", "api/wire", "api/client", "regions/link", "gateway/door", "gateway/admin"},
	"google.golang.org/protobuf":          {"api/domicile/v1", "api/wire", "api/client", "regions/link", "gateway/door", "gateway/admin"},
	"google.golang.org/genproto":          {"api/domicile/v1", "api/wire"},
	"github.com/hashicorp/raft":           {"regions/council"},
	"github.com/minio/highwayhash":        {"regions/fabric"}, // the checksum of the broker's blocks
	"github.com/hashicorp/memberlist":     {"regions/gossip"},
	"go.etcd.io/bbolt":                    {"regions/council"},
	"go.yaml.in/yaml/v3":                  {"regions/strict"},
	"github.com/prometheus/client_golang": {"gateway/admin"},
	"github.com/spf13/cobra":              {"cmd/domicile"},
	"golang.org/x/net":                    {"chaos/tap"},
	"golang.org/x/sys":                    {"regions", "regions/fabric", "cmd/domicile"},
	"github.com/google/go-cmp":            {}, // tests only, as the rest
	"github.com/cockroachdb/datadriven":   {},
	"github.com/rogpeppe/go-internal":     {},
	"go.uber.org/goleak":                  {"regions/fabric/fabrictest"},
	"pgregory.net/rapid":                  {},
}

// strangers lists packages that never meet, whatever their floors say.
var strangers = map[string][]string{
	"gateway": {"mirror", "policy/opa", "regions/fabric", "regions/link"},
	"mirror":  {"gateway", "policy/opa", "regions/fabric", "regions/link"},
	// No gossip can move a log, cut a link or touch a record: it can't reach them.
	"regions/gossip": {"regions/placement", "regions/council", "regions/approval", "regions/link", "regions/fabric", "regions/identity", "policy", "api/client"},
}

type sourceFile struct {
	path      string // from the module's root, with slashes
	pkg       string // folder from the module's root
	test      bool
	external  bool // package x_test
	generated bool
	lines     int
	ast       *ast.File
	positions *token.FileSet
}

// sources parses every Go file of the module in this process, so that the test
// cache knows which files the answer depends on.
var sources = sync.OnceValues(func() ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parse(path)
		if err == nil {
			files = append(files, f)
		}
		return err
	})
	return files, err
})

func parse(path string) (sourceFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return sourceFile{}, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		return sourceFile{}, err
	}
	name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
	return sourceFile{
		path: name, pkg: strings.TrimSuffix(name, "/"+filepath.Base(path)), ast: tree, positions: set,
		test: strings.HasSuffix(path, "_test.go"), external: strings.HasSuffix(tree.Name.Name, "_test"),
		generated: ast.IsGenerated(tree), lines: strings.Count(string(text), "\n"),
	}, nil
}

func allSources(t *testing.T) []sourceFile {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func floorOf(pkg string) int {
	return slices.IndexFunc(floors, func(floor []string) bool { return slices.Contains(floor, pkg) })
}

func imports(f sourceFile) []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestLayers_EveryPackageStandsOnAFloor(t *testing.T) {
	present := map[string]bool{}
	for _, f := range allSources(t) {
		present[f.pkg] = present[f.pkg] || !f.test
		if floorOf(f.pkg) < 0 {
			t.Errorf("%s: package %s stands on no floor; add it to the table", f.path, f.pkg)
		}
	}
	for i, floor := range floors {
		for _, pkg := range floor {
			if !present[pkg] {
				t.Errorf("floor %d lists %s, which does not exist", i, pkg)
			}
		}
	}
}

func TestLayers_ImportsPointDown(t *testing.T) {
	for _, f := range allSources(t) {
		for _, path := range imports(f) {
			inner, ours := strings.CutPrefix(path, module+"/")
			if !ours || f.external {
				continue
			}
			if floorOf(inner) >= floorOf(f.pkg) {
				t.Errorf("%s imports %s: not a lower floor", f.path, inner)
			}
			if !f.test && slices.Contains(strangers[f.pkg], inner) {
				t.Errorf("%s imports %s: the two never meet, gateway/node hands the part in", f.path, inner)
			}
		}
	}
}

func TestLayers_OneOutsideModuleOneRoom(t *testing.T) {
	for _, f := range allSources(t) {
		for _, path := range imports(f) {
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") {
				continue // standard library, or ours
			}
			mod, ok := roomOf(path)
			switch {
			case !ok:
				t.Errorf("%s imports %s: the module has no room", f.path, path)
			case !f.test && !slices.Contains(rooms[mod], f.pkg):
				t.Errorf("%s imports %s: it belongs to %v", f.path, path, rooms[mod])
			}
		}
	}
}

func roomOf(path string) (string, bool) {
	for mod := range rooms {
		if path == mod || strings.HasPrefix(path, mod+"/") {
			return mod, true
		}
	}
	return "", false
}
