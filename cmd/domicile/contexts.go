package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/strict"
)

// contextFile is the file of named contexts.
type contextFile struct {
	Current  string                  `yaml:"current"`
	Contexts map[string]namedContext `yaml:"contexts"`
}

// namedContext is one node as its users see it: both addresses, and who they are.
type namedContext struct {
	Door      string `yaml:"door" json:"door"`
	Admin     string `yaml:"admin" json:"admin"`
	CA        string `yaml:"ca,omitempty" json:"ca,omitempty"`
	Cert      string `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key       string `yaml:"key,omitempty" json:"key,omitempty"`
	AdminCert string `yaml:"admin_cert,omitempty" json:"admin_cert,omitempty"` // operators' commands; absent: cert
	AdminKey  string `yaml:"admin_key,omitempty" json:"admin_key,omitempty"`
}

// contextsPath is where the contexts are kept: DOMICILE_CONTEXTS, else the user's
// configuration folder.
func (a *app) contextsPath() (string, error) {
	if path := a.env("DOMICILE_CONTEXTS"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", &api.Error{Code: api.ConfigInvalid, Op: "find contexts", Err: err, Hint: "set DOMICILE_CONTEXTS to a file"}
	}
	return filepath.Join(dir, "domicile", "contexts.yaml"), nil
}

// loadContexts reads the file; a missing one is empty. Relative paths in it are
// relative to the file.
func (a *app) loadContexts() (contextFile, string, error) {
	path, err := a.contextsPath()
	if err != nil {
		// Without a home folder there are no contexts; that alone stops nobody.
		return contextFile{}, "", nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contextFile{}, path, nil
	}
	if err != nil {
		return contextFile{}, path, fileError("read contexts", path, err)
	}
	var f contextFile
	if err := strict.Decode(path, data, &f); err != nil {
		return contextFile{}, path, err
	}
	return f, path, nil
}

func (f contextFile) names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

func (f contextFile) get(name string) (namedContext, error) {
	if c, ok := f.Contexts[name]; ok {
		return c, nil
	}
	hint := "domicile context add writes one"
	if near := strict.Nearest(name, f.names()); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(f.Contexts) > 0 {
		hint = "domicile context ls shows those there are"
	}
	return namedContext{}, &api.Error{Code: api.ConfigInvalid, Op: "choose context", Field: "context", Value: name, Hint: hint}
}

// chosenContext is the one named by flag or environment, else the current one;
// empty when there is none.
func (a *app) chosenContext() (namedContext, error) {
	f, path, err := a.loadContexts()
	if err != nil {
		return namedContext{}, err
	}
	name := firstOf(a.target.context, a.env("DOMICILE_CONTEXT"), f.Current)
	if name == "" {
		return namedContext{}, nil
	}
	c, err := f.get(name)
	if err != nil {
		return namedContext{}, err
	}
	for _, p := range []*string{&c.CA, &c.Cert, &c.Key, &c.AdminCert, &c.AdminKey} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return c, nil
}

// saveContexts replaces the file whole, so that a reader never sees half of it.
func (a *app) saveContexts(f contextFile) error {
	path, err := a.contextsPath()
	if err != nil {
		return err
	}
	data, err := strict.Encode(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fileError("save contexts", path, err)
	}
	if err := regions.WriteWhole(path, data); err != nil {
		return fileError("save contexts", path, err)
	}
	return nil
}
