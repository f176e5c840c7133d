package field_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/lab"
)

// B39: a disk that fills for a moment while the node of a region of one starts after a
// SIGKILL, at forty moments of its start. Whatever it meets, it takes records again by
// itself once there is space.
func TestB39_ADiskThatFillsDuringAStart(t *testing.T) {
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("takes 80 s; DOMICILE_LONG=1 runs it, and regions/fabric tests the moment that was wrong")
	}
	f := open(t, field.Options{})
	eu := f.Node("eu-west")
	for i := range 40 {
		at := 360*time.Millisecond + time.Duration(i)*4*time.Millisecond
		eu.Kill()
		must(t, eu.Start())
		must(t, lab.Pass(t.Context(), at))
		must(t, eu.FillDisk())
		must(t, lab.Pass(t.Context(), 900*time.Millisecond))
		must(t, eu.FreeDisk(t.Context()))
		n := 0
		if err := lab.Poll(t.Context(), soon, func() error {
			n++
			_, err := publish(t, eu, order(fmt.Sprintf("%d-%d", i, n), "eu"))
			return err
		}); err != nil {
			t.Fatalf("filled %s after the start: %v", at, err)
		}
	}
}
