package fabric

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
)

// TestS2_Verdicts runs the stories in testdata/roles: who may open a log, as what, under
// which epoch.
func TestS2_Verdicts(t *testing.T) {
	datadriven.Walk(t, "testdata/roles", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			epoch := func(key string) (e api.Epoch) {
				var text string
				if d.MaybeScanArgs(t, key, &text); text == "" {
					return e
				}
				e, err := api.ParseEpoch(text)
				if err != nil {
					t.Fatal(d.Pos, err)
				}
				return e
			}
			h := held{last: epoch("last"), fenced: epoch("fenced")}
			a := asked{epoch: epoch("epoch")}
			d.ScanArgs(t, "held", &h.role)
			d.ScanArgs(t, "as", &a.role)
			d.MaybeScanArgs(t, "state", &h.state)
			d.MaybeScanArgs(t, "ended", &a.ended)
			a.sealed = d.HasArg("sealed")
			code, hint := h.refusal(a)
			switch {
			case code == "":
				return "opened\n"
			case hint == "":
				t.Fatal(d.Pos, "a refusal without a way out")
			}
			return string(code) + "\n"
		})
	})
}
