package fabric_test

import (
	"context"
	"testing"

	"domicile/api"
	"domicile/regions/fabric"
)

// A home whose log the authority knows is never made anew on an empty disk, in its first
// epoch as little as later: it would end an epoch of which it holds nothing.
func TestR14g_AKnownHomeIsNotMadeAnew(t *testing.T) {
	f := openAt(t, t.TempDir())
	for range 2 {
		_, err := f.Home(context.Background(), logIn(t, epoch(1), func(c *fabric.LogConfig) { c.Incarnation = "inc-1" }))
		wantCode(t, err, api.ConfigInvalid)
	}
	if _, ok, err := f.Held(context.Background(), mustID(t, "orders@here")); ok || err != nil {
		t.Errorf("held: %v %v", ok, err)
	}
	homeIn(t, f, epoch(1))
}
