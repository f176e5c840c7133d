package oracle

import (
	"testing"
	"time"
)

func TestR14i_TheSlowestHundredthIsNotTheNinetyNine(t *testing.T) {
	o := &Oracle{}
	if _, n := o.AckP99(0); n != 0 {
		t.Error("of none")
	}
	for i := range 100 {
		o.spans.add(took{time.Second, time.Duration(i+1) * time.Millisecond})
	}
	if p, n := o.AckP99(0); p != 99*time.Millisecond || n != 100 {
		t.Errorf("%s of %d", p, n)
	}
	for range maxLatencies {
		o.spans.add(took{time.Minute, time.Second})
	}
	if p, n := o.AckP99(time.Minute); p != time.Second || n != maxLatencies {
		t.Errorf("%s of %d", p, n)
	}
}
