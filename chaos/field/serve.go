package field

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/fabric"
)

// What a child is told by its environment.
const (
	nodeKey  = "DOMICILE_FIELD_NODE"  // path of node.yaml: this process is a node
	hostKey  = "DOMICILE_FIELD_HOST"  // the address it dials from
	paceKey  = "DOMICILE_FIELD_PACE"  // regions.Pace
	breakKey = "DOMICILE_FIELD_BREAK" // a mechanism that is off
)

// NoBarrier lets acks leave before their records are on disk.
const NoBarrier = "no barrier"

// closeWithin bounds a child's graceful stop.
const closeWithin = 20 * time.Second

// serve is the main function of a child: a node as `domicile serve --dev` runs it,
// at the pace and from the address that the field asks for.
func serve(path string) int {
	if err := serveNode(path); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		return 1
	}
	return 0
}

func serveNode(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := node.LoadConfig(path)
	if err != nil {
		return err
	}
	f, err := regions.LoadManifest(c.Federation)
	if err != nil {
		return err
	}
	pace, err := strconv.ParseFloat(os.Getenv(paceKey), 64)
	if err != nil {
		return fmt.Errorf("%s: %w", paceKey, err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(os.Getenv(hostKey))}}
	n, err := node.New(c, f, node.Seams{Dev: true, Pace: regions.Pace(pace), Dial: dialer.DialContext, Logger: c.Log.Logger(),
		Version: "field", Hooks: node.Hooks{Fabric: fabric.Hooks{NoBarrier: os.Getenv(breakKey) == NoBarrier}}})
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop on its way up
		}
		return err
	}
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		answerGauges(ctx, filepath.Dir(path))
	}()
	<-ctx.Done()
	<-measured
	closing, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return n.Close(closing)
}
