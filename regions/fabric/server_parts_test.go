package fabric

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Whoever waits for a broker that does not come up is let go when the store closes.
func TestRA1_StartOfABrokerEndsWithItsStore(t *testing.T) {
	srv, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := (&broker{srv: srv}).ready(ctx, time.Hour, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// A machine that is too busy for the broker to answer for itself in its millisecond has no
// broken store: that would be final until a person starts the node again.
func TestRA1_ABusyBrokerIsNoBrokenStore(t *testing.T) {
	srv, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	busy := srv.Healthz(nil) // what one that was not started says is what a busy one says
	if busy.StatusCode == http.StatusOK || storeFault(busy) != "" {
		t.Errorf("%+v is taken for %q", busy, storeFault(busy))
	}
	if why := storeFault(&server.HealthStatus{StatusCode: http.StatusServiceUnavailable, Error: "no space left on device"}); why != "no space left on device" {
		t.Errorf("a store that failed is taken for %q", why)
	}
}

// A refusal names the log that is gone, also one that was made anew since.
func TestRA1_LostNamesTheLog(t *testing.T) {
	f := &Fabric{known: map[string]logEntry{"orders__here": {Log: "orders@here", Made: 2}}}
	for folder, want := range map[string]string{"orders__here_g2": `"orders@here"`, "orders__here_g1": `"orders__here_g1"`} {
		if err := f.lost([]string{streamFolder + folder}); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}
