package field

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Narrow makes the line between two regions carry that many bits a second each way,
// for all connections and nodes together; what does not fit waits in line, and beyond
// a few dozen packets is lost. It lasts until Widen. Safe for concurrent use.
func (f *Field) Narrow(ctx context.Context, a, b string, bits int) error {
	var script strings.Builder
	for _, way := range f.ways(a, b) {
		fmt.Fprintf(&script, "class replace dev lo parent 1: classid 1:%[1]d htb rate %[2]d ceil %[2]d burst 1600 cburst 1600 quantum %[3]d\n", way.number, bits, packet)
		fmt.Fprintf(&script, "qdisc replace dev lo parent 1:%[1]d handle %[1]d: pfifo limit %[2]d\n", way.number, waiting)
		fmt.Fprintf(&script, "filter replace dev lo parent 1: protocol ip prio %[1]d u32 match ip src %[2]s match ip dst %[3]s flowid 1:%[1]d\n", way.number, way.from, way.to)
	}
	return tc(ctx, script.String())
}

// Widen takes a width that Narrow gave away again; there must be one. Safe for
// concurrent use.
func (f *Field) Widen(ctx context.Context, a, b string) error {
	var script strings.Builder
	for _, way := range f.ways(a, b) {
		fmt.Fprintf(&script, "filter del dev lo parent 1: protocol ip prio %d\nclass del dev lo classid 1:%[1]d\n", way.number)
	}
	return tc(ctx, script.String())
}

const (
	packet  = 1500 // bytes: the device cuts what it sends into pieces of this size
	waiting = 40   // packets in line before more are lost
)

// way is one direction of a line: between the networks of two regions.
type way struct {
	number   int // of its class and filter
	from, to string
}

func (f *Field) ways(a, b string) [2]way {
	x, y := f.Of(a)[0].number, f.Of(b)[0].number
	network := func(n int) string { return fmt.Sprintf("127.0.%d.0/24", n) }
	return [2]way{{x*10 + y, network(x), network(y)}, {y*10 + x, network(y), network(x)}}
}

// openLines prepares the device for lines of a width: packets of a size that lines
// carry, and a queue into which widths can be put.
func openLines(ctx context.Context) error {
	if err := run(ctx, "ip", "link", "set", "dev", "lo", "mtu", fmt.Sprint(packet), "gso_max_size", fmt.Sprint(packet)); err != nil {
		return err
	}
	_ = run(ctx, "tc", "qdisc", "del", "dev", "lo", "root") // an error: nobody was here before
	return run(ctx, "tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
}

// tc carries out a script, line by line.
func tc(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "tc", "-batch", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tc: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
