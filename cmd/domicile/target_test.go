package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoContexts = `
current: eu
contexts:
  eu: {door: "eu:7400", admin: "eu:7402", ca: ca.pem, cert: app.pem, key: app.key, admin_cert: op.pem, admin_key: op.key}
  dev: {door: "127.0.0.1:1", admin: "127.0.0.1:2"}
`

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "contexts.yaml")
	if err := os.WriteFile(file, []byte(twoContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	euDoor := target{[]string{"eu:7400"}, in("ca.pem"), in("app.pem"), in("app.key")}
	for _, c := range []struct {
		name    string
		service service
		flags   targetFlags
		env     map[string]string
		want    target
	}{
		{"current context", toDoor, targetFlags{}, nil, euDoor},
		{"operators have their own certificate", toAdmin, targetFlags{}, nil, target{[]string{"eu:7402"}, in("ca.pem"), in("op.pem"), in("op.key")}},
		{"named context", toAdmin, targetFlags{context: "dev"}, nil, target{Addresses: []string{"127.0.0.1:2"}}},
		{"context from the environment", toDoor, targetFlags{}, map[string]string{"DOMICILE_CONTEXT": "dev"}, target{Addresses: []string{"127.0.0.1:1"}}},
		{"server from the environment", toDoor, targetFlags{}, map[string]string{"DOMICILE_SERVER": "a:1, b:2"}, target{[]string{"a:1", "b:2"}, euDoor.CA, euDoor.Cert, euDoor.Key}},
		{"operators' own address", toAdmin, targetFlags{context: ""}, map[string]string{"DOMICILE_CONTEXT": "dev", "DOMICILE_SERVER": "127.0.0.1:8", "DOMICILE_ADMIN": "127.0.0.1:9"}, target{Addresses: []string{"127.0.0.1:9"}}},
		{"a named context beats the environment", toDoor, targetFlags{context: "dev"}, map[string]string{"DOMICILE_SERVER": "127.0.0.1:8"}, target{Addresses: []string{"127.0.0.1:1"}}},
		{"a flag beats all", toDoor, targetFlags{context: "dev", server: "[::1]:5"}, map[string]string{"DOMICILE_SERVER": "x:1"}, target{Addresses: []string{"[::1]:5"}}},
		{"certificates by flag", toDoor, targetFlags{server: "x:1", ca: "1", cert: "2", key: "3"}, nil, target{[]string{"x:1"}, "1", "2", "3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &app{target: c.flags, env: func(name string) string {
				if name == "DOMICILE_CONTEXTS" {
					return file
				}
				return c.env[name]
			}}
			got, err := a.resolve(c.service)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestResolve_NoPlainTextOffThisMachine(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "contexts.yaml")
	a := &app{target: targetFlags{server: "db.example:7400"}, env: func(name string) string { return map[string]string{"DOMICILE_CONTEXTS": empty}[name] }}
	_, err := a.resolve(toDoor)
	var u *usageError
	if !errors.As(err, &u) {
		t.Errorf("got %v, want a usage error", err)
	}
}
