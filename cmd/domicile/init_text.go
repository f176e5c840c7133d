package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// instructions prints what to do next: the commands for three terminals and for
// three machines.
func (s starter) instructions(w io.Writer, dir string) error {
	dir = quote(filepath.Clean(dir))
	command := commandHere()
	var b strings.Builder
	fmt.Fprintf(&b, "Federation %q is in %s: three regions, three topics, policies and certificates.\n", s.federation, dir)
	b.WriteString("\nOn this machine, one terminal each:\n\n")
	for _, p := range s.places() {
		fmt.Fprintf(&b, "  %s serve -c %s/%s/node.yaml\n", command, dir, p.dir())
	}
	b.WriteString("\nThen, in one more:\n\n")
	fmt.Fprintf(&b, "  export DOMICILE_CONTEXTS=%s/contexts.yaml\n", dir)
	fmt.Fprintf(&b, "  %s publish orders --context us-east --tag residency=eu --tag class=order --body hello\n", command)
	fmt.Fprintf(&b, "  %s tail orders --context eu-west --from start\n", command)
	fmt.Fprintf(&b, "  %s status --context us-east\n", command)
	here := s.places()[0]
	fmt.Fprintf(&b, "\nOn machines of their own, for each node (here %s):\n\n", here.dir())
	fmt.Fprintf(&b, "  1. In %s/federation.yaml give each link its machine's address; the file is the same\n     everywhere.\n", dir)
	fmt.Fprintf(&b, "  2. In %s/%s/node.yaml listen on that machine's addresses, for example\n     0.0.0.0:%d.\n", dir, here.dir(), s.port+1)
	fmt.Fprintf(&b, "  3. Copy this program there, and: scp -r %s/federation.yaml %s/policies %s/%s MACHINE:domicile/%s\n", dir, dir, dir, here.dir(), here.above())
	fmt.Fprintf(&b, "  4. On the machine: domicile serve -c domicile/%s/node.yaml\n", here.dir())
	if here.gateway != "" {
		fmt.Fprintf(&b, "\nOf a region of three, federation.yaml names each node's link, and cluster.members in each\nnode.yaml the addresses at which the three reach each other; federation.yaml and policies\nlie two folders above node.yaml.\n")
	}
	fmt.Fprintf(&b, "\n%s/authority/ca.key can name new regions. It belongs on none of the machines.\n", dir)
	_, err := io.WriteString(w, b.String())
	return err
}

// quote makes a path safe to paste into a shell.
func quote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+@%", r)
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
