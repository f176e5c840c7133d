package fabric

import (
	"context"
	"errors"
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

// A refusal names the log that is gone, also one that was made anew since.
func TestRA1_LostNamesTheLog(t *testing.T) {
	f := &Fabric{known: map[string]logEntry{"orders__here": {Log: "orders@here", Made: 2}}}
	for folder, want := range map[string]string{"orders__here_g2": `"orders@here"`, "orders__here_g1": `"orders__here_g1"`} {
		if err := f.lost([]string{streamFolder + folder}); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}
