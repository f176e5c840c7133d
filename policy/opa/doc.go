// Package opa loads a policy directory and judges it whole: catalog.yaml, the
// authors' rules in rules/*.rego and their tests in tests/*_test.rego. What comes out
// is an immutable policy.Generation; nothing is activated here. Every doubt (an
// error, an undefined or malformed answer, an unknown word) refuses the load.
//
// It is the one room of the OPA library.
package opa
