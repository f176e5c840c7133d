package field

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Loss is what happens to packets on a path that is cut.
type Loss string

// The losses.
const (
	Drop   Loss = "drop"   // nothing arrives and nobody is told: a black hole
	Reject Loss = "reject" // the sender gets a reset at once
)

// table holds all rules of a field, and for each loss a set of address pairs. Elements
// end by themselves, in the kernel.
const table = `table inet domicile_field {
	set cut_drop { type ipv4_addr . ipv4_addr; flags timeout; }
	set cut_reject { type ipv4_addr . ipv4_addr; flags timeout; }
	chain arriving {
		type filter hook input priority -10; policy accept;
		ip saddr . ip daddr @cut_drop drop
		ip saddr . ip daddr @cut_reject meta l4proto tcp reject with tcp reset
	}
}
`

// paths is the network between the nodes: the loopback device of the namespace and
// its packet filter. One goroutine at a time.
type paths struct{}

func openPaths(ctx context.Context) (*paths, error) {
	if err := run(ctx, "ip", "link", "set", "lo", "up"); err != nil {
		return nil, err
	}
	if err := openLines(ctx); err != nil {
		return nil, err
	}
	return &paths{}, nft(ctx, "add table inet domicile_field\ndelete table inet domicile_field\n"+table)
}

func (p *paths) close(ctx context.Context) error {
	return nft(ctx, "delete table inet domicile_field\n")
}

// nft carries out a script in one transaction.
func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Cut loses every packet from one node to another for a while; then it heals by
// itself. Cut both ways for a whole cut. A second cut of the same path replaces the
// first. It is safe for concurrent use.
func (f *Field) Cut(ctx context.Context, from, to *Node, loss Loss, lasts time.Duration) error {
	element := "inet domicile_field cut_" + string(loss) + " { " + from.Host + " . " + to.Host
	timed := fmt.Sprintf("%s timeout %dms }\n", element, max(lasts.Milliseconds(), 1))
	return nft(ctx, "add element "+timed+"delete element "+element+" }\nadd element "+timed)
}

// Mend ends a cut from one node to another; there may be none. It is safe for
// concurrent use.
func (f *Field) Mend(ctx context.Context, from, to *Node, loss Loss) error {
	element := "element inet domicile_field cut_" + string(loss) + " { " + from.Host + " . " + to.Host + " }\n"
	return nft(ctx, "add "+element+"delete "+element)
}

// Sever cuts every path between two regions, both ways.
func (f *Field) Sever(ctx context.Context, a, b string, loss Loss, lasts time.Duration) error {
	for _, x := range f.Of(a) {
		for _, y := range f.Of(b) {
			if err := f.Cut(ctx, x, y, loss, lasts); err != nil {
				return err
			}
			if err := f.Cut(ctx, y, x, loss, lasts); err != nil {
				return err
			}
		}
	}
	return nil
}

// Heal ends every cut at once. It is safe for concurrent use.
func (f *Field) Heal(ctx context.Context) error {
	var script strings.Builder
	for _, loss := range []Loss{Drop, Reject} {
		script.WriteString("flush set inet domicile_field cut_" + string(loss) + "\n")
	}
	return nft(ctx, script.String())
}
