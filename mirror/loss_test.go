package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/regions"
)

// TestB08_ForecastOfLoss runs testdata/loss: a log that keeps 1h and 100 MB with records
// of 1 kB, how far a copy is behind, the rates, and what is to be expected.
func TestB08_ForecastOfLoss(t *testing.T) {
	datadriven.RunTest(t, "testdata/loss/forecast", func(t *testing.T, d *datadriven.TestData) string {
		v := lossView{maxAge: time.Hour, maxBytes: 100_000_000, perRecord: 1000, rated: !d.HasArg("unrated"), hold: d.HasArg("hold"), alreadyBehind: d.HasArg("overtaken")}
		number := func(name string) (n float64) {
			if d.HasArg(name) {
				var s string
				d.ScanArgs(t, name, &s)
				if _, err := fmt.Sscanf(s, "%g", &n); err != nil {
					t.Fatal(d.Pos, err)
				}
			}
			return n
		}
		v.pending, v.held = uint64(number("pending")), int64(number("held"))
		v.in, v.out, v.gains = number("in"), number("out"), number("gains")
		if d.HasArg("age") {
			v.exposure, v.exposed = time.Duration(number("age"))*time.Second, true
		}
		l := v.forecast()
		switch l.State {
		case regions.LossUnknown:
			return "unknown\n"
		case regions.LossNone, regions.LossNow:
			return fmt.Sprintf("%s soon=%v\n", l.State, l.Soon)
		}
		return fmt.Sprintf("%s in %s soon=%v\n", l.State, l.In.Round(time.Second), l.Soon)
	})
}
