package main

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines     = 600
	maxFunctionLines = 80
)

func TestHouse_EveryPackageHasAComment(t *testing.T) {
	commented := map[string]bool{}
	for _, f := range allSources(t) {
		if !f.test {
			commented[f.pkg] = commented[f.pkg] || f.ast.Doc != nil
		}
	}
	for pkg, ok := range commented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestHouse_FilesAndFunctionsStayShort(t *testing.T) {
	for _, f := range allSources(t) {
		if f.generated {
			continue
		}
		if f.lines > maxFileLines {
			t.Errorf("%s has %d lines, at most %d", f.path, f.lines, maxFileLines)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := f.positions.Position(fn.End()).Line - f.positions.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, at most %d", f.path, fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func TestHouse_NoSleepNoInit(t *testing.T) {
	for _, f := range allSources(t) {
		if f.generated {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: init function: wire by hand", f.path)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep: wait for what happens, with a deadline", f.positions.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestHouse_NoCatchAllFolders(t *testing.T) {
	banned := []string{"internal", "util", "utils", "common", "helpers", "misc"}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if slices.Contains(banned, d.Name()) {
			t.Errorf("folder %s: name it after what it holds", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var namedFile = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*\\.(?:go|md|proto|rego|sh|txtar))(?::[A-Za-z0-9_.]+)?`")

// TestHouse_FilesNamedInTextExist keeps README.md and every DESIGN.md from naming
// what is gone. A name without a folder may lie anywhere in the module.
func TestHouse_FilesNamedInTextExist(t *testing.T) {
	names, texts := map[string]bool{}, []string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		names[d.Name()] = true
		if d.Name() == "DESIGN.md" || path == "../../README.md" {
			texts = append(texts, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		body, err := os.ReadFile(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedFile.FindAllStringSubmatch(string(body), -1) {
			if !strings.Contains(m[1], "/") && names[m[1]] || exists("../../"+m[1]) || exists(filepath.Join(filepath.Dir(text), m[1])) {
				continue
			}
			t.Errorf("%s names %s, which does not exist", text, m[1])
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
