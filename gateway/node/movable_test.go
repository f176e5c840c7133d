package node

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/placement"
)

// TestR14g_WhatALogIsOpenedAs runs the stories in testdata/opening: what a region's store
// holds of a log that may move, where the authority has it, and what it is opened as.
func TestR14g_WhatALogIsOpenedAs(t *testing.T) {
	datadriven.RunTest(t, "testdata/opening.txt", func(t *testing.T, d *datadriven.TestData) string {
		var first string
		d.ScanArgs(t, "first", &first)
		var held *fabric.Holding
		if d.HasArg("held") {
			var role, epoch string
			d.ScanArgs(t, "held", &role, &epoch)
			held = &fabric.Holding{Role: regions.Role(role), Epoch: parseEpoch(t, d, epoch), Ended: d.HasArg("ended")}
		}
		var placed *placement.Log
		if d.HasArg("placed") {
			var home, epoch, status string
			d.ScanArgs(t, "placed", &home, &epoch, &status)
			placed = &placement.Log{Home: home, Epoch: parseEpoch(t, d, epoch), Status: placement.Status(strings.ToUpper(status))}
		}
		as := openingOf("here", first, d.HasArg("copied"), held, placed)
		switch as.role {
		case regions.RoleNone:
			return "not opened\n"
		case regions.RoleCopy:
			return "copy\n"
		}
		return "home in " + as.epoch.String() + "\n"
	})
}

func parseEpoch(t *testing.T, d *datadriven.TestData, text string) api.Epoch {
	if text == "none" {
		return api.Epoch{}
	}
	e, err := api.ParseEpoch(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return e
}
