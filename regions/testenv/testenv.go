// Package testenv is what tests ask of the machine that they run on.
package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// Proofs is set where nothing may be left out: a proof that the machine cannot give fails.
const Proofs = "DOMICILE_PROOFS"

// Missing leaves a test out for want of what it names, or fails it where Proofs is set.
func Missing(t testing.TB, what ...any) {
	t.Helper()
	if os.Getenv(Proofs) != "" {
		t.Fatal(append([]any{"with " + Proofs + " set no proof is left out: "}, what...)...)
	}
	t.Skip(what...)
}

// Root needs root and the tools named.
func Root(t testing.TB, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			Missing(t, "needs ", tool)
		}
	}
}
