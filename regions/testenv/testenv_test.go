package testenv_test

import (
	"testing"

	"domicile/regions/testenv"
)

// outcome is a test of which only the end is looked at.
type outcome struct {
	testing.TB
	failed, skipped bool
}

func (o *outcome) Helper()      {}
func (o *outcome) Fatal(...any) { o.failed = true }
func (o *outcome) Skip(...any)  { o.skipped = true }

func TestFF_WhatCannotBeProvenIsRedWhereProofsAreAsked(t *testing.T) {
	t.Setenv(testenv.Proofs, "")
	var at outcome
	if testenv.Missing(&at, "a disk"); at.failed || !at.skipped {
		t.Errorf("a proof on a machine of one's own: %+v", at)
	}
	t.Setenv(testenv.Proofs, "1")
	at = outcome{}
	if testenv.Root(&at, "no-such-tool"); !at.failed {
		t.Errorf("where proofs are asked: %+v", at)
	}
}
